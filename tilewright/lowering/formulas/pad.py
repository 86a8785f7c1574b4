"""Pad in all its modes: constant, edge, reflect, wrap. A negative pad cuts elements off."""

from __future__ import annotations

from tilewright.core.arith.bounds import interval
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.lowering.context import Lower, LowerContext
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.formulas.shape import operand_elements
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, select


def lower_pad(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    mode = c.attr_str("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise c.unsupported(f"attribute mode: unknown value {mode!r}")
    chosen = c.constant_ints(3, "axes")
    axes = list(range(x.ndim)) if chosen is None else [normal_axis(a, x.ndim, c.where) for a in chosen]
    pads = operand_elements(c, 1, 2 * len(axes))
    before = dict(zip(axes, pads[: len(axes)], strict=True))
    after = dict(zip(axes, pads[len(axes) :], strict=True))

    def body(*index: IntExpr) -> Val:
        own = [i - before.get(d, const(0)) for d, i in enumerate(index)]
        moved = [d for d in range(x.ndim) if before.get(d, const(0)) != 0 or out.shape[d] != x.shape[d]]
        if mode != "constant":
            for d in moved:
                first, last = (_removed(p.get(d, const(0))) for p in (before, after))
                if mode == "edge":  # what is removed at one side is not repeated at the other
                    first = last = const(0)
                own[d] = first + _inside(mode, own[d] - first, x.shape[d] - first - last)
            return x[tuple(own)]
        if not moved:
            return x[tuple(own)]
        fill = c.scalar(2) if c.has_input(2) else constant(0, x.dtype)
        inside = in_range(own[moved[0]], 0, x.shape[moved[0]])
        for d in moved[1:]:
            inside = inside & in_range(own[d], 0, x.shape[d])
        return select(inside, x[tuple(own)], fill)

    return (compute(c.name("pad"), out.shape, body, axis_names=axis_names(x.ndim)),)


def _removed(pad: IntExpr) -> IntExpr:
    """How many elements a pad cuts off."""
    low, _ = interval(pad, {})
    return const(0) if low is not None and low >= 0 else maximum(-pad, 0)


def _inside(mode: str, i: IntExpr, extent: IntExpr) -> IntExpr:
    """Which element of a dimension stands at position ``i`` of its padded form."""
    if mode == "edge":
        return maximum(minimum(i, extent - 1), 0)
    if mode == "wrap":
        return i % extent
    if extent == 1:
        return const(0)
    period = maximum(extent * 2 - 2, 1)
    m = i % period
    return minimum(m, period - m)


LOWER: dict[str, Lower] = {"Pad": lower_pad}
