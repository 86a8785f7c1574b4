"""Normalizations, in stages: sums, mean, inverse deviation, result. Computed in float32 or wider."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names, broadcast_load
from tilewright.lowering.formulas.reduce import (
    at_reduced,
    kept_shape,
    mapped,
    pays_in_parts,
    reciprocal_of,
    reduction_stage,
)
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    compute,
    constant,
    equal,
    in_range,
    op,
    select,
    sum_over,
)

Loader = Callable[[Sequence[IntExpr]], Val]


def mean_stage(
    c: LowerContext, shape: Sequence[IntExpr], axes: Sequence[int], value: Loader, hint: str,
    in_parts: bool | None = None,
) -> Tensor:  # fmt: skip
    """The recorded mean of ``value`` along ``axes``, kept as extents of 1. ``in_parts``: as in a reduction."""
    total = c.stage(reduction_stage(c, f"{hint}_sum", shape, axes, value, sum_over, in_parts=in_parts))
    scale = reciprocal_of(product(shape[d] for d in axes), total.dtype)
    return c.stage(mapped(c, total, hint, lambda v: v * scale))


def moments(
    c: LowerContext, shape: Sequence[IntExpr], axes: Sequence[int], value: Loader, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The recorded mean and 1 / sqrt(variance + epsilon) along ``axes``."""
    if pays_in_parts(shape, axes) and all(shape[d].is_const for d in axes):
        return _moments_in_one_sweep(c, shape, axes, value, epsilon)
    mean = mean_stage(c, shape, axes, value, "mean")

    def squared(i: Sequence[IntExpr]) -> Val:
        d = value(i) - mean[at_reduced(i, axes)]
        return d * d

    total = c.stage(reduction_stage(c, "var_sum", shape, axes, squared, sum_over))
    scale = reciprocal_of(product(shape[d] for d in axes), total.dtype)
    inverse = c.stage(mapped(c, total, "inv_std", lambda v: 1.0 / op("sqrt", v * scale + epsilon)))
    return mean, inverse


def _moments_in_one_sweep(
    c: LowerContext, shape: Sequence[IntExpr], axes: Sequence[int], value: Loader, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The same with memory read once: for each index of the first axis, a part, the sums of differences to a pivot and
    of their squares side by side.

    The pivot is the mean of a diagonal, one element of each of ``n`` parts: near the mean also where some rows or
    columns are far from the others. If it is ``d`` away, these elements alone make a variance of ``d * d * n / count``:
    what cancels in the end is at most ``count / n`` times as large as what is left.
    """
    first, *rest = sorted(axes)
    pair, names, of_parts, of_all = rest[-1], axis_names(len(shape)), kept_shape(shape, rest), kept_shape(shape, axes)

    def of_diagonal(i: Sequence[IntExpr]) -> Val:
        return value([i[first] * shape[d] // shape[first] if d in rest else x for d, x in enumerate(i)])

    pivot = mean_stage(c, of_parts, [first], of_diagonal, "pivot")
    steps = {d: c.axis(shape[d], f"r{d}") for d in rest}

    def powers(*i: IntExpr) -> Reduction:
        at = [steps[d].index if d in steps else x for d, x in enumerate(i)]
        v = value(at) - pivot[at_reduced(at, axes)]
        return sum_over(select(equal(i[pair], 0), v, v * v), *steps.values())

    pairs = [const(2) if d == pair else s for d, s in enumerate(of_parts)]
    parts = c.stage(compute(c.name("powers"), pairs, powers, axis_names=names))

    def mean_of(power: int, hint: str) -> Tensor:
        def part(i: Sequence[IntExpr]) -> Val:
            return parts[tuple(const(power - 1) if d == pair else x for d, x in enumerate(i))]

        total = c.stage(reduction_stage(c, f"{hint}_sum", of_parts, [first], part, sum_over))
        scale = reciprocal_of(product(shape[d] for d in axes), total.dtype)
        return c.stage(mapped(c, total, hint, lambda v: v * scale))

    offset, square = mean_of(1, "offset"), mean_of(2, "square")

    def inverse(*i: IntExpr) -> Val:
        variance = square[i] - offset[i] * offset[i]
        return 1.0 / op("sqrt", op("max", variance, constant(0.0, variance.dtype)) + epsilon)

    mean = c.stage(compute(c.name("mean"), of_all, lambda *i: pivot[i] + offset[i], axis_names=names))
    return mean, c.stage(compute(c.name("inv_std"), of_all, inverse, axis_names=names))


def _channel_axis(c: LowerContext, x: Tensor) -> int:
    return x.ndim - 1 if c.attr_str("data_layout", "NCHW") == "NHWC" else min(1, x.ndim - 1)


def _finish(c: LowerContext, t: Tensor, hint: str, out: int) -> Tensor:
    """``t`` in the type of output ``out``, if the node has that output."""
    if not c.has_output(out) or c.output(out).dtype == t.dtype:
        return t
    return c.stage(mapped(c, t, hint, lambda v: v.cast(c.output(out).dtype)))


def lower_layer_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    first = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    axes = tuple(range(first, x.ndim))

    def load(i: Sequence[IntExpr]) -> Val:
        return widen(x[tuple(i)])

    mean, inverse = moments(c, x.shape, axes, load, c.attr_float("epsilon", 1e-5))

    def body(*i: IntExpr) -> Val:
        r = at_reduced(i, axes)
        y = (load(i) - mean[r]) * inverse[r]
        y = y * widen(broadcast_load(c.input(1), i, x.shape)) if c.has_input(1) else y
        y = y + widen(broadcast_load(c.input(2), i, x.shape)) if c.has_input(2) else y
        return y.cast(out.dtype)

    y = compute(c.name("layer_norm"), x.shape, body, axis_names=axis_names(x.ndim))
    return c.stage(y), _finish(c, mean, "mean_out", 1), _finish(c, inverse, "inv_std_out", 2)


def lower_rms_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    first = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    axes = tuple(range(first, x.ndim))
    epsilon = c.attr_float("epsilon", 1e-5)

    def square(i: Sequence[IntExpr]) -> Val:
        v = widen(x[tuple(i)])
        return v * v

    mean = mean_stage(c, x.shape, axes, square, "mean_square")
    inverse = c.stage(mapped(c, mean, "inv_rms", lambda v: 1.0 / op("sqrt", v + epsilon)))

    def body(*i: IntExpr) -> Val:
        y = widen(x[i]) * inverse[at_reduced(i, axes)]
        return (y * widen(broadcast_load(c.input(1), i, x.shape))).cast(out.dtype)

    return (compute(c.name("rms_norm"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_instance_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    channel = _channel_axis(c, x)
    axes = tuple(d for d in range(1, x.ndim) if d != channel)

    def load(i: Sequence[IntExpr]) -> Val:
        return widen(x[tuple(i)])

    mean, inverse = moments(c, x.shape, axes, load, c.attr_float("epsilon", 1e-5))

    def body(*i: IntExpr) -> Val:
        r, k = at_reduced(i, axes), i[channel]
        y = (load(i) - mean[r]) * inverse[r] * widen(c.input(1)[k]) + widen(c.input(2)[k])
        return y.cast(out.dtype)

    return (compute(c.name("instance_norm"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_group_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    groups = c.attr_int("num_groups", 1)
    size = x.shape[1] // groups
    shape = (x.shape[0], const(groups), size, *x.shape[2:])
    axes = tuple(range(2, len(shape)))

    def load(i: Sequence[IntExpr]) -> Val:
        return widen(x[(i[0], i[1] * size + i[2], *i[3:])])

    mean, inverse = moments(c, shape, axes, load, c.attr_float("epsilon", 1e-5))

    def body(*i: IntExpr) -> Val:
        r = (i[0], i[1] // size, *(const(0) for _ in axes))
        y = (widen(x[i]) - mean[r]) * inverse[r]
        return (y * widen(c.input(1)[i[1]]) + widen(c.input(2)[i[1]])).cast(out.dtype)

    return (compute(c.name("group_norm"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_batch_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    channel = _channel_axis(c, x)
    epsilon, training = c.attr_float("epsilon", 1e-5), c.attr_int("training_mode", 0)
    axes = tuple(d for d in range(x.ndim) if d != channel)
    real = widen(x[tuple(const(0) for _ in x.shape)]).dtype

    def load(i: Sequence[IntExpr]) -> Val:
        return widen(x[tuple(i)])

    if training:
        batch_mean = mean_stage(c, x.shape, axes, load, "mean")

        def squared(i: Sequence[IntExpr]) -> Val:
            d = load(i) - batch_mean[at_reduced(i, axes)]
            return d * d

        batch_var = mean_stage(c, x.shape, axes, squared, "var")

    def per_channel(t: Tensor, k: IntExpr) -> Val:
        return t[tuple(k if d == channel else const(0) for d in range(x.ndim))]

    def mean_of(k: IntExpr) -> Val:
        return per_channel(batch_mean, k) if training else c.input(3)[k].cast(real)

    def var_of(k: IntExpr) -> Val:
        return per_channel(batch_var, k) if training else c.input(4)[k].cast(real)

    count = x.shape[channel]
    factor = c.stage(
        compute(c.name("factor"), (count,), lambda k: c.input(1)[k].cast(real) / op("sqrt", var_of(k) + epsilon))
    )

    def body(*i: IntExpr) -> Val:
        k = i[channel]
        return ((load(i) - mean_of(k)) * factor[k] + c.input(2)[k].cast(real)).cast(out.dtype)

    results = [c.stage(compute(c.name("batch_norm"), x.shape, body, axis_names=axis_names(x.ndim)))]
    if training:
        momentum = c.attr_float("momentum", 0.9)
        for old, new in ((3, mean_of), (4, var_of)):

            def blend(k: IntExpr, o: int = old, f: Callable[[IntExpr], Val] = new) -> Val:
                mixed = c.input(o)[k].cast(real) * momentum + f(k) * (1.0 - momentum)
                return mixed.cast(c.input(o).dtype)

            results.append(c.stage(compute(c.name("running"), (count,), blend, axis_names=["k"])))
    return tuple(results)


def lower_lp_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axis = normal_axis(c.attr_int("axis", -1), x.ndim, c.where)
    p = c.attr_int("p", 2)
    if p not in (1, 2):
        raise c.unsupported(f"attribute p must be 1 or 2, got {p}")

    def power(i: Sequence[IntExpr]) -> Val:
        v = widen(x[tuple(i)])
        return op("abs", v) if p == 1 else v * v

    total = c.stage(reduction_stage(c, "norm_sum", x.shape, (axis,), power, sum_over))
    norm = c.stage(mapped(c, total, "norm", lambda v: v if p == 1 else op("sqrt", v)))

    def body(*i: IntExpr) -> Val:
        n = norm[at_reduced(i, (axis,))]
        return select(n.equal(0.0), n, widen(x[i]) / n).cast(out.dtype)

    return (compute(c.name("lp_norm"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_mean_variance_norm(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axes = tuple(sorted({normal_axis(a, x.ndim, c.where) for a in c.attr_ints("axes") or (0, 2, 3)}))

    def load(i: Sequence[IntExpr]) -> Val:
        return widen(x[tuple(i)])

    mean = mean_stage(c, x.shape, axes, load, "mean")

    def squared(i: Sequence[IntExpr]) -> Val:
        d = load(i) - mean[at_reduced(i, axes)]
        return d * d

    variance = mean_stage(c, x.shape, axes, squared, "var")
    inverse = c.stage(mapped(c, variance, "inv_std", lambda v: 1.0 / (op("sqrt", v) + 1e-9)))

    def body(*i: IntExpr) -> Val:
        r = at_reduced(i, axes)
        return ((load(i) - mean[r]) * inverse[r]).cast(out.dtype)

    return (compute(c.name("mean_variance_norm"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_lrn(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    size = c.attr_int("size", 1)
    alpha, beta, bias = c.attr_float("alpha", 1e-4), c.attr_float("beta", 0.75), c.attr_float("bias", 1.0)
    farthest = size if (channels := x.shape[1].value()) is None else max(channels - 1, 0)
    before = min((size - 1) // 2, farthest)
    k = c.axis(before + 1 + min(size // 2, farthest), "r")

    def squares(*i: IntExpr) -> object:
        at = i[1] + k.index - before
        v = widen(x[(i[0], at, *i[2:])])
        return sum_over(select(in_range(at, 0, x.shape[1]), v * v, 0.0), k)

    total = c.stage(compute(c.name("square_sum"), x.shape, squares, axis_names=axis_names(x.ndim)))  # type: ignore[arg-type]

    def body(*i: IntExpr) -> Val:
        base = total[i] * (alpha / size) + bias
        return (widen(x[i]) / op("pow", base, beta)).cast(out.dtype)

    return (compute(c.name("lrn"), x.shape, body, axis_names=axis_names(x.ndim)),)


LOWER: dict[str, Lower] = {
    "LayerNormalization": lower_layer_norm, "RMSNormalization": lower_rms_norm,
    "InstanceNormalization": lower_instance_norm, "GroupNormalization": lower_group_norm,
    "BatchNormalization": lower_batch_norm, "LpNormalization": lower_lp_norm,
    "MeanVarianceNormalization": lower_mean_variance_norm, "LRN": lower_lrn,
}  # fmt: skip
