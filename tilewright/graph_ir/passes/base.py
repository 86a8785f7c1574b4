"""What a pass is, what it may use, and what it leaves behind: levels, exactness, the log of rewrites."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol

from tilewright.core.options import require_choice
from tilewright.graph_ir.ir import Constant, Graph, Node, Value, captured
from tilewright.graph_ir.names import NameSupply
from tilewright.machine.costs import GENERIC, Costs


class Level(IntEnum):
    """Optimisation levels in growing order; a pass runs when the chosen level is at least its own."""

    NONE = 0
    BASIC = 1
    EXTENDED = 2
    ALL = 3

    @staticmethod
    def of(name: str | Level) -> Level:
        """The level called ``name``. Raises InputError for an unknown one."""
        if isinstance(name, Level):
            return name
        given = name.lower() if isinstance(name, str) else name
        return Level[require_choice("opt_level", given, [m.lower() for m in Level.__members__]).upper()]


class Exactness(Enum):
    """How close a rewritten graph's results are to the original's.

    >>> from tilewright.rules import Exactness
    >>> [e.value for e in Exactness]
    ['bit-exact', 'reassociating', 'approximate']
    """

    BIT_EXACT = "bit-exact"
    REASSOCIATING = "reassociating"  # equal in real arithmetic; rounding differs
    APPROXIMATE = "approximate"  # never on by a level alone


@dataclass(frozen=True, slots=True)
class Fired:
    """A rewrite that happened: ``what`` (a rule or the pass) at ``node``."""

    what: str
    node: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A rewrite that matched and was not done, and why."""

    what: str
    node: str
    reason: str


class PassLog:
    """Collects the entries of one pass; equal entries once."""

    __slots__ = ("fired", "notes", "refused")

    def __init__(self) -> None:
        self.fired: list[Fired] = []
        self.refused: dict[Refused, None] = {}
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """A fact about the pass as a whole, for the account of the build."""
        self.notes.append(text)

    def fire(self, what: str, node: str) -> None:
        self.fired.append(Fired(what, node))

    def refuse(self, what: str, node: str, reason: str) -> None:
        self.refused[Refused(what, node, reason)] = None


class Backend(Protocol):
    """What the room that lowers a graph knows of single nodes, for the passes that fuse it."""

    @property
    def costs(self) -> Costs:
        """Those of the CPU that it lowers for."""

    def host_reason(self, graph: Graph, node: Node) -> str | None:
        """Why native code does not take ``node``; None if it does. Raises UnsupportedError where it must."""

    def checked_indices(self, node: Node, values: Mapping[str, Value], constants: Mapping[str, Constant]) -> list[str]:
        """The values whose elements each run must look at before ``node``, since they are indices."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What a pass may use besides the graph.

    ``disabled``: names of passes and rules that must not fire. ``enabled``: names of optional ones that may.
    ``outer_values``, ``outer_constants``: what a subgraph sees of the graphs around it. ``costs``: those of the CPU.
    ``backend``: None where nobody will lower the graph. ``refuses``: why a rule must not make a node, None if it may:
    the terms of who takes the graph (an older opset).
    """

    names: NameSupply
    log: PassLog = field(default_factory=PassLog)
    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    outer_values: Mapping[str, Value] = field(default_factory=dict)
    outer_constants: Mapping[str, Constant] = field(default_factory=dict)
    costs: Costs = GENERIC
    backend: Backend | None = None
    refuses: Callable[[Node], str | None] | None = None

    @staticmethod
    def for_graph(
        graph: Graph, disabled: tuple[str, ...] = (), enabled: tuple[str, ...] = (), backend: Backend | None = None
    ) -> PassContext:
        """A context with nothing around ``graph``."""
        return PassContext(NameSupply(graph), disabled=frozenset(disabled), enabled=frozenset(enabled), backend=backend)

    def inside(self, graph: Graph) -> PassContext:
        """The context of the subgraphs of ``graph``'s nodes."""
        return PassContext(
            self.names,
            self.log,
            self.disabled,
            self.enabled,
            {**self.outer_values, **graph.values},
            {**self.outer_constants, **graph.constants},
            self.costs,
            self.backend,
            self.refuses,
        )

    def constant(self, graph: Graph, name: str) -> Constant | None:
        """What ``name`` stands for if it is a constant of the graph or of the graphs around it."""
        return graph.constants.get(name) or self.outer_constants.get(name)


@dataclass(frozen=True, slots=True)
class Pass:
    """One graph rewrite as a value.

    ``run`` rewrites one graph and never looks into subgraphs; :meth:`apply` also does those. ``optional``: off unless
    it is enabled by name. ``rules``: names of its rules, if it has any. ``required``: no build does without it.
    """

    name: str
    level: Level
    exactness: Exactness
    run: Callable[[Graph, PassContext], Graph]
    optional: bool = False
    rules: tuple[str, ...] = ()
    required: bool = False

    def apply(self, graph: Graph, ctx: PassContext) -> Graph:
        """The rewritten graph, subgraphs first; the same object if nothing fired."""
        return self.run(self._apply_to_subgraphs(graph, ctx), ctx)

    def _apply_to_subgraphs(self, graph: Graph, ctx: PassContext) -> Graph:
        if not any(True for n in graph.nodes for _ in n.subgraphs()):
            return graph
        inner = ctx.inside(graph)
        nodes = []
        changed = False
        for n in graph.nodes:
            new = {k: g if n.domain else self.apply(g, inner) for k, g in n.subgraphs()}
            if any(new[k] is not g for k, g in n.subgraphs()):
                n = n.with_attrs(**new)
                changed = True
            nodes.append(n)
        return graph.with_nodes(nodes) if changed else graph


def visible_values(graph: Graph, ctx: PassContext) -> dict[str, Value]:
    """The values of ``graph`` and those that it captures."""
    around = {n: ctx.outer_values[n] for n in captured(graph)} if ctx.outer_values else {}
    return {**around, **graph.values}


def rename_captures(graph: Graph, renames: Mapping[str, str]) -> Graph:
    """The subgraph with names that it reads from outside replaced."""
    wanted = {k: v for k, v in renames.items() if k in captured(graph)}
    if not wanted:
        return graph
    nodes = []
    for n in graph.nodes:
        changes = {k: rename_captures(g, wanted) for k, g in n.subgraphs()}
        if changes:
            n = n.with_attrs(**changes)
        nodes.append(with_inputs(n, tuple(wanted.get(i, i) for i in n.inputs)))
    return graph.replace(nodes=tuple(nodes), outputs=tuple(wanted.get(o, o) for o in graph.outputs))


def with_inputs(node: Node, inputs: tuple[str, ...]) -> Node:
    """The node reading other values; the same object if they are the same."""
    return node if inputs == node.inputs else dataclasses.replace(node, inputs=inputs)


def iter_lines(log: PassLog) -> Iterator[str]:
    """The log as text: fired rules with counts, notes, then refusals with reasons."""
    counts: dict[str, list[str]] = {}
    for f in log.fired:
        counts.setdefault(f.what, []).append(f.node)
    for what, nodes in counts.items():
        shown = ", ".join(nodes[:3]) + (", ..." if len(nodes) > 3 else "")
        yield f"fired {what} x{len(nodes)}: {shown}"
    yield from log.notes
    for r in log.refused:
        yield f"refused {r.what} at {r.node}: {r.reason}"
