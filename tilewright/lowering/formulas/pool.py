"""Pooling over windows: Max (with positions), Average, Lp, and the global forms; any number of spatial dimensions.

A window step outside the image contributes the identity, by a select on its position. ``data_layout`` NHWC puts the
channels last, so that the innermost loop runs over channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.formulas.normalize import mean_stage
from tilewright.lowering.formulas.reduce import mapped, reduction_stage
from tilewright.lowering.geometry.padding import halves
from tilewright.lowering.indexing import linear_index, split_index
from tilewright.tensor_ir.compute import (
    ReduceAxis,
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    highest,
    in_range,
    index_value,
    lowest,
    max_over,
    min_over,
    op,
    select,
    sum_over,
)


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows lie. ``spatial``: the tensor dimensions they slide over, the rest one entry for each."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[IntExpr, ...]
    end: tuple[IntExpr, ...]

    def read(
        self, x: Tensor, out: Sequence[IntExpr], index: Sequence[IntExpr], steps: Sequence[ReduceAxis]
    ) -> tuple[tuple[IntExpr, ...], Val | None]:
        """The place that step ``steps`` of window ``index`` reads; when that is in ``x`` (None: always)."""
        place, inside = list(index), None
        for k, d in enumerate(self.spatial):
            place[d] = index[d] * self.strides[k] + steps[k].index * self.dilations[k] - self.begin[k]
            if _needs_test(self, k, x, out):
                test = in_range(place[d], 0, x.shape[d])
                inside = test if inside is None else inside & test
        return tuple(place), inside


def windows_of(c: LowerContext, x: Tensor) -> Windows:
    """The node's windows with ``auto_pad`` resolved."""
    spatial = spatial_dims(c, x)
    kernel = c.attr_ints("kernel_shape")
    if kernel is None or len(kernel) != len(spatial):
        raise c.unsupported(f"attribute kernel_shape must have {len(spatial)} entries, got {kernel}")
    return windows_for(c, x, spatial, kernel)


def windows_for(c: LowerContext, x: Tensor, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """Windows of ``kernel`` over the ``spatial`` dimensions of ``x`` with the node's strides, dilations and pads."""
    n = len(spatial)
    strides = c.attr_ints("strides") or (1,) * n
    dilations = c.attr_ints("dilations") or (1,) * n
    auto = c.attr_str("auto_pad", "NOTSET")
    given = c.attr_ints("pads") or (0,) * (2 * n)
    begin = [const(p) for p in given[:n]]
    end = [const(p) for p in given[n:]]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for k, d in enumerate(spatial):
            reach = (kernel[k] - 1) * dilations[k] + 1
            total = (ceildiv(x.shape[d], strides[k]) - 1) * strides[k] + reach - x.shape[d]
            begin[k], end[k] = halves(total, auto == "SAME_UPPER")
    elif auto == "VALID":
        begin, end = [const(0)] * n, [const(0)] * n
    return Windows(spatial, kernel, strides, dilations, tuple(begin), tuple(end))


def spatial_dims(c: LowerContext, x: Tensor) -> tuple[int, ...]:
    last = c.attr_str("data_layout", "NCHW") == "NHWC"
    return tuple(range(1, x.ndim - 1)) if last else tuple(range(2, x.ndim))


def _needs_test(w: Windows, k: int, x: Tensor, out: Sequence[IntExpr]) -> bool:
    """True unless every step of every window in spatial dimension ``k`` is known to be inside the image."""
    d = w.spatial[k]
    if w.begin[k] != 0:
        return True
    reach = (w.kernel[k] - 1) * w.dilations[k] + 1
    slack = (x.shape[d] - ((out[d] - 1) * w.strides[k] + reach)).value()
    if slack is not None:
        return slack < 0
    return bool(w.end[k] != 0 or w.strides[k] != 1)


def _steps(c: LowerContext, w: Windows) -> list[ReduceAxis]:
    return [c.axis(n, f"k{k}") for k, n in enumerate(w.kernel)]


def lower_max_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    w = windows_of(c, x)
    steps = _steps(c, w)

    def body(*i: IntExpr) -> Reduction:
        place, inside = w.read(x, out.shape, i, steps)
        v = widen(x[place])
        return max_over(v if inside is None else select(inside, v, lowest(v.dtype)), *steps)

    best = compute(c.name("max_pool"), out.shape, body, axis_names=axis_names(x.ndim))
    results = [best]
    if best.dtype != out.dtype:
        c.stage(best)
        results = [mapped(c, best, "max_pool_out", lambda v: v.cast(out.dtype))]
    if c.has_output(1):
        c.stage(best)
        results.append(_positions(c, x, w, best, out.shape))
    return tuple(results)


def _positions(c: LowerContext, x: Tensor, w: Windows, best: Tensor, shape: Sequence[IntExpr]) -> Tensor:
    """The place of the maximum (of a NaN), the first in row-major order; ``storage_order`` 1 counts column-first."""
    if w.spatial and w.spatial[0] != 2:
        raise c.unsupported("output 1 (Indices) exists only in NCHW layout")
    steps = _steps(c, w)
    column_major = c.attr_int("storage_order", 0)
    nowhere = constant(highest(dtypes.int64), dtypes.int64)

    def body(*i: IntExpr) -> Reduction:
        place, inside = w.read(x, shape, i, steps)
        v = widen(x[place])
        here = v.equal(best[i]) | op("is_nan", v) if v.dtype.is_float else v.equal(best[i])
        at = select(here, index_value(linear_index(place, x.shape)), nowhere)
        return min_over(at if inside is None else select(inside, at, nowhere), *steps)

    first = compute(c.name("positions"), shape, body, axis_names=axis_names(x.ndim))
    if not column_major:
        return first
    c.stage(first)
    order = [0, 1, *reversed(w.spatial)]

    def turned(*i: IntExpr) -> Val:
        place = split_index(first[i].as_index(), x.shape, {})
        return index_value(linear_index([place[d] for d in order], [x.shape[d] for d in order]))

    return compute(c.name("column_major"), shape, turned, axis_names=axis_names(x.ndim))


def _window_sum(c: LowerContext, w: Windows, hint: str, term: Callable[[Val], Val]) -> Tensor:
    """A stage with the sum of ``term`` over each window; steps outside the image count as zero."""
    x, out = c.input(0), c.output()
    steps = _steps(c, w)

    def body(*i: IntExpr) -> Reduction:
        place, inside = w.read(x, out.shape, i, steps)
        v = term(x[place])
        return sum_over(v if inside is None else select(inside, v, 0.0), *steps)

    return c.stage(compute(c.name(hint), out.shape, body, axis_names=axis_names(x.ndim)))


def lower_average_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    w = windows_of(c, x)
    include = c.attr_int("count_include_pad", 0)
    total = _window_sum(c, w, "pool_sum", widen)

    def average(*i: IntExpr) -> Val:
        count = const(1)
        for k, d in enumerate(w.spatial):
            count = count * _taps(w, k, i[d], x.shape[d], out.shape[d], bool(include), _needs_test(w, k, x, out.shape))
        n = count.value()
        v = total[i]
        if n is not None:  # a quotient that lies halfway between two integers stays there: quantized pools round it
            return (v * (1.0 / n) if n & (n - 1) == 0 else v / float(n)).cast(out.dtype)
        return (v / index_value(count).cast(v.dtype)).cast(out.dtype)

    return (compute(c.name("average_pool"), out.shape, average, axis_names=axis_names(x.ndim)),)


def _taps(w: Windows, k: int, i: IntExpr, extent: IntExpr, steps: IntExpr, include: bool, tested: bool) -> IntExpr:
    """How many steps of window ``i`` count in spatial dimension ``k``."""
    taps, dilation = w.kernel[k], w.dilations[k]
    if not tested:
        return const(taps)
    low, high = (-w.begin[k], extent + w.end[k]) if include else (const(0), extent)
    start = i * w.strides[k] - w.begin[k]
    if include:
        reach = (taps - 1) * dilation + 1
        slack = (extent + w.begin[k] + w.end[k] - ((steps - 1) * w.strides[k] + reach)).value()
        if slack is not None and slack >= 0:
            return const(taps)
    last = minimum(start + (taps - 1) * dilation + 1, high)
    first = maximum(low - start, 0)
    return ceildiv(last - start, dilation) - ceildiv(first, dilation)


def lower_lp_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    w = windows_of(c, x)
    p = c.attr_int("p", 2)
    total = _window_sum(c, w, "lp_sum", lambda v: _power(widen(v), p))
    return (mapped(c, total, "lp_pool", lambda v: _root(v, p).cast(out.dtype)),)


def _power(v: Val, p: int) -> Val:
    if p == 2:
        return v * v
    return op("abs", v) if p == 1 else op("pow", op("abs", v), float(p))


def _root(v: Val, p: int) -> Val:
    if p == 2:
        return op("sqrt", v)
    return v if p == 1 else op("pow", v, 1.0 / p)


def lower_global_average_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    mean = mean_stage(c, x.shape, spatial_dims(c, x), lambda i: widen(x[tuple(i)]), "average")
    return (mean if mean.dtype == out.dtype else mapped(c, mean, "average_out", lambda v: v.cast(out.dtype)),)


def lower_global_max_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    best = reduction_stage(c, "global_max", x.shape, spatial_dims(c, x), lambda i: widen(x[tuple(i)]), max_over)
    if best.dtype == out.dtype:
        return (best,)
    return (mapped(c, c.stage(best), "global_max_out", lambda v: v.cast(out.dtype)),)


def lower_global_lp_pool(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    p = c.attr_int("p", 2)
    total = c.stage(
        reduction_stage(c, "lp_sum", x.shape, spatial_dims(c, x), lambda i: _power(widen(x[tuple(i)]), p), sum_over)
    )
    return (mapped(c, total, "global_lp", lambda v: _root(v, p).cast(out.dtype)),)


LOWER: dict[str, Lower] = {
    "MaxPool": lower_max_pool, "AveragePool": lower_average_pool, "LpPool": lower_lp_pool,
    "GlobalAveragePool": lower_global_average_pool, "GlobalMaxPool": lower_global_max_pool,
    "GlobalLpPool": lower_global_lp_pool,
}  # fmt: skip
