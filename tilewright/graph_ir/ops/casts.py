"""Changes of element type: Cast and its kin, quantization."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import Data, InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.broadcasting import broadcast_onto, dims_of
from tilewright.graph_ir.ops.shapes import decide_equal, decide_less, merge_dims

_EXACT_IN_FLOAT32 = 1 << 24


def cast_data(data: Data | None, source: DType, to: DType) -> Data | None:
    """Known elements after a conversion, or None where one may change."""
    if data is None or to.kind in "sc":
        return None
    if to.kind == "b":
        out = []
        for d in data:
            zero = decide_equal(d, d * 0)
            if zero is None:
                return None
            out.append(d * 0 + int(not zero))
        return tuple(out)
    if to.kind == "f" and source.kind != "f":
        return data if to.bits >= 32 and all(_is_small(d) for d in data) else None
    if to.kind == "u" and any(decide_less(d, d * 0) is not False for d in data):
        return None
    narrow = to.kind in "iu" and to.bits < 32
    if narrow and any(not d.is_const or abs(d.const) >= 1 << (to.bits - 1) for d in data):
        return None
    if to.kind == "f" and to.bits < 32:
        return None
    return data


def _is_small(d: IntExpr) -> bool:
    """True for what float32 holds exactly: small numbers, and sizes (not their products; below 2**24 in practice)."""
    return all(len(mono) == 1 for mono, _ in d.terms) and abs(d.const) <= _EXACT_IN_FLOAT32


def _target(ctx: InferContext) -> DType:
    to = ctx.dtype_attr("to")
    if to is None:
        ctx.error("an attribute 'to'", "none")
    return to


def _cast(ctx: InferContext) -> tuple[Inferred, ...]:
    to = _target(ctx)
    return (Inferred(TensorType(to, ctx.tensor_type(0).shape), cast_data(ctx.data(0), ctx.dtype(0), to)),)


def _cast_like(ctx: InferContext) -> tuple[Inferred, ...]:
    to = ctx.dtype(1)
    return (Inferred(TensorType(to, ctx.tensor_type(0).shape), cast_data(ctx.data(0), ctx.dtype(0), to)),)


def _bit_cast(ctx: InferContext) -> tuple[Inferred, ...]:
    to = _target(ctx)
    ctx.require(to.bits == ctx.dtype(0).bits, f"a type of {ctx.dtype(0).bits} bits", to)
    return (Inferred(TensorType(to, ctx.tensor_type(0).shape)),)


def _check_parameter(ctx: InferContext, i: int) -> None:
    """Input ``i``: one scale or zero point for all, one a channel (rank 1), or one a block of the axis (same rank)."""
    x, own = dims_of(ctx, 0), dims_of(ctx, i)
    block = ctx.int_attr("block_size")
    if len(own) == 0 or (len(own) == 1 and own[0].size == 1) or not x:
        return
    axis = ctx.axis(len(x), default=1)
    if block:
        ctx.require(block > 0, "block_size >= 0", block)
        ctx.require(len(own) == len(x), f"input {i} of rank {len(x)}", len(own))
        for k, (d, whole) in enumerate(zip(own, x, strict=True)):
            merge_dims(ctx, d.size, ceildiv(whole.size, block) if k == axis else whole.size, broadcast=False)
    else:
        ctx.require(len(own) == 1, f"input {i} of rank <= 1", len(own))
        broadcast_onto(ctx, own, [x[axis]])


def _quantized_type(ctx: InferContext) -> DType:
    declared = ctx.dtype_attr("output_dtype")
    if ctx.has(2):
        zero = ctx.dtype(2)
        ctx.require(declared is None or declared == zero, f"output_dtype {zero} as the zero point", declared)
        return zero
    return declared or dtypes.uint8


def _quantize(ctx: InferContext) -> tuple[Inferred, ...]:
    to = _quantized_type(ctx)
    if ctx.tensor_type(0).shape is not None:
        for i in range(1, 3 if ctx.has(2) else 2):
            _check_parameter(ctx, i)
    return (Inferred(TensorType(to, ctx.tensor_type(0).shape)),)


def _dequantize(ctx: InferContext) -> tuple[Inferred, ...]:
    to = ctx.dtype_attr("output_dtype") or ctx.dtype(1)
    if ctx.tensor_type(0).shape is not None:
        for i in range(1, 3 if ctx.has(2) else 2):
            _check_parameter(ctx, i)
    return (Inferred(TensorType(to, ctx.tensor_type(0).shape)),)


def _dynamic_quantize(ctx: InferContext) -> tuple[Inferred, ...]:
    scalar = tensor(dtypes.uint8, ())
    return (Inferred(TensorType(dtypes.uint8, ctx.tensor_type(0).shape)), tensor(dtypes.float32, ()), scalar)


OPS = table(
    OpDef("Cast", PatternKind.BROADCAST, _cast, 1, 1, cost=ElementCost.LOAD),
    OpDef("CastLike", PatternKind.BROADCAST, _cast_like, 2, 2, mixed_operands=True),
    OpDef("BitCast", PatternKind.VIEW, _bit_cast, 1, 1),
    OpDef("QuantizeLinear", PatternKind.BROADCAST, _quantize, 2, 3, mixed_operands=True),
    OpDef("DequantizeLinear", PatternKind.BROADCAST, _dequantize, 2, 3, mixed_operands=True),
    OpDef("DynamicQuantizeLinear", PatternKind.OPAQUE, _dynamic_quantize, 1, 1, 3, 3),
)
