"""Fusion: which nodes become one kernel. Groups by pattern kind and post-dominators, in the way of TVM's FuseOps.

A node is joined with its immediate post-dominator (the first node through which everything that depends on it must
pass) together with all nodes between the two, when the result is one anchor (matmul, convolution, reduction, norm, ...)
with elementwise nodes around it, or no anchor at all, or two of :mod:`.fuse_pointwise_depthwise`. Only the last node's
outputs leave such a group, so nothing is computed twice and groups cannot depend on each other in a circle. Whatever is
not joined is recorded with the reason.

Nodes that run once or never (:mod:`.shape_program`, :mod:`.partition`) are in no group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import is_nonneg
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO, halo_between
from tilewright.graph_ir.fused.partition import pattern_kind
from tilewright.graph_ir.fused.shape_program import RUNS, SIZES
from tilewright.graph_ir.ir import Graph, Group, Node, Shape, TensorType, node_reads
from tilewright.graph_ir.kinds import ElementCost, PatternKind, RunsAs
from tilewright.graph_ir.ops import OpDef, op_def
from tilewright.graph_ir.passes.base import Backend, Exactness, Level, Pass, PassContext, visible_values
from tilewright.machine.costs import GENERIC

_ANCHORS = frozenset({PatternKind.REDUCTION, PatternKind.OUT_FUSABLE, PatternKind.OPAQUE})
_PLAIN = frozenset({PatternKind.BROADCAST, PatternKind.INJECTIVE})


_MAX_NODES = 20


@dataclass(frozen=True, slots=True)
class FusionLimits:
    """Bounds of a group.

    ``injective_epilogue``: any Transpose or Slice may follow a matmul or convolution, not only those that leave the
    last axis in place. ``join_pairs``: pairs of convolutions may share a kernel. ``kept_bytes``: see
    :class:`~tilewright.machine.costs.Costs`.
    """

    max_nodes: int = _MAX_NODES
    max_inputs: int = 12
    max_prologue: int = 6
    injective_epilogue: bool = False
    join_pairs: bool = True
    kept_bytes: int = GENERIC.kept_bytes


@dataclass(frozen=True, slots=True)
class FusionRefusal:
    """Two nodes that stay apart, and why."""

    node: str
    into: str
    reason: str

    def __str__(self) -> str:
        return f"not fused {self.node} with {self.into}: {self.reason}"


def fuse(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with groups: each node that runs in one, joined with others unless the rule ``fuse`` is disabled."""
    alone = "fuse" in ctx.disabled
    pairs = "fuse_pointwise_depthwise" not in ctx.disabled
    limits = FusionLimits(max_nodes=1 if alone else _MAX_NODES, join_pairs=pairs, kept_bytes=ctx.costs.kept_bytes)
    whole = graph.replace(values=visible_values(graph, ctx))
    groups, refusals = group_with_reasons(whole, limits)
    for g in groups:
        if len(g.nodes) > 1:
            ctx.log.fire("fuse", g.name)
    for r in () if alone else refusals:
        ctx.log.refuse("fuse", r.node, f"with {r.into}: {r.reason}")
    if ctx.backend is not None:
        groups = tuple(_with_checked(g, whole, ctx.backend) for g in groups)
    return graph.with_groups(groups)


def group_with_reasons(
    graph: Graph, limits: FusionLimits | None = None
) -> tuple[tuple[Group, ...], tuple[FusionRefusal, ...]]:
    """The groups of a partitioned graph in the order in which they run, and every pair of neighbours kept apart."""
    fuser = _Fuser(graph, limits or FusionLimits())
    fuser.run()
    return fuser.groups(), tuple(dict.fromkeys(fuser.refusals))


def _with_checked(group: Group, graph: Graph, backend: Backend) -> Group:
    """The group, with indices that it computes itself among what it gives, so that they can be looked at."""
    if group.runs_as is not RunsAs.KERNEL:
        return group
    inside = {o for n in group.nodes for o in n.outputs}
    read = (v for n in group.nodes for v in backend.checked_indices(n, graph.values, graph.constants) if v in inside)
    more = tuple(v for v in dict.fromkeys(read) if v not in group.outputs)
    return dataclasses.replace(group, outputs=(*group.outputs, *more)) if more else group


def _keeps_rows(node: Node) -> bool:
    """True for a Transpose whose last axis stays last: rows move as a whole, so stores stay contiguous."""
    perm = node.attr("perm")
    return node.op == "Transpose" and isinstance(perm, tuple) and len(perm) > 0 and perm[-1] == len(perm) - 1


def _is_repeated(anchor: Node) -> bool:
    """True if few elements of the result of ``anchor`` may be made again: those that a border mirrors."""
    return op_def(anchor).ends_elementwise or (anchor.op == "Resize" and anchor.attr("mode", "nearest") == "nearest")


def _is_alone(op: OpDef) -> bool:
    """True for what copies one tensor from or to any number of others (Concat, Split)."""
    return op.kind is PatternKind.INJECTIVE and (op.max_inputs is None or op.max_outputs is None)


class _Fuser:
    def __init__(self, graph: Graph, limits: FusionLimits) -> None:
        self.graph = graph
        self.outputs = frozenset(graph.outputs)
        self.limits = limits
        self.nodes = [n for n in graph.nodes if n.attr(RUNS) is None]
        self.defs = [op_def(n) for n in self.nodes]
        self.kinds = [pattern_kind(n) for n in self.nodes]
        self.place = {o: k for k, n in enumerate(self.nodes) for o in n.outputs if o}
        self.unmade = {o for n in graph.nodes if n.attr(RUNS) == "never" for o in n.outputs}
        self.readers: list[list[int]] = [[] for _ in self.nodes]
        for k, n in enumerate(self.nodes):
            for i in dict.fromkeys(node_reads(n)):
                if i in self.place:
                    self.readers[self.place[i]].append(k)
        self.group_of = {k: k for k in range(len(self.nodes))}
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
        """Anchors take what follows them, but for last nodes that only widen; then elementwise chains join; then what
        comes before joins an anchor; then pairs of anchors join."""
        order = range(len(self.nodes))
        anchors = [k for k in order if self.kinds[k] in _ANCHORS]
        for k in anchors:
            self._grow(k)
        for k in anchors:
            self._leave_to_reader(k)
        for k in order:
            if self.kinds[k] in _PLAIN:
                self._grow(k)
        for k in order:
            if self.nodes[k].op == "Conv" and self.limits.join_pairs:
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

    def _leave_to_reader(self, anchor: int) -> None:
        """Gives the last nodes to the group of their reader, if that can take them, where they make elements wider (a
        Cast, a DequantizeLinear, and what scales its result): what is stored between the two has fewer bytes."""
        group = self.group_of[anchor]
        members = sorted(self.members[group])
        tail, target = self._widening(members), self.after[members[-1]]
        if not tail or target is None:
            return
        own, between = tail[0], self._between(members[-1], target)
        self.members[group], self.members[own] = [m for m in members if m not in tail], tail
        self.group_of.update(dict.fromkeys(tail, own))
        if len(between) < self.limits.max_nodes and self._refusal(own, between) is None:
            self._merge({own} | {self.group_of[b] for b in between})
        else:
            self._merge({group, own})

    def _widening(self, members: Sequence[int]) -> list[int]:
        """The last of these nodes, from behind the one whose result has the fewest bits, where each changes the result
        of the one before it element by element, and nothing else reads that; none if the last has as few."""
        chain, bits, found = [members[-1]], [self._bits(members[-1])], 0
        for before in reversed(members[:-1]):
            if self._changed(chain[-1]) != before or self.readers[before] != [chain[-1]]:
                break
            if self._bits(before) < min(bits):
                found = len(chain)
            chain.append(before)
            bits.append(self._bits(before))
        return sorted(chain[:found])

    def _changed(self, m: int) -> int | None:
        """The node whose only result ``m`` changes element by element, if that is all that it reads of other nodes."""
        node = self.nodes[m]
        made = [i for i in node.inputs if i in self.place]
        if self.kinds[m] is not PatternKind.BROADCAST or len(made) != 1 or len(node.outputs) != 1:
            return None
        alike = self._shape(made[0]) == self._shape(node.outputs[0])
        return self.place[made[0]] if alike and len(self.nodes[self.place[made[0]]].outputs) == 1 else None

    def _bits(self, m: int) -> int:
        """Of an element of the node's result, the most if it has several; 0 if none has elements."""
        values = (self.graph.values.get(o) for o in self.nodes[m].outputs)
        return max((v.dtype.bits for v in values if v is not None and isinstance(v.type, TensorType)), default=0)

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
            if self.nodes[b].attr(SIZES) == "late":
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
            if (
                self.kinds[m] is PatternKind.INJECTIVE
                and scattered
                and not crops
                and not _keeps_rows(n)
                and not (_is_repeated(node) and self._pads_rows(n))
                and (self._depends(m, anchor, nodes))
            ):
                return f"{n.op} after {node.op} would scatter its stores"
            if crops:
                sizes.append(self._shape(n.outputs[0]))
            grows = self.kinds[m] is PatternKind.BROADCAST and self._shape(n.outputs[0]) not in sizes
            if grows and self._depends(m, anchor, nodes):
                return f"{n.op} makes the result of {node.op} larger"
        return self._prologue_refusal(node, kind, before)

    def _pads_rows(self, node: Node) -> bool:
        """True for a Pad that adds whole rows: nothing along the last axis."""
        pads = self.graph.constants.get(node.inputs[1]) if node.op == "Pad" and len(node.inputs) > 1 else None
        if pads is None or any(node.inputs[3:]):
            return False
        begin, end = pads.array.reshape(2, -1)
        return not begin[-1] and not end[-1]

    def _prologue_refusal(self, node: Node, kind: PatternKind, before: Sequence[int]) -> str | None:
        if not before:
            return None
        if len(before) > self.limits.max_prologue:
            return f"more than {self.limits.max_prologue} nodes before {node.op}"
        op = op_def(node)
        if op.reads_once:
            return None
        ops = [self.defs[m] for m in before]
        odd = [d.name for d in ops if d.cost is not ElementCost.LOAD]
        if op.window:
            return f"{node.op} reads each element many times"
        if kind is PatternKind.OUT_FUSABLE:
            odd += [d.name for m, d in zip(before, ops, strict=True) if self._rounds(m)]
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

    def _rounds(self, m: int) -> bool:
        """True for a Cast to fewer bits."""
        node = self.nodes[m]
        if node.op != "Cast":
            return False
        source, to = (self.graph.values[x].dtype for x in (node.inputs[0], node.outputs[0]))
        return to.is_float and to.bits < source.bits

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
            out.append(Group(nodes[-1].name, nodes, self._inputs(members), leaving, self._runs_as(members)))
        return tuple(out)

    def _runs_as(self, members: Sequence[int]) -> RunsAs:
        return _RUNS_AS.get(self.kinds[members[0]], RunsAs.KERNEL) if len(members) == 1 else RunsAs.KERNEL


_RUNS_AS = {
    PatternKind.VIEW: RunsAs.VIEW, PatternKind.HOST: RunsAs.HOST, PatternKind.CONTROL: RunsAs.CONTROL,
}  # fmt: skip

FUSE = Pass(
    "fuse_groups", Level.NONE, Exactness.BIT_EXACT, fuse, rules=("fuse", "fuse_pointwise_depthwise"), required=True
)
