"""Operators that make tensors from sizes: Range, ConstantOfShape, EyeLike, random numbers, windows."""

from __future__ import annotations

import math

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.arith.minmax import maximum
from tilewright.core.dtypes import DType
from tilewright.core.limits import MAX_ELEMENTS
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import MAX_DATA, InferContext, Inferred, InferRule, OpDef, table, tensor
from tilewright.graph_ir.ops.operands import match_operands, require_single
from tilewright.graph_ir.ops.shapes import const_shape, decide_less

_RANDOM = "random numbers"


_LARGE = 1 << 31
"""Steps from which on a formula of the size leaves 64 bits where it is multiplied; the run computes it instead."""


def _range(ctx: InferContext) -> tuple[Inferred, ...]:
    dt = ctx.dtype(0)
    require_single(ctx, 0, 1, 2)
    arrays = [ctx.constant(i) for i in range(3)]
    numbers = [None if a is None else a.reshape(-1)[0] for a in arrays]
    if all(x is not None for x in numbers) and dt.is_float:
        given = [float(x) for x in numbers if x is not None]
        start, limit, delta = given
        ctx.require(all(map(math.isfinite, given)), "finite start, limit and delta", given)
        ctx.require(delta != 0, "a delta other than 0", delta)
        count = (limit - start) / delta
        ctx.require(count <= MAX_ELEMENTS, f"start, limit and delta for at most {MAX_ELEMENTS} elements", given)
        return (tensor(dt, (max(math.ceil(count), 0),)),)
    parts = [ctx.data(i) for i in range(3)]
    start_d, limit_d, delta_d = parts
    ctx.require(delta_d is None or delta_d[0] != 0, "a delta other than 0", 0)
    if start_d is None or limit_d is None or delta_d is None or not delta_d[0].is_const:
        return (tensor(dt, (ctx.fresh(),)),)
    first, end, step = start_d[0], limit_d[0], delta_d[0].const
    steps: IntExpr = ceildiv(end - first, step) if step > 0 else ceildiv(first - end, -step)
    if decide_less(steps, const(0)) is not False:
        steps = maximum(steps, 0)
    n = steps.value()
    if n is None and abs(step) >= _LARGE:
        return (tensor(dt, (ctx.fresh(),)),)
    data = [first + i * step for i in range(n)] if n is not None and n <= MAX_DATA else None
    return (tensor(dt, (steps,), data),)


def _constant_of_shape(ctx: InferContext) -> tuple[Inferred, ...]:
    fill = ctx.array_attr("value")
    dt = dtypes.float32 if fill is None else dtypes.from_numpy(fill.dtype)
    match_operands(ctx, "r")
    shape = ctx.data(0)
    if shape is None:
        n = ctx.shape(0, 1)[0].value()
        return (tensor(dt, None if n is None else ctx.fresh_shape(n)),)
    known = const_shape(shape)
    data = None
    if known is not None and fill is not None and dt.kind in "iub" and math.prod(known) <= MAX_DATA:
        data = [const(int(fill.reshape(-1)[0]))] * math.prod(known)
    return (tensor(dt, shape, data),)


def _like(key: str = "dtype") -> InferRule:
    def infer(ctx: InferContext) -> tuple[Inferred, ...]:
        t = ctx.tensor_type(0)
        return (Inferred(TensorType(ctx.dtype_attr(key) or t.dtype, t.shape)),)

    return infer


def _random_like(ctx: InferContext) -> tuple[Inferred, ...]:
    (result,) = _like()(ctx)
    dt = ctx.dtype_attr("dtype") or ctx.dtype(0)
    ctx.require(dt.is_float, "a float element type (attribute dtype, or that of the input)", dt)
    return (result,)


def _eye_like(ctx: InferContext) -> tuple[Inferred, ...]:
    match_operands(ctx, "n m")
    return _like()(ctx)


def _random(ctx: InferContext) -> tuple[Inferred, ...]:
    shape = ctx.ints_attr("shape") or ()
    return (tensor(ctx.dtype_attr("dtype") or dtypes.float32, [const(d) for d in shape]),)


def _multinomial(ctx: InferContext) -> tuple[Inferred, ...]:
    dt = ctx.dtype_attr("dtype") or dtypes.int32
    match_operands(ctx, "b c")
    return (tensor(dt, (ctx.shape(0, 2)[0], const(ctx.int_attr("sample_size", 1)))),)


def _scalar(ctx: InferContext, i: int) -> IntExpr:
    require_single(ctx, i)
    data = ctx.data(i)
    return ctx.fresh() if data is None else data[0]


def _window(ctx: InferContext) -> tuple[Inferred, ...]:
    dt: DType = ctx.dtype_attr("output_datatype") or dtypes.float32
    return (tensor(dt, (_scalar(ctx, 0),)),)


def _mel(ctx: InferContext) -> tuple[Inferred, ...]:
    dt: DType = ctx.dtype_attr("output_datatype") or dtypes.float32
    return (tensor(dt, (_scalar(ctx, 1) // 2 + 1, _scalar(ctx, 0))),)


def _host(name: str, rule: InferRule, n: int) -> OpDef:
    return OpDef(name, PatternKind.HOST, rule, n, n, host=_RANDOM, deterministic=False)


OPS = table(
    OpDef("Range", PatternKind.INJECTIVE, _range, 3, 3, shape_operands=(0, 1, 2)),
    OpDef("ConstantOfShape", PatternKind.INJECTIVE, _constant_of_shape, 1, 1, shape_operands=(0,)),
    OpDef("EyeLike", PatternKind.INJECTIVE, _eye_like, 1, 1),
    _host("RandomNormal", _random, 0),
    _host("RandomUniform", _random, 0),
    _host("RandomNormalLike", _random_like, 1),
    _host("RandomUniformLike", _random_like, 1),
    _host("Bernoulli", _like(), 1),
    _host("Multinomial", _multinomial, 1),
    OpDef("BlackmanWindow", PatternKind.OPAQUE, _window, 1, 1, shape_operands=(0,), arithmetic=True),
    OpDef("HammingWindow", PatternKind.OPAQUE, _window, 1, 1, shape_operands=(0,), arithmetic=True),
    OpDef("HannWindow", PatternKind.OPAQUE, _window, 1, 1, shape_operands=(0,), arithmetic=True),
    OpDef("MelWeightMatrix", PatternKind.OPAQUE, _mel, 5, 5),
)
