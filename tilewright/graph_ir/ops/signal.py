"""Signal processing: DFT and STFT."""

from __future__ import annotations

from tilewright.core.intexpr import IntExpr, const
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor


def _one(ctx: InferContext, i: int) -> IntExpr:
    data = ctx.data(i)
    return ctx.fresh() if data is None else data[0]


def _dft(ctx: InferContext) -> tuple[Inferred, ...]:
    s = list(ctx.shape(0))
    given = ctx.ints(2) if ctx.has(2) else (-2,)
    if given is None:
        real = ctx.int_attr("inverse") and ctx.int_attr("onesided")
        return (tensor(ctx.dtype(0), [*(ctx.fresh() for _ in s[:-1]), const(1 if real else 2)]),)
    axis = ctx.normal_axis(given[0], len(s))
    length = _one(ctx, 1) if ctx.has(1) else s[axis]
    inverse, onesided = ctx.int_attr("inverse"), ctx.int_attr("onesided")
    if inverse and onesided:
        s[axis] = length if ctx.has(1) else (s[axis] - 1) * 2
        return (tensor(ctx.dtype(0), (*s[:-1], const(1))),)
    s[axis] = length // 2 + 1 if onesided else length
    return (tensor(ctx.dtype(0), (*s[:-1], const(2))),)


def _stft(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    step = _one(ctx, 1)
    length = _one(ctx, 3) if ctx.has(3) else ctx.shape(2)[0] if ctx.has(2) else s[1]
    frames = (s[1] - length) // step + 1
    bins = length // 2 + 1 if ctx.int_attr("onesided", 1) else length
    return (tensor(ctx.dtype(0), (s[0], frames, bins, const(2))),)


OPS = table(
    OpDef("DFT", PatternKind.OPAQUE, _dft, 1, 3),
    OpDef("STFT", PatternKind.OPAQUE, _stft, 2, 4),
)
