"""GridSample: values at positions given by a grid, by nearest, linear or cubic interpolation, any number of dims."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, op, select

_CUBIC = -0.75


def reflect(x: Val, low: Val, high: Val) -> Val:
    """``x`` mirrored at both ends until it lies in [low, high]."""
    width = high - low
    period = op("max", width * 2.0, 1e-30)
    u = op("floor_mod", x - low, period)
    return op("min", u, period - u) + low


def lower_grid_sample(c: LowerContext) -> tuple[Tensor, ...]:
    x, grid, out = c.input(0), c.input(1), c.output()
    rank = x.ndim - 2
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.attr_str("mode", "linear"), c.attr_str("mode", "linear"))
    padding = c.attr_str("padding_mode", "zeros")
    corners = c.attr_int("align_corners", 0)
    if mode not in ("nearest", "linear", "cubic"):
        raise c.unsupported(f"attribute mode: unknown value {mode!r}")
    if padding not in ("zeros", "border", "reflection"):
        raise c.unsupported(f"attribute padding_mode: unknown value {padding!r}")
    real = widen(grid[tuple(const(0) for _ in grid.shape)]).dtype
    points = grid.shape[1:-1]

    def size(d: int) -> Val:
        return index_value(x.shape[2 + d]).cast(real)

    def ends(d: int) -> tuple[Val, Val]:
        if corners:
            return constant(0.0, real), size(d) - 1.0
        return constant(-0.5, real), size(d) - 0.5

    def coordinate(d: int) -> Callable[..., Val]:
        def body(*i: IntExpr) -> Val:
            v = widen(grid[(*i, const(rank - 1 - d))])
            v = (v + 1.0) * 0.5 * (size(d) - 1.0) if corners else ((v + 1.0) * size(d) - 1.0) * 0.5
            v = op("round", v) if mode == "nearest" else v
            low, high = ends(d)
            if padding == "border":
                inside = op("max", op("min", v, size(d) - 1.0), 0.0)
                return select((v < low) | (v > high), inside, v)
            return select((v < low) | (v > high), reflect(v, low, high), v) if padding == "reflection" else v

        return body

    shape = (grid.shape[0], *points)
    where = [
        c.stage(compute(c.name(f"at{d}"), shape, coordinate(d), axis_names=axis_names(len(shape)))) for d in range(rank)
    ]

    def read(n: IntExpr, ch: IntExpr, spots: Sequence[Val]) -> Val:
        place, inside = [], None
        for d, spot in enumerate(spots):
            last = size(d) - 1.0
            if padding == "zeros":
                test = (spot >= 0.0) & (spot <= last)
                inside = test if inside is None else inside & test
            elif padding == "reflection":
                spot = reflect(spot, *ends(d))
            at = op("max", op("min", spot, last), 0.0).cast(dtypes.int64)
            place.append(at.as_index())
        v = widen(x[(n, ch, *place)])
        return v if inside is None else select(inside, v, constant(0.0, v.dtype))

    def body(n: IntExpr, ch: IntExpr, *p: IntExpr) -> Val:
        here = [w[(n, *p)] for w in where]
        if mode == "nearest":
            return read(n, ch, here).cast(out.dtype)
        total: Val | None = None
        bases = [op("floor", v) for v in here]
        for taps in itertools.product(range(2) if mode == "linear" else range(-1, 3), repeat=rank):
            v = read(n, ch, [b + float(t) for b, t in zip(bases, taps, strict=True)])
            for b, at, t in zip(bases, here, taps, strict=True):
                v = v * _weight(mode, at - b, t).cast(v.dtype)
            total = v if total is None else total + v
        return (constant(0.0, real) if total is None else total).cast(out.dtype)

    return (compute(c.name("grid_sample"), out.shape, body, axis_names=axis_names(x.ndim)),)


def _weight(mode: str, ratio: Val, tap: int) -> Val:
    if mode == "linear":
        return ratio if tap else 1.0 - ratio
    d = op("abs", ratio - float(tap))
    a = _CUBIC
    if tap in (0, 1):
        return (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0
    return ((d * a - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a


LOWER: dict[str, Lower] = {"GridSample": lower_grid_sample}
