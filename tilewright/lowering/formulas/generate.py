"""Operators whose elements follow from their position: EyeLike, Range, ConstantOfShape, Trilu."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.graph_ir.ir import Constant
from tilewright.lowering.context import Lower, LowerContext, wide, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, select


def lower_eye_like(c: LowerContext) -> tuple[Tensor, ...]:
    out, k = c.output(), c.attr_int("k", 0)

    def body(i: IntExpr, j: IntExpr) -> Val:
        one, zero = constant(1, wide(out.dtype)), constant(0, wide(out.dtype))
        return select(index_value(j).equal(index_value(i + k)), one, zero).cast(out.dtype)

    return (compute(c.name("eye"), out.shape, body),)


def lower_range(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()

    def body(i: IntExpr) -> Val:
        start, delta = widen(c.scalar(0)), widen(c.scalar(2))
        return (start + index_value(i).cast(start.dtype) * delta).cast(out.dtype)

    return (compute(c.name("range"), out.shape, body),)


def lower_constant_of_shape(c: LowerContext) -> tuple[Tensor, ...]:
    out, given = c.output(), c.attr("value")
    number: float | int | bool = 0
    if isinstance(given, Constant):
        item = given.array.reshape(-1)[0]
        number = {"f": float, "b": bool}.get(out.dtype.kind, int)(item)
    return (
        compute(
            c.name("fill"),
            out.shape,
            lambda *i: constant(number, wide(out.dtype)).cast(out.dtype),
            axis_names=axis_names(len(out.shape)),
        ),
    )


def lower_trilu(c: LowerContext) -> tuple[Tensor, ...]:
    x, upper = c.input(0), c.attr_int("upper", 1)

    def body(*i: IntExpr) -> Val:
        k = c.scalar(1).cast(dtypes.int64) if c.has_input(1) else constant(0, dtypes.int64)
        row, column = index_value(i[-2]) + k, index_value(i[-1])
        keep = column >= row if upper else column <= row
        return select(keep, x[i], constant(0, x.dtype))

    return (compute(c.name("trilu"), x.shape, body, axis_names=axis_names(x.ndim)),)


LOWER: dict[str, Lower] = {
    "EyeLike": lower_eye_like, "Range": lower_range, "ConstantOfShape": lower_constant_of_shape,
    "Trilu": lower_trilu,
}  # fmt: skip
