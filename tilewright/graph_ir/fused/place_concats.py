"""The operands of a Concat are written by the kernels that compute them straight into their part of the result.

Operands that cannot be are copied there. Concats of a run of what a larger Concat joins are parts of that one's result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.core.arith.expr import IntExpr
from tilewright.graph_ir.fused.placement import Placement
from tilewright.graph_ir.fused.shape_program import SIZES
from tilewright.graph_ir.ir import Graph, Group, Node, SubView
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext


def place_concats(graph: Graph, ctx: PassContext) -> Graph:
    """The fused graph with the operands of Concats in their results."""
    p = Placement(graph, ctx)
    for group in reversed(p.groups):
        if len(group.nodes) == 1 and group.nodes[0].op == "Concat" and group.runs_as is RunsAs.KERNEL:
            _join(p, group)
    return p.result()


def _join(p: Placement, group: Group) -> None:
    """Place the operands of a Concat in its result, and copy those that cannot be."""
    (node,), (out,) = group.nodes, group.outputs
    shape = p.values[out].shape
    axis = _axis(node, len(shape))
    if any(i not in p.values for i in node.inputs):
        return
    starts = _starts([p.values[i].shape for i in node.inputs], shape, axis)
    if starts is None:
        return
    placed = dataclasses.replace(group, runs_as=RunsAs.PLACED)
    if _is_run(p, node, out, axis, starts):
        place = p.values[node.inputs[0]].place
        if place is not None:
            p.place(out, place)
        p.replace(group, placed)
        p.ctx.log.fire("place_concats", node.name)
        return
    movable = [p.is_movable(i) and node.inputs.count(i) == 1 for i in node.inputs]
    if not any(movable) or node.attr(SIZES) is not None:
        p.ctx.log.refuse("place_concats", node.name, "no operand is written and read by kernels alone")
        return
    pieces = []
    for k, (i, may_move, start) in enumerate(zip(node.inputs, movable, starts, strict=True)):
        piece = i
        if not may_move:
            piece = p.ctx.names.fresh(f"{out}.piece{k}")
            p.add(piece, i, p.values[i].shape)
            p.copy(i, piece, group)
        p.place(piece, SubView(out, tuple(start if d == axis else 0 for d in range(len(shape)))))
        pieces.append(piece)
    joined = dataclasses.replace(node, inputs=tuple(pieces))
    p.replace(group, dataclasses.replace(placed, nodes=(joined,), inputs=tuple(pieces)))
    p.ctx.log.fire("place_concats", node.name)


def _is_run(p: Placement, node: Node, out: str, axis: int, starts: Sequence[int]) -> bool:
    """True if the operands already lie side by side, in order, in another value that ``out`` may be part of."""
    places = [p.values[i].place for i in node.inputs]
    first = places[0]
    if first is None or not p.is_movable(out):
        return False
    wanted = [tuple(o + s if d == axis else o for d, o in enumerate(first.offsets)) for s in starts]
    return places == [SubView(first.root, w) for w in wanted]


def _axis(node: Node, rank: int) -> int:
    axis = node.attr("axis", 0)
    return axis % rank if isinstance(axis, int) and rank else 0


def _starts(parts: Sequence[tuple[IntExpr, ...]], shape: tuple[IntExpr, ...], axis: int) -> list[int] | None:
    """Where each part begins along ``axis``; None unless that is constant and the parts agree in all other dims."""
    starts, at = [], 0
    for part in parts:
        size = part[axis].value() if len(part) == len(shape) and shape else None
        if size is None or any(p != s for d, (p, s) in enumerate(zip(part, shape, strict=True)) if d != axis):
            return None
        starts.append(at)
        at += size
    return starts if at == shape[axis].value() else None


PLACE_CONCATS = Pass("place_concats", Level.NONE, Exactness.BIT_EXACT, place_concats)
