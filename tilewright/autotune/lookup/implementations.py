"""Which implementation computes a node that has several: what no schedule can choose, since the formulas differ.

The pass ``choose_implementation`` decides by an estimate. Each implementation of a node is a workload of its own; where
records have them, the faster one wins, and a choice that was measured in the network itself counts before that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.lookup.symbolic_sizes import is_kin
from tilewright.autotune.lookup.workloads import kernel_of_node, workload_at, workloads_of
from tilewright.autotune.records.database import Database, Networks
from tilewright.autotune.records.record import STANDARD
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import PASS, Alternatives, alternatives_of
from tilewright.lowering.implementations.base import ATTRIBUTE, Table
from tilewright.lowering.plan import LoweredModel
from tilewright.lowering.table import TABLE
from tilewright.machine.target import Target

_WORTH = 0.97
"""Another implementation's record must take at most this share of the time that the network's own takes."""


@dataclass(frozen=True, slots=True)
class Tunable:
    """A node with several implementations. ``own``: the one that it has. ``standard``: the one that it has if none that
    rounds otherwise is used. ``workloads``: that of its kernel by implementation. ``alike``: others that are estimated
    to take as long as its own."""

    node: str
    own: str
    standard: str
    workloads: Mapping[str, Workload]
    alike: tuple[str, ...] = ()


def find_tunable(
    graph: Graph, lowered: LoweredModel, target: Target, disabled: Collection[str] = (), table: Table = TABLE,
    pinned: Collection[str] = (), known: Mapping[str, Workload] | None = None,
) -> tuple[Tunable, ...]:  # fmt: skip
    """The nodes of ``graph`` (after its passes, without those of subgraphs) that have a choice. ``lowered``: the graph,
    of which only the groups of these nodes are lowered again. ``disabled``: names of passes and rules. ``pinned``:
    nodes whose implementation the user has named. ``known``: the workloads by kernel, if they are."""
    if PASS in disabled:
        return ()
    kernels, workloads = kernel_of_node(lowered), known or workloads_of(lowered)
    out = []
    for c in alternatives_of(graph, target, table):
        node, own = c.node.name, c.node.attr(ATTRIBUTE)
        if node in pinned or node not in kernels or not isinstance(own, str):
            continue
        names = dict.fromkeys((own, *c.hopeful(disabled)))
        if len(names) > 1:
            others = {name: _variant(lowered, node, name) for name in names if name != own}
            workload = {own: workloads[kernels[node]], **others}
            out.append(Tunable(node, own, c.standard().name, workload, _alike(c, own, tuple(others))))
    return tuple(out)


def _alike(c: Alternatives, own: str, others: Sequence[str]) -> tuple[str, ...]:
    costs = {i.name: i.cost(c.facts.priced) for i in c.ways if i.name in (own, *others)}
    return tuple(a for a in others if abs(costs[a] - costs[own]) <= (1 - _WORTH) * costs[own])


def _variant(lowered: LoweredModel, node: str, implementation: str) -> Workload:
    func, places = lowered.variants[node](implementation)
    return workload_at(func, [places] if places else [])


def other_implementations(tunable: Sequence[Tunable]) -> list[dict[str, str]]:
    """Assignments that differ from the nodes' own implementations: each implementation wherever it is allowed."""
    names = dict.fromkeys(a for o in tunable for a in o.workloads)
    found = [{o.node: a for o in tunable if a in o.workloads and a != o.own} for a in names]
    return [x for x in found if x]


def recorded_implementations(
    tunable: Sequence[Tunable], target: Target, database: Database, network: Networks
) -> dict[str, str]:
    """The implementation by node where ``database`` knows a better one than the node has. ``network``: whose choices
    count."""
    out: dict[str, str] = {}
    for o in tunable:
        chosen = _recorded(o, target, database, network)
        if chosen != o.own:
            out[o.node] = chosen
    return out


def _recorded(o: Tunable, target: Target, database: Database, network: Networks) -> str:
    choice = database.choice(o.workloads[o.own], target, network)
    if choice is not None:
        chosen = o.standard if choice.implementation == STANDARD else choice.implementation
        if chosen in o.workloads:
            return chosen
    best = {a: r.seconds for a, w in o.workloads.items() if (r := database.query(w, target)) is not None and r.seconds}
    if o.own not in best:
        return _tuned_alike(o, best, database)
    fastest = min(best, key=lambda a: (best[a], a))
    return fastest if best[fastest] < _WORTH * best[o.own] else o.own


def _tuned_alike(o: Tunable, best: Mapping[str, float], database: Database) -> str:
    """Of an implementation without a record and those that should take as long, one that was tuned: for these sizes, or
    else in a build where others of its sizes were symbolic. So a log serves where an estimate changes its mind."""
    recorded = [a for a in o.alike if a in best]
    if recorded:
        return min(recorded, key=lambda a: (best[a], a))
    kin = (
        a for a in (o.own, *o.alike) if any(True for _ in database.related(partial(is_kin, workload=o.workloads[a])))
    )
    return next(kin, o.own) if o.alike else o.own
