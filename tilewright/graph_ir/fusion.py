"""Fusion: which nodes become one kernel. Groups by pattern kind and post-dominators, in the way of TVM's FuseOps.

A node is joined with its immediate post-dominator (the first node through which everything that depends on it must
pass) together with all nodes between the two, when the result is one anchor (matmul, convolution, reduction, norm, ...)
with elementwise nodes around it, or no anchor at all, or two of :mod:`.fuse_pointwise_depthwise`. Only the last node's
outputs leave such a group, so nothing is computed twice and groups cannot depend on each other in a circle. Whatever is
not joined is recorded with the reason.

Nodes that only compute shapes which are known as expressions over the dim symbols are in no group
(:func:`shape_only_nodes`): their readers take ``Value.data`` instead. Nor are those that the sizes of results depend on
and nothing else (:mod:`.early_sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.core.arith.bounds import is_nonneg
from tilewright.graph_ir.early_sizes import early_sizes, is_sized
from tilewright.graph_ir.fuse_pointwise_depthwise import HALO, halo_between
from tilewright.graph_ir.ir import Graph, Node, Shape, TensorType, Value, node_reads, walk_graphs
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops import OpDef, op_def
from tilewright.graph_ir.run_time_sizes import new_symbols
from tilewright.graph_ir.symbols import symbols_in, value_symbols
from tilewright.machine.costs import GENERIC

_ANCHORS = frozenset({PatternKind.REDUCTION, PatternKind.OUT_FUSABLE, PatternKind.OPAQUE})
_PLAIN = frozenset({PatternKind.BROADCAST, PatternKind.INJECTIVE})


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that become one kernel, in topological order, with what goes in and out and the strictest kind inside."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: PatternKind


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """Bounds of a group. ``injective_epilogue``: any Transpose or Slice may follow a matmul or convolution, not only
    those that leave the last axis in place. ``kept_bytes``: see :class:`~tilewright.machine.costs.Costs`."""

    max_nodes: int = 20
    max_inputs: int = 12
    max_prologue: int = 6
    injective_epilogue: bool = False
    kept_bytes: int = GENERIC.kept_bytes


@dataclass(frozen=True, slots=True)
class FusionRefusal:
    """Two nodes that stay apart, and why."""

    node: str
    into: str
    reason: str

    def __str__(self) -> str:
        return f"not fused {self.node} with {self.into}: {self.reason}"


IsNative: TypeAlias = Callable[[Node], bool]


def kind_in(graph: Graph, node: Node, is_native: IsNative | None = None) -> PatternKind:
    """The kind of a node in this graph: HOST also where strings, sequences, complex numbers or unknown ranks occur."""
    kind = op_def(node).kind
    if kind in (PatternKind.HOST, PatternKind.CONTROL):
        return kind
    if is_native is not None and not is_native(node):
        return PatternKind.HOST
    for name in (*node.inputs, *node.outputs):
        v = graph.values.get(name)
        if not name or v is None:
            continue
        if not isinstance(v.type, TensorType) or v.type.shape is None or v.type.dtype.kind in "sc":
            return PatternKind.HOST
    return kind


def group_graph(
    graph: Graph, limits: FusionLimits | None = None, is_native: IsNative | None = None
) -> tuple[Group, ...]:
    """The groups of a graph in topological order (its subgraphs have their own). ``is_native`` false: a host node."""
    return group_with_reasons(graph, limits, is_native)[0]


def group_with_reasons(
    graph: Graph, limits: FusionLimits | None = None, is_native: IsNative | None = None
) -> tuple[tuple[Group, ...], tuple[FusionRefusal, ...]]:
    """The groups, and every pair of neighbours that stayed apart."""
    fuser = _Fuser(graph, limits or FusionLimits(), is_native)
    fuser.run()
    return fuser.groups(), tuple(dict.fromkeys(fuser.refusals))


def shape_only_nodes(graph: Graph, is_native: IsNative | None = None, early: Collection[str] = ()) -> frozenset[str]:
    """Names of nodes that nothing reads: all their readers are kernels that take known elements (of operands in
    ``OpDef.shape_operands``), or nodes in ``early`` that take shapes.

    A node whose sizes only running it tells is needed where those sizes are.
    """
    needed: set[str] = set(graph.outputs)
    sizes: set[str] = set()
    skipped: set[str] = set()
    for n in reversed(graph.nodes):
        if not any(o in needed for o in n.outputs) and sizes.isdisjoint(_symbols_made(n, graph.values)):
            skipped.add(n.name)
            continue
        for name in (*n.inputs, *n.outputs):
            if name in graph.values:
                sizes |= value_symbols(graph.values[name])
        if op_def(n).queries_shape and n.name in early:
            continue
        by_value = () if is_sized(n, graph.values) else op_def(n).shape_operands
        if by_value and kind_in(graph, n, is_native) is PatternKind.HOST:
            by_value = ()
        for k, i in enumerate(n.inputs):
            v = graph.values.get(i)
            if i and not (k in by_value and v is not None and v.data is not None):
                needed.add(i)
        for _, g in n.subgraphs():
            needed.update(node_reads_of(g))
            sizes |= {s for inner in walk_graphs(g) for s in symbols_in(inner.values)}
    return frozenset(skipped)


def _symbols_made(node: Node, values: Mapping[str, Value]) -> set[str]:
    if not any(o in values and value_symbols(values[o]) for o in node.outputs):
        return set()
    return new_symbols(node, values)


def node_reads_of(graph: Graph) -> set[str]:
    """Every name that a subgraph's nodes and outputs mention."""
    return {i for n in graph.nodes for i in node_reads(n)} | set(graph.outputs)


def _keeps_rows(node: Node) -> bool:
    """True for a Transpose whose last axis stays last: rows move as a whole, so stores stay contiguous."""
    perm = node.attr("perm")
    return node.op == "Transpose" and isinstance(perm, tuple) and len(perm) > 0 and perm[-1] == len(perm) - 1


def _is_alone(op: OpDef) -> bool:
    """True for what copies one tensor from or to any number of others (Concat, Split)."""
    return op.kind is PatternKind.INJECTIVE and (op.max_inputs is None or op.max_outputs is None)


class _Fuser:
    def __init__(self, graph: Graph, limits: FusionLimits, is_native: IsNative | None) -> None:
        self.graph = graph
        self.outputs = frozenset(graph.outputs)
        self.limits = limits
        early = early_sizes(graph)
        self.early = early.sized
        skipped = shape_only_nodes(graph, is_native, early.nodes) | set(early.nodes)
        self.nodes = [n for n in graph.nodes if n.name not in skipped]
        self.defs = [op_def(n) for n in self.nodes]
        self.kinds = [kind_in(graph, n, is_native) for n in self.nodes]
        self.place = {o: k for k, n in enumerate(self.nodes) for o in n.outputs if o}
        made = {n.name for n in self.nodes} | set(early.nodes)
        self.unmade = {o for n in graph.nodes if n.name not in made for o in n.outputs}
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for k, n in enumerate(self.nodes):
            for i in dict.fromkeys(node_reads(n)):
                if i in self.place:
                    self.readers[self.place[i]].append(k)
        self.group_of = list(range(len(self.nodes)))
        self.members: dict[int, list[int]] = {k: [k] for k in range(len(self.nodes))}
        self.after = self._post_dominators()
        self.refusals: list[FusionRefusal] = []
        self.halos: dict[int, tuple[int, ...]] = {}

    # -- post-dominators -----------------------------------------------------------------------------------------
    def _post_dominators(self) -> list[int | None]:
        """The immediate post-dominator of each node; None for the exit (a graph output, or no common one)."""
        after: list[int | None] = [None] * len(self.nodes)
        depth = [1] * len(self.nodes)
        for k in range(len(self.nodes) - 1, -1, -1):
            if any(o in self.outputs for o in self.nodes[k].outputs) or not self.readers[k]:
                continue
            common: int | None = self.readers[k][0]
            for r in self.readers[k][1:]:
                other: int | None = r
                while common != other:
                    if common is None or other is None:
                        common = None
                        break
                    if depth[common] >= depth[other]:
                        common = after[common]
                    else:
                        other = after[other]
                if common is None:
                    break
            after[k] = common
            depth[k] = 1 if common is None else depth[common] + 1
        return after

    # -- merging -------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Anchors take what follows them; then elementwise chains join; then what comes before joins an anchor; then
        pairs of anchors join."""
        order = range(len(self.nodes))
        for k in order:
            if self.kinds[k] in _ANCHORS:
                self._grow(k)
        for k in order:
            if self.kinds[k] in _PLAIN:
                self._grow(k)
        for k in order:
            if self.nodes[k].op == "Conv":
                self._join_producer(k)

    def _grow(self, k: int) -> None:
        """Joins the group of ``k`` with its post-dominator as often as that is allowed."""
        while True:
            group = self.group_of[k]
            last = max(self.members[group])
            target = self.after[last]
            if target is None:
                self._note_exit(last)
                return
            between = self._between(last, target)
            many = len(between) >= self.limits.max_nodes
            reason = self._too_many() if many else self._refusal(group, between)
            if reason is not None:
                if reason:
                    self.refusals.append(FusionRefusal(self.nodes[last].name, self.nodes[target].name, reason))
                return
            self._merge({group} | {self.group_of[b] for b in between})

    def _note_exit(self, last: int) -> None:
        node = self.nodes[last]
        if any(o in self.outputs for o in node.outputs) or not self.readers[last]:
            return
        self.refusals.append(FusionRefusal(node.name, "its readers", "its readers do not meet again in one node"))

    def _between(self, source: int, target: int) -> list[int]:
        """Nodes on paths from ``source`` to ``target``, without the source; too many for a group are not all there."""
        found = {target}
        todo = list(self.readers[source])
        while todo and len(found) < self.limits.max_nodes:
            k = todo.pop()
            if k not in found:
                found.add(k)
                todo.extend(r for r in self.readers[k] if r <= target)
        return sorted(found)

    def _refusal(self, group: int, between: Sequence[int]) -> str | None:
        """Why ``group`` cannot take the nodes ``between`` (with their groups); "" for reasons not worth a word."""
        joined = {group} | {self.group_of[b] for b in between}
        nodes = sorted(m for g in joined for m in self.members[g])
        for b in between:
            kind = self.kinds[b]
            if kind in (PatternKind.HOST, PatternKind.CONTROL):
                return "it runs on the host"
            if kind is PatternKind.VIEW:
                return "" if len(between) == 1 else "a view lies between"
            if _is_alone(self.defs[b]):
                return f"{self.nodes[b].op} is a kernel of its own"
            if self.nodes[b].name not in self.early and is_sized(self.nodes[b], self.graph.values):
                return f"the size of the result of {self.nodes[b].op} depends on its operands"
        if any(_is_alone(self.defs[m]) for m in self.members[group]):
            return ""
        anchors = [m for m in nodes if self.kinds[m] in _ANCHORS]
        if len(anchors) > 1:
            return f"{self.nodes[anchors[0]].op} and {self.nodes[anchors[1]].op} cannot share a kernel"
        if len(nodes) > self.limits.max_nodes:
            return self._too_many()
        if len(self._inputs(nodes)) > self.limits.max_inputs:
            return f"more than {self.limits.max_inputs} inputs"
        repeated = self._repeated(nodes)
        if repeated is not None:
            return f"{self.nodes[repeated].op} would be repeated for each element that it is broadcast to"
        return self._around_anchor(anchors[0], nodes) if anchors else None

    def _too_many(self) -> str:
        return f"more than {self.limits.max_nodes} nodes"

    def _around_anchor(self, anchor: int, nodes: Sequence[int]) -> str | None:
        node, kind = self.nodes[anchor], self.kinds[anchor]
        before = self._before(anchor, nodes)
        behind = [m for m in nodes if m != anchor and m not in before]
        if len(node.outputs) > 1 and any(o and self._is_read(o) for o in node.outputs[1:]) and behind:
            return f"{node.op} has several outputs"
        sizes = [self._shape(node.outputs[0])]
        for m in behind:
            n = self.nodes[m]
            scattered = kind is not PatternKind.REDUCTION and not self.limits.injective_epilogue
            crops = node.op == "Resize" and n.op == "Slice"
            if self.kinds[m] is PatternKind.INJECTIVE and scattered and not crops and not _keeps_rows(n) and (
                self._depends(m, anchor, nodes)
            ):
                return f"{n.op} after {node.op} would scatter its stores"
            if crops:
                sizes.append(self._shape(n.outputs[0]))
            grows = self.kinds[m] is PatternKind.BROADCAST and self._shape(n.outputs[0]) not in sizes
            if grows and self._depends(m, anchor, nodes):
                return f"{n.op} makes the result of {node.op} larger"
        return self._prologue_refusal(node, kind, before)

    def _prologue_refusal(self, node: Node, kind: PatternKind, before: Sequence[int]) -> str | None:
        if not before:
            return None
        if len(before) > self.limits.max_prologue:
            return f"more than {self.limits.max_prologue} nodes before {node.op}"
        op = op_def(node)
        ops = [self.defs[m] for m in before]
        odd = [d.name for d in ops if d.cost is not ElementCost.LOAD]
        if op.window:
            return f"{node.op} reads each element many times"
        if kind is PatternKind.OUT_FUSABLE:
            return f"{node.op} reads each element many times, so {odd[0]} would be repeated" if odd else None
        if kind is PatternKind.OPAQUE:
            if node.op == "Resize":
                if odd or self._is_enlarged(node):
                    return f"{node.op} reads each element several times, so {[*odd, ops[0].name][0]} would be repeated"
                return None
            if not op.rowwise:
                return f"{node.op} reads each element several times"
            costly = [d.name for d in ops if d.cost is ElementCost.EXPENSIVE]
            return f"{node.op} reads each element several times, so {costly[0]} would be repeated" if costly else None
        return None

    def _is_enlarged(self, node: Node) -> bool:
        """True if some dimension of the node's result is known to be longer than its operand's."""
        dims = zip(self._shape(node.inputs[0]) or (), self._shape(node.outputs[0]) or (), strict=False)
        return any(is_nonneg(m - n - 1, {}) for n, m in dims)

    def _before(self, anchor: int, nodes: Sequence[int]) -> list[int]:
        """Members on which the anchor depends."""
        inside = set(nodes)
        found: set[int] = set()
        todo = [anchor]
        while todo:
            for i in node_reads(self.nodes[todo.pop()]):
                p = self.place.get(i)
                if p is not None and p in inside and p not in found:
                    found.add(p)
                    todo.append(p)
        return sorted(found)

    def _depends(self, m: int, anchor: int, nodes: Sequence[int]) -> bool:
        return anchor in self._before(m, nodes)

    def _merge(self, groups: set[int]) -> None:
        keep = min(groups)
        for g in sorted(groups - {keep}):
            for m in self.members.pop(g):
                self.group_of[m] = keep
                self.members[keep].append(m)

    def _join_producer(self, window: int) -> None:
        """Joins the group of a depthwise convolution with that of the convolution whose result it reads."""
        source = self.place.get(self.nodes[window].inputs[0])
        if source is None or self.readers[source] != [window] or min(self.members[self.group_of[window]]) != window:
            return
        before = self.members[self.group_of[source]]
        anchors = [m for m in before if self.kinds[m] in _ANCHORS]
        if len(anchors) != 1 or max(before) != source or self.nodes[source].outputs[0] in self.outputs:
            return
        if any(self.defs[m].cost is ElementCost.EXPENSIVE for m in before):
            return  # computed again where bands of rows overlap, and under a test for the border
        halo = halo_between(self.graph, self.nodes[anchors[0]], self.nodes[window], self.limits.kept_bytes)
        joined = [*before, *self.members[self.group_of[window]]]
        if halo is None or len(joined) > self.limits.max_nodes or len(self._inputs(joined)) > self.limits.max_inputs:
            return
        self.halos[anchors[0]] = halo
        names = {self.nodes[source].name, self.nodes[window].name}
        self.refusals = [r for r in self.refusals if {r.node, r.into} != names]
        self._merge({self.group_of[source], self.group_of[window]})

    # -- facts ---------------------------------------------------------------------------------------------------
    def _shape(self, name: str) -> Shape | None:
        v = self.graph.values.get(name)
        return v.type.shape if v is not None and isinstance(v.type, TensorType) else None

    def _repeated(self, nodes: Sequence[int]) -> int | None:
        """An expensive member whose result is broadcast by another member that is not an anchor."""
        inside = set(nodes)
        for m in nodes:
            if self.defs[m].cost is not ElementCost.EXPENSIVE or self.kinds[m] in _ANCHORS:
                continue
            for r in self.readers[m]:
                if r not in inside or self.kinds[r] is not PatternKind.BROADCAST:
                    continue
                if self._shape(self.nodes[r].outputs[0]) != self._shape(self.nodes[m].outputs[0]):
                    return m
        return None

    def _is_read(self, name: str) -> bool:
        return name in self.outputs or any(name in self.nodes[r].inputs for r in self.readers[self.place[name]])

    def _inputs(self, nodes: Sequence[int]) -> tuple[str, ...]:
        inside = {o for m in nodes for o in self.nodes[m].outputs}
        reads = (i for m in nodes for i in node_reads(self.nodes[m]))
        return tuple(dict.fromkeys(i for i in reads if i not in inside and i not in self.unmade))

    def groups(self) -> tuple[Group, ...]:
        """The result; a group stands where its last node stood."""
        reads = [frozenset(node_reads(n)) for n in self.nodes]
        out = []
        for members in sorted(self.members.values(), key=max):
            members = sorted(members)
            nodes = tuple(
                self.nodes[m].with_attrs(**{HALO: self.halos[m]}) if m in self.halos else self.nodes[m] for m in members
            )
            inside = set(members)
            leaving = tuple(
                o
                for m in members
                for o in self.nodes[m].outputs
                if o and (o in self.outputs or any(o in reads[r] for r in self.readers[m] if r not in inside))
            )
            leaving = leaving or tuple(filter(None, nodes[-1].outputs))  # run for the sizes that it tells alone
            out.append(Group(nodes[-1].name, nodes, self._inputs(members), leaving, self._kind(members)))
        return tuple(out)

    def _kind(self, members: Sequence[int]) -> PatternKind:
        order = list(PatternKind)
        kinds = [self.kinds[m] for m in members]
        for k in kinds:
            if k in _ANCHORS:
                return k
        return max(kinds, key=order.index)
