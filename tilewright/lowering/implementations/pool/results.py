"""What pools make of their windows' maxima or sums, whichever way these are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as reduce_with
from math import prod
from operator import mul
from typing import TypeAlias

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.formulas.reduce import mapped
from tilewright.lowering.geometry.windows import Windows, windows_of
from tilewright.lowering.implementations.pool.norm import power, root
from tilewright.lowering.indexing import linear_index, split_index
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    highest,
    index_value,
    lowest,
    max_over,
    min_over,
    op,
    select,
    sum_over,
)


@dataclass(frozen=True, slots=True)
class Combiner:
    """``over``: reduces; ``outside``: what a step outside the image counts as, by type."""

    over: Callable[..., Reduction]
    outside: Callable[[DType], float]


MAXIMUM = Combiner(max_over, lowest)
SUM = Combiner(sum_over, lambda _: 0.0)

WindowReduction: TypeAlias = Callable[[LowerContext, Windows, str, Callable[[Val], Val], Combiner], Tensor]
"""The recorded stage, named by the hint, that combines a term of each element of each window."""


def max_pool(reduce: WindowReduction, c: LowerContext) -> tuple[Tensor, ...]:
    """The maxima, and where the node asks for them their positions."""
    x, out = c.input(0), c.output()
    w = windows_of(c, x.shape)
    best = reduce(c, w, "max_pool", widen, MAXIMUM)
    results = [best if best.dtype == out.dtype else mapped(c, best, "max_pool_out", lambda v: v.cast(out.dtype))]
    if c.has_output(1):
        results.append(_positions(c, x, w, best, out.shape))
    return tuple(results)


def _positions(c: LowerContext, x: Tensor, w: Windows, best: Tensor, shape: Sequence[IntExpr]) -> Tensor:
    """The place of the maximum (of a NaN), the first in row-major order; ``storage_order`` 1 counts column-first."""
    if w.spatial and w.spatial[0] != 2:
        raise c.unsupported("output 1 (Indices) exists only in NCHW layout")
    steps = w.steps(c)
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


def average_pool(reduce: WindowReduction, c: LowerContext) -> tuple[Tensor, ...]:
    """The sums, each divided by the number of its elements: a factor for each dimension, which depends on the place in
    that one alone."""
    x, out = c.input(0), c.output()
    w = windows_of(c, x.shape)
    include = c.attr_int("count_include_pad", 0)
    total = reduce(c, w, "pool_sum", widen, SUM)

    def average(*i: IntExpr) -> Val:
        counts = [
            _taps(w, k, i[d], x.shape[d], out.shape[d], bool(include), w.needs_test(k, x.shape, out.shape))
            for k, d in enumerate(w.spatial)
        ]
        v, known = total[i], prod(n.value() or 1 for n in counts)
        varying = [index_value(n).cast(v.dtype) for n in counts if n.value() is None]
        if varying:
            own = reduce_with(mul, varying)
            return (v / (own if known == 1 else own * float(known))).cast(out.dtype)
        # a quotient that lies halfway between two integers stays there: quantized pools round it
        return (v * (1.0 / known) if known & (known - 1) == 0 else v / float(known)).cast(out.dtype)

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


def lp_pool(reduce: WindowReduction, c: LowerContext) -> tuple[Tensor, ...]:
    """The p-th roots of the sums of the p-th powers."""
    out, p = c.output(), c.attr_int("p", 2)
    total = reduce(c, windows_of(c, c.input(0).shape), "lp_sum", lambda v: power(widen(v), p), SUM)
    return (mapped(c, total, "lp_pool", lambda v: root(v, p).cast(out.dtype)),)
