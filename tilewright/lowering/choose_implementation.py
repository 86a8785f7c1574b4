"""Each node that can be computed in several ways gets the one that should be fastest and is exact enough.

What an implementation costs and how much it rounds is estimated by the implementation itself, for the types and weights
at hand. One that loses more than ``LIMIT`` is refused, and below the level ``all`` only those that round as the
definition does are looked at. A node that has the attribute ``implementation`` keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.bounds import middle
from tilewright.core.errors import InputError, UnsupportedError
from tilewright.core.options import shown
from tilewright.core.suggestions import did_you_mean
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value, walk_graphs
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.implementations.base import ATTRIBUTE, Implementation, Table, standard
from tilewright.lowering.implementations.operator import Operator
from tilewright.lowering.table import TABLE
from tilewright.machine.target import Target

LIMIT = 1e-4
"""The largest error estimate that is accepted: of a channel's root mean square."""

REDUCED_LIMIT = 3e-2
"""The same for operands of bfloat16, whose rounding alone is a third of it."""

_HOPEFUL = 1.1
"""What is estimated to take longer, as a ratio to the fastest that rounds as the definition does, is not measured."""

PASS = "choose_implementation"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a user asks for: ``names`` by node, of implementations in ``table``, which has those of the user, too. Not
    ``strict``: nodes that are not there or cannot be computed so are passed over."""

    names: Mapping[str, str] = field(default_factory=dict)
    table: Table = field(default_factory=lambda: TABLE)
    strict: bool = True

    @staticmethod
    def of(
        asked: Mapping[str, str | Implementation] | None, strict: bool = True, operators: Sequence[Operator] = ()
    ) -> Wanted:
        """From the options ``implementations`` and ``operators``. Raises InputError if it is none."""
        if asked is not None and not isinstance(asked, Mapping):
            raise InputError(f"implementations: expected a mapping from nodes to implementations, got {shown(asked)}")
        names: dict[str, str] = {}
        table = {**TABLE, **{o.qualified: o.implementations for o in operators if o.implementations}}
        for node, wanted in (asked or {}).items():
            if not isinstance(node, str) or not isinstance(wanted, str | Implementation):
                raise InputError(
                    f"implementations: expected names of nodes and names of implementations or Implementation values, "
                    f"got {shown(node)}: {shown(wanted)}"
                )
            names[node] = wanted if isinstance(wanted, str) else wanted.name
            if isinstance(wanted, Implementation):
                known = table.get(wanted.op, ())
                if any(i.name == wanted.name and i is not wanted for i in known):
                    raise InputError(f"implementations: {wanted.op} already has an implementation {wanted.name!r}")
                table[wanted.op] = known if wanted in known else (*known, wanted)
        return Wanted(names, table, strict)

    def require_nodes(self, graph: Graph) -> None:
        """Raises InputError for a node that ``graph``, after its passes, does not have."""
        there = {n.name for g in walk_graphs(graph) for n in g.nodes}
        for node in self.names if self.strict else ():
            if node not in there:
                near = did_you_mean(node, there)
                raise InputError(f"implementations: the model has no node {node!r} after its graph passes{near}")


@dataclass(frozen=True, slots=True)
class Alternatives:
    """A node that can be computed in several ways. ``errors``: known estimates, by implementation and constants."""

    facts: NodeFacts
    ways: tuple[Implementation, ...]
    errors: dict[tuple[str, ...], float]

    @property
    def node(self) -> Node:
        return self.facts.node

    def standard(self) -> Implementation:
        """The fastest that rounds as the definition does."""
        return standard(self.ways, self.facts)

    def named(self, name: str) -> Implementation | None:
        return next((i for i in self.ways if i.name == name), None)

    def error(self, i: Implementation) -> float:
        """The estimated error, 0 if it rounds as the definition does."""
        if i.error is None:
            return 0.0
        key = (i.name, *(x for x, c in zip(self.node.inputs, self.facts.constants, strict=True) if c is not None))
        if key not in self.errors:
            with np.errstate(over="ignore", invalid="ignore"):  # an error that is not finite is refused by the caller
                self.errors[key] = i.error(self.facts)
        return self.errors[key]

    @property
    def limit(self) -> float:
        """The largest error estimate that is accepted for the node."""
        types = [v.dtype for v in self.facts.input_values if v is not None]
        return REDUCED_LIMIT if dtypes.bfloat16 in types else LIMIT

    def by_cost(self, disabled: Collection[str] = ()) -> list[Implementation]:
        """Those that apply and are not disabled, the fastest first."""
        usable = [i for i in self.ways if not i.is_disabled(disabled) and i.refusal(self.facts) is None]
        return sorted(usable, key=lambda i: i.cost(self.facts.priced))

    def hopeful(self, disabled: Collection[str] = ()) -> tuple[str, ...]:
        """What a tuner should measure: the standard, and what is exact enough and estimated not much slower."""
        own = self.standard()
        most = _HOPEFUL * own.cost(self.facts.priced)
        others = [i for i in self.by_cost(disabled) if i is not own and i.cost(self.facts.priced) <= most]
        return (own.name, *(i.name for i in others if self.error(i) <= self.limit))


def alternatives_of(
    graph: Graph, target: Target, table: Table = TABLE, outer: Mapping[str, Value] | None = None
) -> Iterator[Alternatives]:
    """The nodes of ``graph`` (without those of subgraphs) that can be computed, and in several ways.

    ``outer``: values of the graphs around it. Of a size in a range the geometric mean of its ends counts in estimates.
    """
    values = {**(outer or {}), **graph.values}
    errors: dict[tuple[str, ...], float] = {}
    sizes = {symbol: middle(low, high) for symbol, low, high in graph.ranges}
    for node in graph.nodes:
        ways = table.get(node.op, ()) if node.domain in ("", "ai.onnx") else ()
        if len(ways) > 1 and all(_is_ranked(values[x]) for x in (*node.inputs, *node.outputs) if x):
            found = Alternatives(facts_of(node, target, values, graph.constants, sizes), ways, errors)
            if _is_computable(found):
                yield found


def choose_implementation(target: Target, level: Level = Level.ALL, wanted: Wanted | None = None) -> Pass:
    """The pass for a target. ``level``: that of the whole pipeline. ``wanted``: what the user asks for, whatever it
    costs; the pass raises InputError where that does not apply."""
    wanted = wanted or Wanted()
    several = [ways for ways in wanted.table.values() if len(ways) > 1]
    names = dict.fromkeys(n for ways in several for i in ways for n in (i.family, i.name, i.full_name) if n)
    run = partial(_choose, target=target, inexact=level >= Level.ALL, wanted=wanted)
    return Pass(PASS, Level.NONE, Exactness.REASSOCIATING, run, rules=tuple(names))


def with_implementations(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with the given implementations, by node name."""
    nodes = [n.with_attrs(implementation=names[n.name]) if n.name in names else n for n in graph.nodes]
    return graph.replace(nodes=tuple(nodes))


def _choose(graph: Graph, ctx: PassContext, target: Target, inexact: bool, wanted: Wanted) -> Graph:
    chosen: dict[str, str] = {}
    used: dict[float, dict[str, float]] = {}
    found = {c.node.name: c for c in alternatives_of(graph, target, wanted.table, ctx.outer_values)}
    for node in graph.nodes:
        name = wanted.names.get(node.name)
        refusal = None if name is None else _refusal(node, name, found.get(node.name))
        if refusal is not None and wanted.strict:
            raise InputError(f"implementations: node {node.name!r} ({node.op}): {refusal}")
        c = found.get(node.name)
        if name is not None and refusal is None:
            chosen[node.name] = name
        elif c is not None and node.attr(ATTRIBUTE) is None:
            best = best_of(c, ctx, inexact)
            if best is not None:
                chosen[node.name] = best.name
                ctx.log.fire(best.name, node.name)
                if best.error is not None:
                    used.setdefault(c.limit, {})[node.name] = c.error(best)
    for limit, errors in used.items():
        worst = max(errors, key=lambda n: errors[n])
        ctx.log.note(
            f"error estimate of the {len(errors)} nodes that round otherwise: at most {errors[worst]:.1e} of a "
            f"channel's root mean square ({worst}), limit {limit:.0e}"
        )
    return with_implementations(graph, chosen) if chosen else graph


def _refusal(node: Node, name: str, c: Alternatives | None) -> str | None:
    """Why a node cannot be computed by the implementation of that name."""
    if c is None:
        return "it is computed in one way"
    i = c.named(name)
    if i is None:
        names = [i.name for i in c.ways]
        return f"unknown implementation {name!r}, expected one of {', '.join(names)}{did_you_mean(name, names)}"
    reason = i.refusal(c.facts)
    return None if reason is None else f"implementation {name!r}: {reason}"


def best_of(c: Alternatives, ctx: PassContext, inexact: bool) -> Implementation | None:
    """The fastest that is exact enough, and not ``inexact`` only those that round as the definition does."""
    for i in c.by_cost(ctx.disabled):
        if i.measured or (i.error is not None and not inexact):
            continue
        error = c.error(i)
        if error <= c.limit:
            return i
        ctx.log.refuse(i.name, c.node.name, f"error estimate {error:.1e}, limit {c.limit:.0e}")
    return None


def facts_of(
    node: Node, target: Target, values: Mapping[str, Value], constants: Mapping[str, Constant], sizes: Mapping[str, int]
) -> NodeFacts:
    return NodeFacts(
        node,
        target,
        tuple(values[i] if i else None for i in node.inputs),
        tuple(constants.get(i) for i in node.inputs),
        tuple(values[o] if o else None for o in node.outputs),
        sizes=sizes,
    )


def _is_ranked(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.shape is not None


def _is_computable(c: Alternatives) -> bool:
    try:
        c.standard()
    except UnsupportedError:
        return False
    return True
