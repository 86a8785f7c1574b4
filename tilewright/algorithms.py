"""Which algorithm computes a node that has several: what no schedule can choose, since the formulas differ.

The graph pass ``choose_algorithms`` decides by an estimate. Each algorithm of a node is a workload of its own; where
records have them, the faster one wins, and a choice that was measured in the network itself counts before that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.autotune.lookup.apply_best import kernel_of_node, workload_hashes
from tilewright.autotune.records.database import Database
from tilewright.core.index_ranges import OutOfRange
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.choose_algorithms import algorithm_of, algorithms_of, with_algorithms
from tilewright.lowering.plan import lower_graph_to_plan
from tilewright.machine.target import Target

_WORTH = 0.97
"""Another algorithm's record must take at most this share of the time that the network's own takes."""


@dataclass(frozen=True, slots=True)
class Options:
    """A node with several algorithms. ``own``: the one that it has. ``workloads``: hash of its kernel by algorithm."""

    node: str
    own: str
    workloads: Mapping[str, str]


def find_options(
    graph: Graph, target: Target, disabled: Collection[str] = (), out_of_range: OutOfRange = "error"
) -> tuple[Options, ...]:
    """The nodes of ``graph`` (after its passes, without those of subgraphs) that have a choice. ``disabled``: names of
    passes and rules."""
    names = algorithms_of(graph, disabled, target.costs)
    if not names:
        return ()
    own = {n.name: algorithm_of(n) for n in graph.nodes if n.name in names}
    hashes: dict[str, dict[str, str]] = {node: {} for node in names}
    for algorithm in dict.fromkeys(a for allowed in names.values() for a in allowed):
        # all at once: where a value is stored, and so what a kernel reads, is decided for the graph as a whole
        changed = with_algorithms(graph, {node: algorithm for node in names if algorithm in names[node]})
        for node, workload in _workloads(changed, target, out_of_range).items():
            if algorithm in names.get(node, ()):
                hashes[node][algorithm] = workload
    return tuple(Options(node, own[node], found) for node, found in hashes.items() if own[node] in found)


def _workloads(graph: Graph, target: Target, out_of_range: OutOfRange) -> dict[str, str]:
    """Hash of the kernel that computes each node."""
    lowered = lower_graph_to_plan(graph, target, pack=False, out_of_range=out_of_range)
    hashes = workload_hashes(lowered)
    return {node: hashes[kernel] for node, kernel in kernel_of_node(lowered).items()}


def other_algorithms(options: Sequence[Options]) -> list[dict[str, str]]:
    """Assignments of algorithms to nodes that differ from the nodes' own: each algorithm wherever it is allowed."""
    names = dict.fromkeys(a for o in options for a in o.workloads)
    found = [{o.node: a for o in options if a in o.workloads and a != o.own} for a in names]
    return [x for x in found if x]


def recorded_algorithms(
    options: Sequence[Options], target: Target, database: Database, network: str
) -> dict[str, str]:
    """The algorithm by node where ``database`` knows a better one than the node has. ``network``: whose choices
    count."""
    out: dict[str, str] = {}
    for o in options:
        chosen = _recorded(o, target, database, network)
        if chosen != o.own:
            out[o.node] = chosen
    return out


def describe_algorithms(options: Sequence[Options], used: Mapping[str, str]) -> str:
    """What records say about the nodes with a choice, a line each: ``used`` as :func:`recorded_algorithms` gives it."""
    lines = [f"\n  {o.node}: {used[o.node]} (without records {o.own})" for o in options if o.node in used]
    return "algorithms:" + ("".join(lines) or " as without records")


def _recorded(o: Options, target: Target, database: Database, network: str) -> str:
    choice = database.choice(o.workloads[o.own], target, network)
    if choice is not None and choice.algorithm in o.workloads:
        return choice.algorithm
    best = {a: r.seconds for a, w in o.workloads.items() if (r := database.query(w, target)) is not None and r.seconds}
    if o.own not in best:
        return o.own
    fastest = min(best, key=lambda a: (best[a], a))
    return fastest if best[fastest] < _WORTH * best[o.own] else o.own
