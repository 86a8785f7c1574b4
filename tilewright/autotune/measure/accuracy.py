"""Whether a candidate computed what the naive schedule computed.

Schedules may change the order of sums, so floats agree up to rounding: by the precision of the arithmetic and by how
many terms a sum has. The size of an error is measured against the larger of the element and the root mean square of the
result, so that sums that cancel are judged by what was summed. Where floats are rounded to integers on the way
(quantization), a value next to the boundary may fall on the other side: few elements, one step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.core.dtypes import DType
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.ir import Block, Cast, Expr, Func, Op, walk, walk_expr

_FLIPPED = 1e-3
"""Share of the elements that arithmetic in another order may round to the other side."""
_STEP = 0.1
"""How far off, relative to the result's size, a float may be that was computed from such a value."""
_PART = 1 << 14
_ROUNDING = ("round", "floor", "ceil", "trunc")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``relative``: how far floats may be apart. ``flips``: whether integers depend on rounded floats. ``steps``:
    whether floats depend on such integers."""

    relative: float
    flips: bool
    steps: bool = False


def tolerance_of(func: Func, dims: Mapping[str, int]) -> Tolerance:
    """What reordering the sums of ``func`` (not scheduled) may change."""
    types = {b.name: b.dtype for b in buffers(func)}
    terms = 0.0
    sums = rounds = False
    computed = float(np.finfo(np.float64).eps)
    narrow = 0.0
    for s in walk(func.body):
        if not isinstance(s, Block):
            continue
        used = [types[s.buffer], *(x.dtype for x in walk_expr(s.value))]
        floats = [t for t in used if t.kind in "fc"]
        if any(_precision_bits(t) < 64 for t in floats):
            computed = float(np.finfo(np.float32).eps)
        if types[s.buffer].is_narrow_float:
            narrow = max(narrow, _spacing(types[s.buffer]))
        rounds = rounds or any(_is_rounding(x) for x in walk_expr(s.value))
        if any(a.kind == "reduce" for a in s.axes):
            terms += math.prod(a.extent.evaluate(dims) for a in s.axes if a.kind == "reduce")
            sums = sums or any(isinstance(x, Op) and x.name in ("add", "mul", "fma") and x.dtype.kind in "fc"
                               for x in walk_expr(s.value))  # fmt: skip
    return Tolerance(computed * (64 + 16 * math.sqrt(terms)) + 8 * narrow, sums or rounds, rounds)


def _is_rounding(x: Expr) -> bool:
    """True for an operation whose result jumps where its argument changes a little."""
    if isinstance(x, Cast):
        return x.value.dtype.is_float and not x.dtype.is_float and x.dtype.kind != "c"
    return isinstance(x, Op) and x.name in _ROUNDING


def _spacing(t: DType) -> float:
    """The distance from 1 to the next number of a narrow type."""
    return float(ml_dtypes.finfo(t.numpy).eps)  # type: ignore[no-untyped-call]


def _precision_bits(t: DType) -> int:
    return t.bits // 2 if t.kind == "c" else t.bits


def compare(
    got: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: Tolerance
) -> tuple[float, str | None]:
    """The largest error over all outputs, and what is wrong (None: nothing)."""
    worst = 0.0
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        error, wrong = _compare_one(g, e, tolerance)
        worst = max(worst, error)
        if wrong is not None:
            return worst, f"output {i}: {wrong}"
    return worst, None


def _compare_one(got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> tuple[float, str | None]:
    if got.size == 0:
        return 0.0, None
    if got.dtype.kind in "biu" or got.dtype.name in ("int4", "uint4", "int2", "uint2"):
        return _compare_integers(got, expected, tolerance)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    small = _largest_error(got.reshape(-1), expected.reshape(-1), wide)
    if small <= tolerance.relative:
        return small, None
    g, e = got.astype(wide), expected.astype(wide)
    finite = np.isfinite(e)
    same_special = (g == e) | (np.isnan(g) & np.isnan(e))
    if not finite.all() and not same_special[~finite].all():
        at = int(np.flatnonzero(~finite.ravel() & ~same_special.ravel())[0])
        return math.inf, f"element {_place(at, got.shape)} is {g.ravel()[at]}, expected {e.ravel()[at]}"
    g, e = g[finite], e[finite]
    if g.size == 0:
        return 0.0, None
    scale = np.maximum(np.abs(e), math.sqrt(float(np.mean(np.abs(e) ** 2))))
    error = np.abs(g - e)
    relative = np.divide(error, scale, out=np.where(error == 0, 0.0, math.inf), where=scale > 0)
    relative[~np.isfinite(g)] = math.inf
    worst = float(relative.max())
    if worst <= tolerance.relative:
        return worst, None
    at = int(np.flatnonzero(finite.ravel())[int(relative.argmax())])
    count = int((relative > tolerance.relative).sum())
    if tolerance.steps and worst <= _STEP and count <= _FLIPPED * g.size:
        return worst, None
    return worst, (
        f"{count} of {g.size} elements differ by more than {tolerance.relative:.2g}; the worst, "
        f"{_place(at, got.shape)}, is {got.ravel()[at]}, expected {expected.ravel()[at]}"
    )


def _largest_error(got: np.ndarray, expected: np.ndarray, wide: type[np.inexact]) -> float:
    """The largest error of numbers that all are finite, as :func:`_compare_one` defines it; else infinite or NaN. Goes
    through them by parts that stay in the caches: most results are right, and this is done for every candidate."""
    parts = [slice(i, i + _PART) for i in range(0, got.size, _PART)]
    squares = 0.0
    for p in parts:
        e = expected[p].astype(wide)
        squares += float(np.vdot(e, e).real)
    least = math.sqrt(squares / got.size)
    if not 0.0 < least < math.inf:
        return math.inf
    worst = []
    for p in parts:
        e = expected[p].astype(wide)
        worst.append(np.max(np.abs(got[p].astype(wide) - e) / np.maximum(np.abs(e), least)))
    return float(np.max(worst))


def _compare_integers(got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> tuple[float, str | None]:
    different = got != expected
    count = int(different.sum())
    share = count / got.size
    if count == 0 or (tolerance.flips and share <= _FLIPPED):
        return share, None
    at = int(np.flatnonzero(different.ravel())[0])
    return share, (
        f"{count} of {got.size} elements differ; the first, {_place(at, got.shape)}, is {got.ravel()[at]}, "
        f"expected {expected.ravel()[at]}"
    )


def _place(flat: int, shape: tuple[int, ...]) -> str:
    return str([int(i) for i in np.unravel_index(flat, shape)])
