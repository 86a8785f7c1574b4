"""Quantization: between real values and integers (or 8-bit floats), and the integer matmuls and convolutions.

``y = saturate(round(x / scale) + zero_point)`` and ``x = (y - zero_point) * scale``; scale and zero point are one
number, one for each index of ``axis``, or one for each block of ``block_size`` along it. Products accumulate in int32.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.dtypes import DType
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names, broadcast_load
from tilewright.lowering.formulas.reduce import reduction_stage
from tilewright.lowering.geometry.windows import spatial_dims, windows_for
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    highest,
    index_of,
    lowest,
    max_over,
    min_over,
    op,
    select,
    sum_over,
)


def _parameter(c: LowerContext, t: Tensor, index: Sequence[IntExpr], rank: int) -> Val:
    """The scale or zero point that holds at ``index``."""
    if t.ndim == 0 or all(s == 1 for s in t.shape):
        return t[tuple(const(0) for _ in t.shape)]
    axis = normal_axis(c.attr_int("axis", 1), rank, c.where)
    block = c.attr_int("block_size", 0)
    if t.ndim == 1 and not (block and rank == 1):
        return t[index[axis]]
    if not block:
        raise c.unsupported(f"scale of rank {t.ndim} needs attribute block_size")
    return t[tuple(i // block if d == axis else i for d, i in enumerate(index))]


def saturate(v: Val, dtype: DType) -> Val:
    """A rounded real ``v`` as an integer of ``dtype``, kept inside its range. NaN is the lowest, as in onnxruntime."""
    return op("clamp", v, float(lowest(dtype)), float(highest(dtype))).cast(dtypes.int32).cast(dtype)


def quantized(v: Val, zero_point: Val | None, dtype: DType) -> Val:
    """Real ``v`` (already divided by the scale) as a quantized value."""
    if dtype.is_float:
        return v.cast(dtype)
    rounded = op("round", v)
    if zero_point is not None:
        rounded = rounded + zero_point.cast(v.dtype)
    return saturate(rounded, dtype)


def lower_quantize(c: LowerContext) -> tuple[Tensor, ...]:
    x, scale, out = c.input(0), c.input(1), c.output()
    if out.dtype.is_float and not c.attr_int("saturate", 1):
        raise c.unsupported("attribute saturate = 0 is not supported")
    if out.dtype in (dtypes.float8e8m0,) or (out.dtype.is_integer and out.dtype.bits > 16):
        raise c.unsupported(f"element type {out.dtype} is not a quantized type")

    known = c.constants[1]
    is_one = known is not None and known.size == 1 and float(known.array.reshape(())) == 1.0

    def body(*i: IntExpr) -> Val:
        zero = _parameter(c, c.input(2), i, x.ndim) if c.has_input(2) else None
        v = x[i].cast(dtypes.float32)
        if not is_one:
            v = v / _parameter(c, scale, i, x.ndim).cast(dtypes.float32)
        return quantized(v, None if out.dtype.is_float else zero, out.dtype)

    return (compute(c.name("quantize"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_dequantize(c: LowerContext) -> tuple[Tensor, ...]:
    x, scale, out = c.input(0), c.input(1), c.output()

    def body(*i: IntExpr) -> Val:
        s = widen(_parameter(c, scale, i, x.ndim))
        if x.dtype.is_float:
            return (widen(x[i]) * s).cast(out.dtype)
        v = x[i].cast(dtypes.int32)
        if c.has_input(2):
            v = v - _parameter(c, c.input(2), i, x.ndim).cast(dtypes.int32)
        return (v.cast(s.dtype) * s).cast(out.dtype)

    return (compute(c.name("dequantize"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_dynamic_quantize(c: LowerContext) -> tuple[Tensor, ...]:
    x = c.input(0)
    axes = tuple(range(x.ndim))
    top = c.stage(reduction_stage(c, "top", x.shape, axes, lambda i: x[tuple(i)], max_over, keepdims=False))
    bottom = c.stage(reduction_stage(c, "bottom", x.shape, axes, lambda i: x[tuple(i)], min_over, keepdims=False))
    empty: tuple[IntExpr, ...] = ()

    def scale_of() -> Val:
        extent = op("max", top[empty], 0.0) - op("min", bottom[empty], 0.0)
        return select(extent.equal(0.0), 1.0, extent / 255.0)  # of zeros only: any scale would do

    scale = c.stage(compute(c.name("scale"), (), scale_of))

    def zero_of() -> Val:
        v = (0.0 - op("min", bottom[empty], 0.0)) / scale[empty]
        return saturate(op("round", v), dtypes.uint8)

    zero = c.stage(compute(c.name("zero_point"), (), zero_of))
    y = compute(
        c.name("quantize"),
        x.shape,
        lambda *i: quantized(x[i] / scale[empty], zero[empty], dtypes.uint8),
        axis_names=axis_names(x.ndim),
    )
    return c.stage(y), scale, zero


# -- products ------------------------------------------------------------------------------------------------------
def _shifted(v: Val, zero: Val | None) -> Val:
    v = v.cast(dtypes.int32)
    return v if zero is None else v - zero.cast(dtypes.int32)


def row_parameter(t: Tensor, i: Sequence[IntExpr]) -> Val:
    """A parameter of the left operand: one number, one a row, or one for each row of each matrix."""
    if t.ndim == 0 or all(s == 1 for s in t.shape):
        return t[tuple(const(0) for _ in t.shape)]
    return t[i[-2]] if t.ndim == 1 else broadcast_load(t, i, [*_lead(t, len(i)), *t.shape[-2:]])


def column_parameter(t: Tensor, i: Sequence[IntExpr]) -> Val:
    """A parameter of the right operand: one number, one a column, or one for each column of each matrix."""
    if t.ndim == 0 or all(s == 1 for s in t.shape):
        return t[tuple(const(0) for _ in t.shape)]
    return t[i[-1]] if t.ndim == 1 else broadcast_load(t, i, [*_lead(t, len(i)), *t.shape[-2:]])


def _lead(t: Tensor, rank: int) -> list[IntExpr]:
    return [*(const(1) for _ in range(rank - t.ndim)), *t.shape[: t.ndim - 2]]


def integer_matmul(
    c: LowerContext, a: Tensor, b: Tensor, za: Tensor | None, zb: Tensor | None, shape: Sequence[IntExpr]
) -> Tensor:
    """The int32 products of two integer matrices or stacks of them, zero points taken off."""
    k = c.axis(a.shape[-1], "k")
    lead_a, lead_b = a.ndim == 1, b.ndim == 1

    def body(*i: IntExpr) -> Reduction:
        own = list(i)
        column = const(0) if lead_b else own.pop()
        row = const(0) if lead_a else own.pop()
        full = (*own, row, column)
        va = _matrix_load(a, own, (k.index,) if lead_a else (row, k.index))
        vb = _matrix_load(b, own, (k.index,) if lead_b else (k.index, column))
        return sum_over(
            _shifted(va, None if za is None else row_parameter(za, full))
            * _shifted(vb, None if zb is None else column_parameter(zb, full)),
            k,
        )

    return compute(c.name("products"), shape, body, axis_names=axis_names(len(shape)))


def _matrix_load(t: Tensor, lead: Sequence[IntExpr], last: Sequence[IntExpr]) -> Val:
    stack = t.shape[: t.ndim - len(last)]
    own = lead[len(lead) - len(stack) :] if stack else ()
    return t[(*(const(0) if s == 1 else i for s, i in zip(stack, own, strict=True)), *last)]


def _rescaled(v: Val, scale: Val, to: Val) -> Val:
    """An int32 sum in units of the result: times one float32 factor, as onnxruntime does and rounds."""
    return v.cast(dtypes.float32) * (scale.cast(dtypes.float32) / to.cast(dtypes.float32))


def lower_matmul_integer(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()
    return (integer_matmul(c, c.input(0), c.input(1), c.optional(2), c.optional(3), out.shape),)


def lower_qlinear_matmul(c: LowerContext) -> tuple[Tensor, ...]:
    a, b, out = c.input(0), c.input(3), c.output()
    total = c.stage(integer_matmul(c, a, b, c.input(2), c.input(5), out.shape))

    def body(*i: IntExpr) -> Val:
        scale = widen(row_parameter(c.input(1), i)) * widen(column_parameter(c.input(4), i))
        v = _rescaled(total[i], scale, widen(row_parameter(c.input(6), i)))
        return quantized(v, row_parameter(c.input(7), i), out.dtype)

    return (compute(c.name("requantize"), out.shape, body, axis_names=axis_names(len(out.shape))),)


def integer_convolution(
    c: LowerContext, x: Tensor, w: Tensor, zx: Tensor | None, zw: Tensor | None, shape: Sequence[IntExpr]
) -> Tensor:
    """The int32 convolution of ``x`` with ``w``; steps outside the image count as the zero point."""
    kernel = tuple(s.value() or 0 for s in w.shape[2:])
    if 0 in kernel:
        raise c.unsupported(f"the weight's spatial dims must be constant, got {', '.join(map(str, w.shape[2:]))}")
    spatial = spatial_dims(c, x.ndim)
    of_channels = x.ndim - 1 if spatial[0] == 1 else 1
    windows = windows_for(c, x.shape, spatial, kernel)
    per_group, groups = w.shape[1], c.attr_int("group", 1)
    outs = shape[of_channels] // groups
    k = c.axis(per_group, "k")
    steps = [c.axis(n, f"k{d}") for d, n in enumerate(kernel)]

    def body(*i: IntExpr) -> Reduction:
        place, inside = windows.read(x, shape, i, steps)
        out = i[of_channels]
        channel = (out // outs) * per_group + k.index if groups > 1 else k.index
        place = (*place[:of_channels], channel, *place[of_channels + 1 :])
        v = _shifted(x[place], None if zx is None else row_parameter(zx, (const(0), const(0))))
        v = v if inside is None else select(inside, v, constant(0, dtypes.int32))
        zero = None if zw is None else column_parameter(zw, (out,))
        return sum_over(v * _shifted(w[(out, k.index, *(index_of(s) for s in steps))], zero), k, *steps)

    return compute(c.name("products"), shape, body, axis_names=axis_names(x.ndim))


def lower_conv_integer(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()
    return (integer_convolution(c, c.input(0), c.input(1), c.optional(2), c.optional(3), out.shape),)


def lower_qlinear_conv(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()
    total = c.stage(integer_convolution(c, c.input(0), c.input(3), c.input(2), c.input(5), out.shape))

    def body(*i: IntExpr) -> Val:
        v = total[i]
        if c.has_input(8):
            v = v + c.input(8)[i[1]]
        scale = c.scalar(1) * column_parameter(c.input(4), (i[1],))
        return quantized(_rescaled(v, scale, c.scalar(6)), c.scalar(7), out.dtype)

    return (compute(c.name("requantize"), out.shape, body, axis_names=axis_names(len(out.shape))),)


LOWER: dict[str, Lower] = {
    "QuantizeLinear": lower_quantize, "DequantizeLinear": lower_dequantize,
    "DynamicQuantizeLinear": lower_dynamic_quantize,
    "QLinearMatMul": lower_qlinear_matmul, "QLinearConv": lower_qlinear_conv,
}  # fmt: skip
