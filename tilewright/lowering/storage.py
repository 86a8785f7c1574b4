"""Values that live inside a larger one: what a Concat joins, and what a convolution reads with zeros around it.

The pieces of a Concat are written by the kernels that compute them straight into their part of the result, and the
operand of a padded convolution into the middle of a buffer whose border is filled with zeros; neither is copied. A
value is placed inside another when native kernels alone write and read it. Kernels see it through a :class:`Window`.
Concats of a run of what a larger Concat joins are windows of that one's result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.fusion import Group
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, make_attrs
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.run_time_sizes import is_sized_by_operands

_NOT_KERNELS = frozenset({PatternKind.VIEW, PatternKind.HOST, PatternKind.CONTROL})


@dataclass(frozen=True, slots=True)
class Window:
    """Where a value lies: element ``i`` of it is element ``i + offsets`` of ``root``."""

    root: str
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Storage:
    """``windows`` by value. ``groups``: the groups to lower, Concats whose pieces are in place taken out and padded
    operands replaced. ``values``: the types of what was added. ``padded``: values whose border must be zero before
    they are read, with the position and shape of what they hold."""

    groups: tuple[Group, ...]
    windows: Mapping[str, Window]
    values: Mapping[str, Value]
    padded: Mapping[str, tuple[tuple[int, ...], tuple[IntExpr, ...]]]


def plan_storage(graph: Graph, groups: Sequence[Group], values: Mapping[str, Value], own: Collection[str]) -> Storage:
    """Decide which values live inside others. ``own``: values with storage of their own (outputs, captured ones)."""
    planner = _Planner(graph, groups, dict(values), own)
    for group in reversed(groups):
        if len(group.nodes) == 1 and group.nodes[0].op == "Concat" and group.kind not in _NOT_KERNELS:
            planner.join(group)
    for x in planner.padded_operands():
        planner.pad(x)
    return planner.result()


@dataclass
class _Planner:
    graph: Graph
    groups: Sequence[Group]
    values: dict[str, Value]
    own: Collection[str]
    windows: dict[str, Window] = field(default_factory=dict)
    added: dict[str, Value] = field(default_factory=dict)
    borders: dict[str, tuple[tuple[int, ...], tuple[IntExpr, ...]]] = field(default_factory=dict)
    replaced: dict[tuple[str, ...], tuple[Group, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.makers = {o: g for g in self.groups for o in g.outputs}
        self.readers: dict[str, list[Group]] = {}
        for g in self.groups:
            for i in g.inputs:
                self.readers.setdefault(i, []).append(g)

    # -- what may be placed -----------------------------------------------------------------------------------------
    def is_movable(self, name: str) -> bool:
        """True if only native kernels write and read the value, and its size is known before they run."""
        maker = self.makers.get(name)
        if maker is None or maker.kind in _NOT_KERNELS or name in self.own or name in self.windows:
            return False
        readers = self.readers.get(name, ())
        if any(g.kind in _NOT_KERNELS for g in readers):
            return False
        if any(name in n.inputs and is_sized_by_operands(n, self.values) for g in readers for n in g.nodes):
            return False  # the host reads it, to find sizes
        v = self.values[name]
        typed = isinstance(v.type, TensorType) and v.type.shape is not None and v.type.dtype.kind not in "sc"
        return typed and v.data is None and not any(is_sized_by_operands(n, self.values) for n in maker.nodes)

    # -- concat -----------------------------------------------------------------------------------------------------
    def join(self, group: Group) -> None:
        """Place the operands of a Concat in its result, and copy those that cannot be."""
        (node,), (out,) = group.nodes, group.outputs
        shape = self.values[out].shape
        axis = _axis(node, len(shape))
        starts = _starts([self.values[i].shape for i in node.inputs], shape, axis)
        if starts is None or any(i not in self.values for i in node.inputs):
            return
        if self._is_run(node, out, axis, starts):
            first = self.windows[node.inputs[0]]
            self.windows[out] = first
            self.replaced[group.outputs] = ()
            return
        placed = [self.is_movable(i) and node.inputs.count(i) == 1 for i in node.inputs]
        if not any(placed) or self._is_sized_late(node):
            return
        copies: list[Group] = []
        for k, (i, movable, start) in enumerate(zip(node.inputs, placed, starts, strict=True)):
            offsets = tuple(start if d == axis else 0 for d in range(len(shape)))
            piece = i
            if not movable:
                piece = f"{out}.piece{k}"
                copy = Node("Identity", (i,), (piece,), make_attrs({}), f"{node.name}.{k}")
                self._add(piece, i, self.values[i].shape)
                copies.append(Group(copy.name, (copy,), (i,), (piece,), PatternKind.INJECTIVE))
            self.windows[piece] = Window(out, offsets)
        self.replaced[group.outputs] = tuple(copies)

    def _is_run(self, node: Node, out: str, axis: int, starts: Sequence[int]) -> bool:
        """True if the operands already lie side by side, in order, in another value that ``out`` may be part of."""
        places = [self.windows.get(i) for i in node.inputs]
        if not self.is_movable(out):
            return False
        first = places[0]
        if first is None:
            return False
        wanted = [tuple(o + s if d == axis else o for d, o in enumerate(first.offsets)) for s in starts]
        return places == [Window(first.root, w) for w in wanted]

    def _is_sized_late(self, node: Node) -> bool:
        return is_sized_by_operands(node, self.values)

    # -- padding ----------------------------------------------------------------------------------------------------
    def padded_operands(self) -> Iterable[str]:
        """The values that some convolution reads with zeros around them, in order."""
        return dict.fromkeys(g.nodes[0].inputs[0] for g in self.groups if _pads(g, self.values) is not None)

    def pad(self, x: str) -> None:
        """Place ``x`` in a larger value with a border for the convolutions that read it."""
        if not self.is_movable(x):
            return
        readers = [g for g in self.readers[x] if g.nodes[0].inputs[:1] == (x,)]
        users = [(g, p) for g in readers if (p := _pads(g, self.values)) is not None]
        rank = len(users[0][1]) // 2
        border = tuple(max(p[d] for _, p in users) for d in range(2 * rank))
        shape = self.values[x].shape
        root = f"{x}.padded"
        begin = (0, *border[:rank], 0)
        self._add(root, x, _grown(shape, border))
        self.windows[x] = Window(root, begin)
        self.borders[root] = begin, shape
        for group, pads in users:
            source = root
            if pads != border:
                source = f"{x}.padded.{'.'.join(map(str, pads))}"
                self._add(source, x, _grown(shape, pads))
                inner = (b - p for b, p in zip(border[:rank], pads[:rank], strict=True))
                self.windows[source] = Window(root, (0, *inner, 0))
            self.replaced[group.outputs] = (_reading(group, x, source),)

    def _add(self, name: str, like: str, shape: tuple[IntExpr, ...]) -> None:
        value = Value(name, TensorType(self.values[like].dtype, shape))
        self.values[name] = self.added[name] = value

    # -- result -----------------------------------------------------------------------------------------------------
    def result(self) -> Storage:
        groups = tuple(g for group in self.groups for g in self.replaced.get(group.outputs, (group,)))
        return Storage(groups, {n: self._resolved(w) for n, w in self.windows.items()}, self.added, self.borders)

    def _resolved(self, w: Window) -> Window:
        """``w`` in a value that lies in no other."""
        while (outer := self.windows.get(w.root)) is not None:
            w = Window(outer.root, tuple(a + b for a, b in zip(w.offsets, outer.offsets, strict=True)))
        return w


def _axis(node: Node, rank: int) -> int:
    axis = node.attr("axis", 0)
    return axis % rank if isinstance(axis, int) and rank else 0


def _starts(
    parts: Sequence[tuple[IntExpr, ...]], shape: tuple[IntExpr, ...], axis: int
) -> list[int] | None:
    """Where each part begins along ``axis``; None unless that is constant and the parts agree in all other dims."""
    starts, at = [], 0
    for part in parts:
        size = part[axis].value() if len(part) == len(shape) and shape else None
        if size is None or any(p != s for d, (p, s) in enumerate(zip(part, shape, strict=True)) if d != axis):
            return None
        starts.append(at)
        at += size
    return starts if at == shape[axis].value() else None


def _pads(group: Group, values: Mapping[str, Value]) -> tuple[int, ...] | None:
    """The padding of the convolution that a group begins with, if it reads channels-last and nothing else does so."""
    node = group.nodes[0]
    x = node.inputs[0] if node.inputs else ""
    pads = node.attr("pads")
    if node.op != "Conv" or node.domain or group.kind in _NOT_KERNELS or x not in group.inputs:
        return None
    if node.attr("data_layout", "NCHW") != "NHWC" or node.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    if not isinstance(pads, tuple) or not any(pads) or any(not isinstance(p, int) or p < 0 for p in pads):
        return None
    if sum(n.inputs.count(x) for n in group.nodes) != 1 or len(pads) != 2 * (len(values[x].shape) - 2):
        return None
    return tuple(int(p) for p in pads)


def _grown(shape: tuple[IntExpr, ...], pads: Sequence[int]) -> tuple[IntExpr, ...]:
    rank = len(pads) // 2
    inner = [d + const(pads[k] + pads[rank + k]) for k, d in enumerate(shape[1:-1])]
    return (shape[0], *inner, shape[-1])


def _reading(group: Group, x: str, source: str) -> Group:
    """The group with its convolution reading ``source``, which holds the padding."""
    conv = group.nodes[0]
    attrs = {k: v for k, v in conv.attrs if k != "pads"}
    unpadded = dataclasses.replace(conv, inputs=(source, *conv.inputs[1:]), attrs=make_attrs(attrs))
    inputs = tuple(source if i == x else i for i in group.inputs)
    return dataclasses.replace(group, nodes=(unpadded, *group.nodes[1:]), inputs=inputs)
