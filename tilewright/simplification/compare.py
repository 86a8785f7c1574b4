"""How far a result is from the expected one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes

TOLERANCES: Mapping[str, float] = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""The largest difference of elements of that type, as a share of the output's root mean square and of the element."""


@dataclass(frozen=True, slots=True)
class Difference:
    """``size``: 0 for equal; for floats a share, see :data:`TOLERANCES`; infinite where they cannot be compared.
    ``where``: the worst element, or what is not alike. ``tolerance``: what is allowed for the type."""

    size: float
    where: str = ""
    tolerance: float = 0.0


EQUAL = Difference(0.0)


def difference(expected: object, got: object) -> Difference:
    """The difference of two results: arrays, sequences of them, or None for an optional without a value."""
    if isinstance(expected, list | tuple) or isinstance(got, list | tuple):
        if not isinstance(expected, list | tuple) or not isinstance(got, list | tuple) or len(expected) != len(got):
            return Difference(math.inf, f"expected {_shown(expected)}, got {_shown(got)}")
        found = (difference(e, g) for e, g in zip(expected, got, strict=True))
        return max(found, key=lambda d: d.size - d.tolerance, default=EQUAL)
    if expected is None or got is None:
        return EQUAL if expected is got else Difference(math.inf, f"expected {_shown(expected)}, got {_shown(got)}")
    e, g = np.asarray(expected), np.asarray(got)
    if e.shape != g.shape or (e.dtype != g.dtype and not _is_text(e, g)):
        return Difference(math.inf, f"expected {_shown(e)}, got {_shown(g)}")
    if _is_text(e, g) or e.dtype.kind in "iub" or dtypes.from_numpy(e.dtype).bits < 16:
        return _unequal(e, g)
    return _of_floats(e, g)


def _is_text(e: np.ndarray, g: np.ndarray) -> bool:
    return e.dtype.kind in "OSU" and g.dtype.kind in "OSU"


def _unequal(e: np.ndarray, g: np.ndarray) -> Difference:
    """Any difference counts; its size is the share of elements that differ."""
    same = np.asarray(e.astype(str) == g.astype(str) if e.dtype.kind in "OSU" else e.view() == g)
    bad = ~same
    return EQUAL if not bad.any() else Difference(float(bad.mean()), _element(e, g, int(bad.argmax())))


def _of_floats(e: np.ndarray, g: np.ndarray) -> Difference:
    wide = np.complex128 if e.dtype.kind == "c" else np.float64
    a, b = e.astype(wide), g.astype(wide)
    finite = np.isfinite(a)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.abs(a[finite])
        mean = float(np.sqrt(np.mean(np.square(size)))) if size.size else 0.0
        errors = np.where(same, 0.0, np.abs(b - a) / (np.abs(a) + (mean or 1.0)))
    errors = np.where(np.isnan(errors), np.inf, errors)
    tolerance = TOLERANCES.get(dtypes.from_numpy(e.dtype).name, TOLERANCES["float32"])
    if not errors.size or not errors.max():
        return Difference(0.0, tolerance=tolerance)
    return Difference(float(errors.max()), _element(e, g, int(errors.argmax())), tolerance)


def _element(e: np.ndarray, g: np.ndarray, at: int) -> str:
    place = [int(k) for k in np.unravel_index(at, e.shape)]
    return f"expected {e.reshape(-1)[at]} at {place}, got {g.reshape(-1)[at]}"


def _shown(x: object) -> str:
    if isinstance(x, list | tuple):
        return f"a list of {len(x)}"
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else "nothing" if x is None else str(type(x))
