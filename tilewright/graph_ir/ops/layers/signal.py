"""Signal processing: DFT and STFT. The last dim of a signal has one number per sample, or two for complex ones."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands, require_at_most, require_single


def _one(ctx: InferContext, i: int) -> IntExpr:
    require_single(ctx, i)
    data = ctx.data(i)
    return ctx.fresh() if data is None else data[0]


def _require_numbers(ctx: InferContext, signal: Shape, real: bool) -> None:
    """The last dim; ``real``: it cannot be two."""
    require_at_most(ctx, "numbers of a sample", signal[-1], const(1 if real else 2))
    require_at_most(ctx, "one", const(1), signal[-1])


def _dft(ctx: InferContext) -> tuple[Inferred, ...]:
    s = list(ctx.shape(0))
    ctx.require(len(s) >= 2, "an input of rank >= 2", f"rank {len(s)}")
    inverse, onesided = ctx.int_attr("inverse"), ctx.int_attr("onesided")
    _require_numbers(ctx, tuple(s), bool(onesided and not inverse))
    require_single(ctx, 1, 2)
    given = ctx.ints(2) if ctx.has(2) else (-2,)
    if given is None:
        return (tensor(ctx.dtype(0), [*(ctx.fresh() for _ in s[:-1]), const(1 if inverse and onesided else 2)]),)
    axis = ctx.normal_axis(given[0], len(s))
    ctx.require(axis != len(s) - 1, f"an axis in [{-len(s)}, {len(s) - 1}) other than the last", given[0])
    length = _one(ctx, 1) if ctx.has(1) else s[axis]
    ctx.require(not length.is_const or length.const >= 0, "a dft_length >= 0", length)
    if inverse and onesided:
        s[axis] = length if ctx.has(1) else (s[axis] - 1) * 2
        return (tensor(ctx.dtype(0), (*s[:-1], const(1))),)
    s[axis] = length // 2 + 1 if onesided else length
    return (tensor(ctx.dtype(0), (*s[:-1], const(2))),)


def _stft(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    match_operands(ctx, "b n | b n p, , l")
    onesided = ctx.int_attr("onesided", 1)
    if len(s) == 3:
        _require_numbers(ctx, s, bool(onesided))
    step = _one(ctx, 1)
    ctx.require(not step.is_const or step.const >= 1, "a frame_step >= 1", step)
    length = _one(ctx, 3) if ctx.has(3) else ctx.shape(2, 1)[0] if ctx.has(2) else s[1]
    ctx.require(not length.is_const or length.const >= 1, "a frame_length >= 1", length)
    require_at_most(ctx, "a frame_length", length, s[1])
    match_operands(ctx, ", , l", l=length)
    frames = (s[1] - length) // step + 1
    bins = length // 2 + 1 if onesided else length
    return (tensor(ctx.dtype(0), (s[0], frames, bins, const(2))),)


OPS = table(
    OpDef("DFT", PatternKind.OPAQUE, _dft, 1, 3, arithmetic=True),
    OpDef("STFT", PatternKind.OPAQUE, _stft, 2, 4, arithmetic=True, fold_limit=1 << 16),
)
