"""Reductions over axes, ArgMax and ArgMin, and the running CumSum and CumProd.

Narrow floats are reduced in float32. A mean is a sum times 1/n. ArgMax takes two stages: the extreme value (a NaN is
one), then the least (or greatest) position that holds it. Axes that only the run knows: each dimension of size d has a
result of size n (1 or d, known at run time) and d / n steps, and result i at step k reads element i + k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import Lower, LowerContext, wide, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.indexing import normal_axes, normal_axis
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    highest,
    index_value,
    max_over,
    min_over,
    op,
    prod_over,
    reduce_over,
    select,
    self_load,
    sum_over,
)

Loader = Callable[[Sequence[IntExpr]], Val]
Reducer = Callable[..., Reduction]
_TALL = 16


def kept_shape(shape: Sequence[IntExpr], axes: Sequence[int], keepdims: bool = True) -> list[IntExpr]:
    """``shape`` with the reduced axes of extent 1, or dropped."""
    return [const(1) if d in axes else s for d, s in enumerate(shape) if keepdims or d not in axes]


def reduction_stage(
    c: LowerContext, hint: str, shape: Sequence[IntExpr], axes: Sequence[int], value: Loader, reducer: Reducer,
    keepdims: bool = True, left: Sequence[IntExpr] | None = None, in_parts: bool | None = None,
) -> Tensor:  # fmt: skip
    """The stage that reduces ``value(index)``, ``index`` over ``shape``, along ``axes``. Not yet recorded.

    ``left``: with axes that only the run knows, the sizes of the result; then ``axes`` are all of them. ``in_parts``: a
    stage of its own reduces all axes but the first: the results for the first axis are independent of each other, and
    each is made in one sweep over memory; if None, where :func:`pays_in_parts` says so.
    """
    if left is not None:
        return _run_time_stage(c, hint, shape, value, reducer, left)
    if pays_in_parts(shape, axes) if in_parts is None else in_parts:
        _, *rest = sorted(axes)
        part = c.stage(reduction_stage(c, f"{hint}_part", shape, rest, value, reducer))
        return reduction_stage(c, hint, part.shape, axes, lambda i: part[tuple(i)], reducer, keepdims)
    steps = {d: c.axis(shape[d], f"r{d}") for d in axes}

    def body(*index: IntExpr) -> Reduction | Val:
        own = iter(index)
        full = []
        for d in range(len(shape)):
            if d in steps:
                if keepdims:
                    next(own)
                full.append(steps[d].index)
            else:
                full.append(next(own))
        total = reducer(value(full), *steps.values())
        return total.init if any(a.extent == 0 for a in steps.values()) else total

    out = kept_shape(shape, axes, keepdims)
    return compute(c.name(hint), out, body, axis_names=axis_names(len(out)))


def pays_in_parts(shape: Sequence[IntExpr], axes: Sequence[int]) -> bool:
    """True where the innermost axis stays and the others are long."""
    if len(shape) - 1 in axes or len(axes) < 2:
        return False
    first, *rest = sorted(axes)
    outer, inner = shape[first].value(), product(shape[d] for d in rest).value()
    return (outer is None or outer >= _TALL) and (inner is None or inner >= _TALL)


def _run_time_stage(
    c: LowerContext, hint: str, shape: Sequence[IntExpr], value: Loader, reducer: Reducer, left: Sequence[IntExpr]
) -> Tensor:
    steps = [c.axis(d // maximum(n, 1), f"r{k}") for k, (d, n) in enumerate(zip(shape, left, strict=True))]

    def body(*index: IntExpr) -> Reduction:
        return reducer(value([i + s.index for i, s in zip(index, steps, strict=True)]), *steps)

    return compute(c.name(hint), left, body, axis_names=axis_names(len(left)))


def at_reduced(index: Sequence[IntExpr], axes: Sequence[int]) -> tuple[IntExpr, ...]:
    """``index`` into the kept-dims result of a reduction along ``axes``."""
    return tuple(const(0) if d in axes else i for d, i in enumerate(index))


def reciprocal_of(extent: IntExpr, dtype: DType) -> Val:
    """1 / extent, as a literal where the extent is constant."""
    n = extent.value()
    if n is not None:
        return constant(1.0 / n if n else float("nan"), dtype)
    return constant(1.0, dtype) / index_value(extent).cast(dtype)


def mapped(c: LowerContext, t: Tensor, hint: str, f: Callable[[Val], Val]) -> Tensor:
    """The stage ``f(t[i])``."""
    return compute(c.name(hint), t.shape, lambda *i: f(t[i]), axis_names=axis_names(t.ndim))


def _left(c: LowerContext) -> Sequence[IntExpr] | None:
    """The sizes of the result where only the run knows the axes, else None."""
    known = c.elements(1)
    if not c.has_input(1) or c.constants[1] is not None or (known is not None and all(d.is_const for d in known)):
        return None
    if not c.attr_int("keepdims", 1):
        raise c.unsupported("axes (input 1) must be a constant when keepdims = 0")
    return c.output().shape


def _axes(c: LowerContext, rank: int) -> tuple[int, ...] | None:
    """The axes to reduce; None for the identity (no axes given, and the attribute says that means none)."""
    if _left(c) is not None:
        return tuple(range(rank))
    given = c.constant_ints(1, "axes")
    if not given:
        return None if c.attr_int("noop_with_empty_axes", 0) else tuple(range(rank))
    return normal_axes(given, rank, c.where)


def _reduce(before: Callable[[Val], Val], reducer: Reducer, after: Callable[[Val, IntExpr], Val] | None) -> Lower:
    def lower(c: LowerContext) -> tuple[Tensor, ...]:
        x, out = c.input(0), c.output()
        axes = _axes(c, x.ndim)
        keep = bool(c.attr_int("keepdims", 1))
        hint = c.node.op.lower()
        chosen = () if axes is None else axes
        left = _left(c)
        count = product(x.shape[d] for d in chosen)
        if left is not None:
            count = product(d // maximum(n, 1) for d, n in zip(x.shape, left, strict=True))

        def finish(v: Val) -> Val:
            return (v if after is None else after(v, count)).cast(out.dtype)

        if not chosen:
            return (
                compute(c.name(hint), x.shape, lambda *i: finish(before(widen(x[i]))), axis_names=axis_names(x.ndim)),
            )
        total = reduction_stage(c, hint, x.shape, chosen, lambda i: before(widen(x[tuple(i)])), reducer, keep, left)
        if after is None and total.dtype == out.dtype:
            return (total,)
        c.stage(total)
        return (mapped(c, total, f"{hint}_out", finish),)

    return lower


def _same(v: Val) -> Val:
    return v


def _mean(v: Val, count: IntExpr) -> Val:
    if v.dtype.is_float:
        return v * reciprocal_of(count, v.dtype)
    return v / index_value(count).cast(v.dtype)


def _float_unary(name: str) -> Callable[[Val, IntExpr], Val]:
    def after(v: Val, _: IntExpr) -> Val:
        if v.dtype.is_float:
            return op(name, v)
        return op(name, v.cast(dtypes.float64)).cast(v.dtype)

    return after


def _extreme(reducer: Reducer) -> Lower:
    return _reduce(_same, reducer, None)


def lower_log_sum_exp(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axes = _axes(c, x.ndim)
    real = wide(x.dtype) if x.dtype.is_float else dtypes.float64

    def load(i: Sequence[IntExpr]) -> Val:
        return x[tuple(i)].cast(real)

    if not axes:
        return (compute(c.name("log_sum_exp"), x.shape, lambda *i: x[i], axis_names=axis_names(x.ndim)),)
    left = _left(c)
    top = c.stage(reduction_stage(c, "top", x.shape, axes, load, max_over, left=left))

    def place(index: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        if left is not None:
            return tuple(minimum(i, n - 1) for i, n in zip(index, left, strict=True))
        return at_reduced(index, axes)

    def shift(index: Sequence[IntExpr]) -> Val:
        m = top[place(index)]
        return select(op("is_inf", m), constant(0, real), m)

    total = c.stage(
        reduction_stage(c, "total", x.shape, axes, lambda i: op("exp", load(i) - shift(i)), sum_over, left=left)
    )
    keep = bool(c.attr_int("keepdims", 1))

    def body(*index: IntExpr) -> Val:
        own = iter(index)
        full = tuple((next(own) if keep else const(0)) if d in axes else next(own) for d in range(x.ndim))
        full = place(full)
        return (op("log", total[full]) + shift(full)).cast(out.dtype)

    shape = kept_shape(x.shape, axes, keep) if left is None else left
    return (compute(c.name("log_sum_exp"), shape, body, axis_names=axis_names(len(shape))),)


def place_if(is_extreme: Val, v: Val, place: IntExpr, nowhere: float) -> Val:
    """``place`` where ``v`` is the extreme or a NaN, which counts as one; else ``nowhere``."""
    other = constant(nowhere, dtypes.int64)
    if v.dtype.is_float:
        other = select(op("is_nan", v), index_value(place), other)
    return select(is_extreme, index_value(place), other)


def _arg(largest: bool) -> Lower:
    def lower(c: LowerContext) -> tuple[Tensor, ...]:
        x = c.input(0)
        axis = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)
        keep = bool(c.attr_int("keepdims", 1))
        last = bool(c.attr_int("select_last_index", 0))
        best = c.stage(
            reduction_stage(
                c, "best", x.shape, (axis,), lambda i: widen(x[tuple(i)]), max_over if largest else min_over
            )
        )
        nowhere = -1 if last else highest(dtypes.int64)

        def position(i: Sequence[IntExpr]) -> Val:
            v, b = widen(x[tuple(i)]), best[at_reduced(i, (axis,))]
            return place_if(v >= b if largest else v <= b, v, i[axis], nowhere)

        def reducer(v: Val, *axes: object) -> Reduction:
            return reduce_over("max" if last else "min", v, axes, nowhere)  # type: ignore[arg-type]

        return (reduction_stage(c, c.node.op.lower(), x.shape, (axis,), position, reducer, keep),)

    return lower


def _running(combine: str, identity: int) -> Lower:
    def lower(c: LowerContext) -> tuple[Tensor, ...]:
        x = c.input(0)
        known = c.elements(1)
        if x.ndim > 1 and (known is None or not all(d.is_const for d in known)):
            return (_along_loaded_axis(c, [c.stage(_running_along(c, d, combine, identity)) for d in range(x.ndim)]),)
        given = [0] if x.ndim == 1 else c.constant_ints(1, "axis") or [0]
        return (_running_along(c, normal_axis(given[0], x.ndim, c.where), combine, identity),)

    return lower


def _along_loaded_axis(c: LowerContext, candidates: Sequence[Tensor]) -> Tensor:
    """The candidate of the axis that only the run knows."""
    rank = len(candidates)

    def body(*i: IntExpr) -> Val:
        axis = index_value(c.wrapped(c.scalar(1), rank))
        v = candidates[0][i]
        for d in range(1, rank):
            v = select(axis.equal(d), candidates[d][i], v)
        return v

    return compute(c.name(c.node.op.lower()), candidates[0].shape, body, axis_names=axis_names(rank))


def _running_along(c: LowerContext, axis: int, combine: str, identity: int) -> Tensor:
    """The running sum or product along ``axis``; not yet recorded."""
    x, out = c.input(0), c.output()
    exclusive, backwards = c.attr_int("exclusive", 0), c.attr_int("reverse", 0)
    extent, real = x.shape[axis], wide(x.dtype)
    name = c.name("running")

    def at(index: Sequence[IntExpr], k: IntExpr) -> tuple[IntExpr, ...]:
        return tuple(k if d == axis else i for d, i in enumerate(index))

    def element(index: Sequence[IntExpr], k: IntExpr) -> Val:
        return widen(x[at(index, extent - 1 - k if backwards else k)])

    def body(*i: IntExpr) -> Val:
        k = i[axis]
        before = self_load(name, real, *at(i, k - 1))
        if exclusive:
            later = op(combine, before, element(i, k - 1))
            return select(index_value(k).equal(0), constant(identity, real), later)
        return select(index_value(k).equal(0), element(i, k), op(combine, before, element(i, k)))

    steps = compute(name, x.shape, body, ordered=(axis,), axis_names=axis_names(x.ndim))
    if not backwards and real == out.dtype:
        return steps
    c.stage(steps)

    def final(*i: IntExpr) -> Val:
        return steps[at(i, extent - 1 - i[axis] if backwards else i[axis])].cast(out.dtype)

    return compute(c.name(c.node.op.lower()), x.shape, final, axis_names=axis_names(x.ndim))


LOWER: dict[str, Lower] = {
    "ReduceSum": _reduce(_same, sum_over, None),
    "ReduceMean": _reduce(_same, sum_over, _mean),
    "ReduceProd": _reduce(_same, prod_over, None),
    "ReduceMax": _extreme(max_over),
    "ReduceMin": _extreme(min_over),
    "ReduceSumSquare": _reduce(lambda v: v * v, sum_over, None),
    "ReduceL1": _reduce(lambda v: op("abs", v), sum_over, None),
    "ReduceL2": _reduce(lambda v: v * v, sum_over, _float_unary("sqrt")),
    "ReduceLogSum": _reduce(_same, sum_over, _float_unary("log")),
    "ReduceLogSumExp": lower_log_sum_exp,
    "ArgMax": _arg(largest=True), "ArgMin": _arg(largest=False),
    "CumSum": _running("add", 0), "CumProd": _running("mul", 1),
}  # fmt: skip
