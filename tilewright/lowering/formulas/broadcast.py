"""Operators that repeat elements: Expand and Tile."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import Lower, LowerContext
from tilewright.lowering.formulas.elementwise import axis_names, broadcast_load
from tilewright.tensor_ir.compute import Tensor, Val, compute


def lower_expand(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    return (
        compute(
            c.name("expand"),
            out.shape,
            lambda *i: broadcast_load(x, i, out.shape),
            axis_names=axis_names(len(out.shape)),
        ),
    )


def lower_tile(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()

    def body(*index: IntExpr) -> Val:
        own = []
        for i, extent, whole in zip(index, x.shape, out.shape, strict=True):
            own.append(const(0) if extent == 1 else i if extent in (whole, 0) else i % extent)
        return x[tuple(own)]

    return (compute(c.name("tile"), out.shape, body, axis_names=axis_names(len(out.shape))),)


LOWER: dict[str, Lower] = {"BroadcastTo": lower_expand, "Expand": lower_expand, "Tile": lower_tile}
