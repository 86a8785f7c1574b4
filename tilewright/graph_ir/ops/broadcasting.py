"""Operands that broadcast, dim by dim: what rules say of them, and which of their dims have to be repeated.

Where dims of unknown relation broadcast (:attr:`Graph.broadcasts`), no operator but ``BroadcastTo`` repeats elements
along a dim that only a call knows to be 1. So a rule names its operands' dims by their places, and inference puts
``BroadcastTo`` in front of each operand with a dim that the result's may differ from (:mod:`..explicit_broadcasts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.core.arith.expr import IntExpr
from tilewright.core.assumptions import Ones
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.ops.base import InferContext
from tilewright.graph_ir.ops.shapes import broadcast_shapes, merge_dims


class Dim(NamedTuple):
    """The size of an axis of an input."""

    size: IntExpr
    input: int
    axis: int


def dims_of(ctx: InferContext, i: int) -> tuple[Dim, ...]:
    """The dims of input ``i``."""
    return tuple(Dim(d, i, k) for k, d in enumerate(ctx.shape(i)))


def broadcast_inputs(ctx: InferContext) -> Shape:
    """The common shape of all inputs under ONNX multidirectional broadcasting."""
    everything = range(len(ctx.inputs))
    if not ctx.broadcasts:
        return broadcast_shapes(ctx, [ctx.shape(i) for i in everything])
    return broadcast_operands(ctx, [dims_of(ctx, i) for i in everything])


def broadcast_operands(ctx: InferContext, operands: Sequence[Sequence[Dim]]) -> Shape:
    """The common shape of operands under ONNX multidirectional broadcasting."""
    shape = broadcast_shapes(ctx, [tuple(d.size for d in o) for o in operands])
    if ctx.broadcasts:
        for k, size in enumerate(reversed(shape), 1):
            there = [o[-k] for o in operands if len(o) >= k]
            for d in there:
                _repeat(ctx, d, size, there)
    return shape


def broadcast_together(ctx: InferContext, dims: Sequence[Dim]) -> IntExpr:
    """The size that all of ``dims`` stand for when each is that size or 1."""
    size = dims[0].size
    for d in dims[1:]:
        size = merge_dims(ctx, size, d.size)
    for d in dims if ctx.broadcasts else ():
        _repeat(ctx, d, size, dims)
    return size


def broadcast_onto(ctx: InferContext, operand: Sequence[Dim], target: Sequence[Dim]) -> None:
    """Each dim of ``operand`` must be that of ``target``, or 1 (ONNX unidirectional broadcasting)."""
    for d, onto in zip(reversed(operand), reversed(target), strict=False):
        if d.size == onto.size or d.size == 1:
            continue
        if d.size.is_const and onto.size.is_const:
            ctx.error("dimensions that agree", f"{onto.size} and {d.size}")
        repeats = onto.size != 1
        ctx.assume(onto.size, d.size, Ones.RIGHT if repeats else Ones.NEITHER)
        if ctx.broadcasts and repeats:
            _repeat(ctx, d, onto.size, [onto])


def _repeat(ctx: InferContext, d: Dim, size: IntExpr, places: Sequence[Dim]) -> None:
    if d.size != size and d.size != 1:
        ctx.repeat(d.input, d.axis, [(p.input, p.axis) for p in places if p.size != 1])
