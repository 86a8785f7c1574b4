"""Resize and Upsample: one stage for each dimension that changes, its positions and weights worked out beforehand.

With constant sizes the positions and weights are constant tables (or plain index arithmetic where a table follows a
simple rule); with symbolic sizes they are stages of their own, computed by the same formulas. Formulas: the ONNX
operator page of Resize; cubic convolution after Keys (1981).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, ceildiv, const
from tilewright.core.arith.minmax import maximum
from tilewright.core.dtypes import DType
from tilewright.core.limits import require_makeable
from tilewright.lowering.context import Lower, LowerContext, widen
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.formulas.images.resize_tables import Spec, reach, tap_tables
from tilewright.lowering.formulas.quantize import saturate
from tilewright.lowering.formulas.reduce import mapped
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, op, select, sum_over

_UNROLLED_TAPS = 4
_WORKING_BYTES = 64
"""Memory, with what lies in between, that the table of a tap needs while it is made."""


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """What a dimension's outputs are made of: ``place(i, t)`` and ``weight(i, t)`` for taps t below ``count``.

    ``guarded``: a tap of weight 0 is not read, whatever it holds: filters reach as far as the widest of them needs.
    """

    count: IntLike
    place: Callable[[IntExpr, IntExpr], IntExpr]
    weight: Callable[[IntExpr, IntExpr], Val] | None
    guarded: bool = False


# -- tables, at build time -----------------------------------------------------------------------------------------
def _static_taps(c: LowerContext, s: Spec, n: int, m: int) -> tuple[Taps, np.ndarray]:
    scale = s.scale if s.scale is not None else m / n
    require_makeable(c.where, "positions and weights", _WORKING_BYTES * m * 2 * reach(s, scale)[0])
    places, weights, inside = tap_tables(s, n, m, scale)
    if s.mode == "nearest":
        chosen = np.take_along_axis(places, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
        return Taps(1, _position(c, chosen, n), None), inside
    used = np.flatnonzero(np.any(weights != 0, axis=0))
    places, weights = places[:, used], weights[:, used]
    at, by = c.table(places.T.astype(np.int32), "resize_at"), c.table(weights.T, "resize_weight")
    return Taps(len(used), lambda i, t: _index(at[t, i]), lambda i, t: by[t, i], s.is_filter), inside


def _position(c: LowerContext, chosen: np.ndarray, n: int) -> Callable[[IntExpr, IntExpr], IntExpr]:
    """A one-tap position: index arithmetic if it follows a rule, else a table."""
    m = len(chosen)
    steps = np.arange(m)
    for k in {max(1, m // n), max(1, math.ceil(m / n))}:
        if np.array_equal(chosen, steps // k):
            return lambda i, t: i // k
    stride = int(chosen[1] - chosen[0]) if m > 1 else 1
    if np.array_equal(chosen, steps * stride + chosen[0]):
        return lambda i, t: i * stride + int(chosen[0])
    at = c.table(chosen.astype(np.int32), "resize_at")
    return lambda i, t: _index(at[i])


def _index(position: Val) -> IntExpr:
    """A position from a table of int32, which are half as much to read as int64."""
    return position.cast(dtypes.int64).as_index()


# -- formulas, at run time -----------------------------------------------------------------------------------------
def _real(i: IntExpr) -> Val:
    """Places are computed in doubles, as the reference does: a rounding error of one would choose another element."""
    return index_value(i).cast(dtypes.float64)


def _symbolic_coordinate(c: LowerContext, s: Spec, i: IntExpr, n: IntExpr, m: IntExpr) -> Val:
    x, size, count = _real(i), _real(n), _real(m)
    scale = _scale(s, n, m)
    width = _rounded_product(size, scale)
    if s.transform == "align_corners":
        return select(width.equal(1.0), 0.0 * x, x * (size - 1.0) / (width - 1.0))
    if s.transform == "asymmetric":
        return x / scale
    half = (x + 0.5) / scale - 0.5
    if s.transform == "half_pixel":
        return half
    if s.transform == "pytorch_half_pixel":
        return select(width.equal(1.0), constant(0.0, dtypes.float64), half)
    if s.transform == "half_pixel_symmetric":
        return size * 0.5 * (1.0 - count / width) + half
    if s.transform == "tf_crop_and_resize":
        a, b = (constant(v, dtypes.float64) if isinstance(v, float) else v for v in s.roi)
        inner = select(width.equal(1.0), (b - a) * (size - 1.0) * 0.5, x * (b - a) * (size - 1.0) / (width - 1.0))
        return inner + _rounded_product(size - 1.0, a)
    raise c.unsupported(f"attribute coordinate_transformation_mode: unknown value {s.transform!r}")


def _rounded_product(size: Val, factor: Val) -> Val:
    """``size * factor``, where ``size`` is not negative, rounded before it is a term of a sum: with the absolute value
    in between, both are not one operation, whose result would be another."""
    product = op("abs", size * factor)
    return select(factor < 0.0, 0.0 - product, product)


def _scale(s: Spec, n: IntExpr, m: IntExpr) -> Val:
    if s.loaded is not None:
        return s.loaded.cast(dtypes.float64)
    return _real(m) / _real(n) if s.scale is None else constant(s.scale, dtypes.float64)


def _symbolic_weight(s: Spec, x: Val, tap: int) -> Val:
    """The weight of tap ``tap`` (0: two to the left of the coordinate's right neighbour, for cubic)."""
    if s.mode == "linear":
        return 1.0 - x if tap == 0 else x
    a, d = s.cubic, op("abs", x + float(1 - tap))
    near = ((d * (a + 2.0)) - (a + 3.0)) * d * d + 1.0
    far = (((d * a) - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    return select(d <= 1.0, near, far)


def _symbolic_taps(c: LowerContext, s: Spec, n: IntExpr, m: IntExpr) -> Taps:
    if s.is_filter:
        return _symbolic_filter(c, s, n, m)
    if s.mode == "nearest" and (k := _whole_factor(s)) is not None:
        return Taps(1, lambda i, t: i // k, None)

    def clamp(v: Val) -> Val:
        whole = v.cast(dtypes.int64)
        return op("max", op("min", whole, index_value(n - 1)), 0).cast(dtypes.int32)

    if s.mode == "nearest":

        def chosen(i: IntExpr) -> Val:
            x = _symbolic_coordinate(c, s, i, n, m)
            rounded = {
                "floor": lambda: op("floor", x), "ceil": lambda: op("ceil", x),
                "round_prefer_ceil": lambda: op("floor", x + 0.5),
                "round_prefer_floor": lambda: op("ceil", x - 0.5),
            }[s.nearest]()  # fmt: skip
            return clamp(rounded)

        at = c.stage(compute(c.name("resize_at"), (m,), chosen))
        return Taps(1, lambda i, t: _index(at[i]), None)
    count = 2 if s.mode == "linear" else 4
    where = c.stage(compute(c.name("resize_x"), (m,), lambda i: _symbolic_coordinate(c, s, i, n, m)))

    def base(i: IntExpr) -> Val:
        return op("floor", where[i])

    def place(t: IntExpr, i: IntExpr) -> Val:
        return clamp(base(i) + (_real(t) - float(count // 2 - 1)))

    at = c.stage(compute(c.name("resize_at"), (count, m), place))

    def raw(i: IntExpr, t: int) -> Val:
        w = _symbolic_weight(s, where[i] - base(i), t)
        if not s.exclude_outside:
            return w
        spot = base(i) + float(t - (count // 2 - 1))
        return select((spot >= 0.0) & (spot < _real(n)), w, 0.0)

    def weight(t: IntExpr, i: IntExpr) -> Val:
        v = raw(i, 0)
        for k in range(1, count):
            v = select(index_value(t).equal(k), raw(i, k), v)
        if s.exclude_outside:
            total = raw(i, 0)
            for k in range(1, count):
                total = total + raw(i, k)
            v = v / total
        return v.cast(s.real)

    by = c.stage(compute(c.name("resize_weight"), (count, m), weight))
    return Taps(count, lambda i, t: _index(at[t, i]), lambda i, t: by[t, i])


def _symbolic_filter(c: LowerContext, s: Spec, n: IntExpr, m: IntExpr) -> Taps:
    """Taps of an antialiasing filter, as many as the ratio of the sizes asks for, their weights normalised to sum 1.

    A size is the floor of size times scale, so the ratio of sizes never asks for fewer taps than the scale does; or,
    where one scale for all axes follows from sizes, nearest to it, at most a half above. Taps beyond the filter's reach
    have weight 0.
    """
    side = 1 if s.mode == "linear" else 2
    if s.scale is not None:
        wide = const(math.ceil(side / min(s.scale, 1.0)))
    else:
        twice = 2 * m if _policy(c) == "stretch" else 2 * m - 1
        wide = maximum(side, ceildiv(n * (2 * side), maximum(twice, 1)))
    count, start = 2 * wide, 1 - wide
    shrink = op("min", _scale(s, n, m), 1.0)
    where = c.stage(compute(c.name("resize_x"), (m,), lambda i: _symbolic_coordinate(c, s, i, n, m)))

    def spot(i: IntExpr, t: IntExpr) -> Val:
        return op("ceil", where[i]) - 1.0 + _real(t + start)

    def raw(t: IntExpr, i: IntExpr) -> Val:
        d = op("abs", (spot(i, t) - where[i]) * shrink)
        if s.mode == "linear":
            w = op("max", 1.0 - d, 0.0)
        else:
            a = s.cubic
            near = ((d * (a + 2.0)) - (a + 3.0)) * d * d + 1.0
            far = (((d * a) - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
            w = select(d <= 1.0, near, select(d < 2.0, far, 0.0))
        return select((spot(i, t) >= 0.0) & (spot(i, t) < _real(n)), w, 0.0) if s.exclude_outside else w

    def place(t: IntExpr, i: IntExpr) -> Val:
        inside = op("max", op("min", spot(i, t).cast(dtypes.int64), index_value(n - 1)), 0)
        return inside.cast(dtypes.int32)

    weights = c.stage(compute(c.name("resize_raw"), (count, m), raw))
    k = c.axis(count, "filter")
    total = c.stage(compute(c.name("resize_total"), (m,), lambda i: sum_over(weights[k, i], k)))
    at = c.stage(compute(c.name("resize_at"), (count, m), place))
    by = c.stage(compute(c.name("resize_weight"), (count, m), lambda t, i: (weights[t, i] / total[i]).cast(s.real)))
    return Taps(count, lambda i, t: _index(at[t, i]), lambda i, t: by[t, i], True)


def _whole_factor(s: Spec) -> int | None:
    """k if output i reads input i // k whatever the sizes are."""
    if s.scale is None or s.scale < 1 or s.scale != int(s.scale):
        return None
    if s.transform == "asymmetric" and s.nearest == "floor":
        return int(s.scale)
    if s.transform in ("half_pixel", "half_pixel_symmetric") and s.nearest.startswith("round"):
        return int(s.scale)
    return None


# -- lowering ------------------------------------------------------------------------------------------------------
def _apply(c: LowerContext, x: Tensor, d: int, size: IntExpr, taps: Taps) -> Tensor:
    """The stage that resizes dimension ``d`` of ``x``."""
    shape = [*x.shape[:d], size, *x.shape[d + 1 :]]

    def element(i: tuple[IntExpr, ...], t: IntExpr | int) -> Val:
        tap = as_expr(t)
        v = widen(x[(*i[:d], taps.place(i[d], tap), *i[d + 1 :])])
        if taps.weight is None:
            return v
        w = taps.weight(i[d], tap)
        product = v.cast(w.dtype) * w
        return select(w.equal(0.0), constant(0.0, w.dtype), product) if taps.guarded else product

    few = as_expr(taps.count).value()
    if few is None or few > _UNROLLED_TAPS:
        k = c.axis(taps.count, "tap")
        return compute(
            c.name("resize"), shape, lambda *i: sum_over(element(i, k.index), k), axis_names=axis_names(x.ndim)
        )

    def unrolled(*i: IntExpr) -> Val:
        v = element(i, 0)
        for t in range(1, few):
            v = v + element(i, t)
        return v

    return compute(c.name("resize"), shape, unrolled, axis_names=axis_names(x.ndim))


def _scales(c: LowerContext, axes: list[int], rank: int, n: list[IntExpr], m: list[IntExpr]) -> list[float | None]:
    """The scale of each dimension (in N, C, spatial order); None where it follows from symbolic sizes."""
    out: list[float | None] = [1.0] * rank
    scales = c.constant(2)
    if scales is not None and scales.size:
        for a, v in zip(axes, scales.array.reshape(-1), strict=True):
            out[a] = float(v)
        return out
    known = [(a, n[a].value(), m[a].value()) for a in axes]
    policy, sizes = _policy(c), c.elements(3)
    if policy == "stretch":
        for a, v, w in known:
            out[a] = None if v is None or w is None or v == 0 else w / v
        return out
    one: float | None = None
    if sizes is not None and all(s.is_const for s in sizes) and all(v is not None for _, v, _ in known):
        ratios = [int(s) / v for s, (_, v, _) in zip(sizes, known, strict=True) if v]
        one = (min if policy == "not_larger" else max)(ratios, default=1.0)
    return [one if a in axes else 1.0 for a in range(rank)]


def _policy(c: LowerContext) -> str:
    """What sizes mean: the scale of each axis, or the bounds of one scale for all. Scales are always as given."""
    gives_sizes = c.has_input(3) and c.elements(3) != ()
    return c.attr_str("keep_aspect_ratio_policy", "stretch") if gives_sizes else "stretch"


def _loaded_scales(c: LowerContext, axes: list[int], n: list[IntExpr], scales: list[float | None]) -> dict[int, Val]:
    """The scale of each axis where only the run knows it and it does not follow from the axis' own sizes."""
    given = c.elements(3) if c.has_input(3) else ()
    if given == ():
        loads = c.has_input(2) and c.constants[2] is None and c.elements(2) != ()
        return {a: c.input(2)[k] for k, a in enumerate(axes)} if loads else {}
    if _policy(c) == "stretch" or all(scales[a] is not None for a in axes):
        return {}
    ratios = []
    for k, a in enumerate(axes):
        size = c.input(3)[k] if given is None else index_value(given[k])
        ratios.append(size.cast(dtypes.float64) / _real(n[a]))
    one = ratios[0]
    for r in ratios[1:]:
        one = op("min" if _policy(c) == "not_larger" else "max", one, r)
    return dict.fromkeys(axes, one)


def lower_resize(c: LowerContext) -> tuple[Tensor, ...]:
    x, value = c.input(0), c.output()
    if any(d == 0 for d in value.shape):
        return (compute(c.name("resize"), value.shape, lambda *_: constant(0, value.dtype)),)
    rank = x.ndim
    last = c.attr_str("data_layout", "NCHW") == "NHWC"
    order = [0, rank - 1, *range(1, rank - 1)] if last else list(range(rank))
    n, m = [x.shape[d] for d in order], [value.shape[d] for d in order]
    given = c.attr_ints("axes")
    axes = list(range(rank)) if given is None else [normal_axis(a, rank, c.where) for a in given]
    transform = c.attr_str("coordinate_transformation_mode", "half_pixel")
    mode = c.attr_str("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise c.unsupported(f"attribute mode: unknown value {mode!r}")
    roi = _roi(c, axes, transform)
    wide = value.dtype == dtypes.float64 or (value.dtype.is_integer and value.dtype.bits > 16)
    real = dtypes.float64 if wide else dtypes.float32
    result, checks = x, list[Check]()
    scales = _scales(c, axes, rank, n, m)
    loaded = _loaded_scales(c, axes, n, scales)
    for a, scale in enumerate(scales):
        scale = None if a in loaded else scale
        crop = transform == "tf_crop_and_resize" and a in axes
        same_scale = scale == 1.0 or (scale is None and transform != "tf_crop_and_resize")
        if n[a] == m[a] and a not in loaded and same_scale and not crop:
            continue
        s = Spec(
            mode, transform, c.attr_str("nearest_mode", "round_prefer_floor"), bool(c.attr_int("antialias", 0)),
            bool(c.attr_int("exclude_outside", 0)), c.attr_float("cubic_coeff_a", -0.75), scale, real,
            roi.get(a, (0.0, 1.0)), loaded.get(a),
        )  # fmt: skip
        size, count = n[a].value(), m[a].value()
        if size is not None and count is not None and a not in loaded and isinstance(s.roi[0], float):
            if size == 0:
                raise c.unsupported(f"an axis of no elements cannot be resized to {count}")
            taps, inside = _static_taps(c, s, size, count)
            if crop and not inside.all():
                table = c.table(inside, "resize_inside")
                checks.append((order[a], partial(_entry, table)))
        else:
            taps = _symbolic_taps(c, s, n[a], m[a])
            # images and channels keep their number, even if only the run says so: nothing gets from one to another
            taps = replace(taps, guarded=taps.guarded or a < 2)
            if crop:
                checks.append((order[a], _inside(c, s, n[a], m[a])))
        result = c.stage(_apply(c, result, order[a], m[a], taps))
    result = _extrapolated(c, result, checks)
    if result is x or result.dtype != value.dtype:
        result = mapped(c, result, "resize_out", lambda v: _as_element(v, value.dtype))
    return (result,)


def _as_element(v: Val, dtype: DType) -> Val:
    """An interpolated value as an element: integers are rounded and kept inside their range."""
    if not dtype.is_integer or v.dtype.is_integer:
        return v.cast(dtype)
    rounded = op("round", v)
    return saturate(rounded, dtype) if dtype.bits <= 16 else rounded.cast(dtype)


def _roi(c: LowerContext, axes: list[int], transform: str) -> dict[int, tuple[float | Val, float | Val]]:
    """The region of interest of each axis."""
    if transform != "tf_crop_and_resize":
        return {}
    if not c.has_input(1):
        raise c.unsupported("roi (input 1) is missing")
    roi = c.constants[1]
    if roi is None:
        loaded = [c.input(1)[k].cast(dtypes.float64) for k in range(2 * len(axes))]
        return {a: (loaded[k], loaded[k + len(axes)]) for k, a in enumerate(axes)}
    if roi.size != 2 * len(axes):
        raise c.unsupported(f"roi (input 1) must have {2 * len(axes)} elements, got {roi.size}")
    flat = [float(v) for v in roi.array.reshape(-1)]
    return {a: (flat[k], flat[k + len(axes)]) for k, a in enumerate(axes)}


def _entry(table: Tensor, i: IntExpr) -> Val:
    return table[i]


Check: TypeAlias = tuple[int, Callable[[IntExpr], Val]]


def _inside(c: LowerContext, s: Spec, n: IntExpr, m: IntExpr) -> Callable[[IntExpr], Val]:
    """Whether each output's place lies among the ``n`` inputs."""

    def body(i: IntExpr) -> Val:
        x = _symbolic_coordinate(c, s, i, n, m)
        return (x >= 0.0) & (x <= _real(n) - 1.0)

    inside = c.stage(compute(c.name("resize_inside"), (m,), body))
    return lambda i: inside[i]


def _extrapolated(c: LowerContext, t: Tensor, checks: list[Check]) -> Tensor:
    """``t`` with the extrapolation value where a coordinate lies outside the input."""
    if not checks:
        return t
    outside = c.attr_float("extrapolation_value", 0.0)

    def body(*i: IntExpr) -> Val:
        ok = checks[0][1](i[checks[0][0]])
        for d, inside in checks[1:]:
            ok = ok & inside(i[d])
        return select(ok, t[i], constant(outside, t.dtype))

    return c.stage(compute(c.name("extrapolate"), t.shape, body, axis_names=axis_names(t.ndim)))


LOWER: dict[str, Lower] = {"Resize": lower_resize}
