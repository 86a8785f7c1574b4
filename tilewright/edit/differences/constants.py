"""Two constants compared, element by element."""

from __future__ import annotations

import numpy as np

from tilewright.core.dtypes import from_numpy
from tilewright.edit.differences.changes import ConstantChange, NodeRef, constant_type
from tilewright.graph_ir.ir import Constant

_WRITTEN = 4
"""Elements up to which text has all of them."""
_BLOCK = 1 << 20
"""Elements that are compared at once."""


def constant_change(
    old_name: str, old: Constant, name: str, new: Constant, readers: tuple[NodeRef, ...] = ()
) -> ConstantChange:
    """What is different in two constants of different content. Elements are the same if their bits are; of constants of
    two element types, if their values are. Raises ModelError if a file that they are read from has changed."""
    types = constant_type(old), constant_type(new)
    if old.shape != new.shape:
        return ConstantChange(old_name, name, *types, new.size, readers=readers)
    differing, largest = _compared(old.array.reshape(-1), new.array.reshape(-1))
    values = (_written(old), _written(new)) if new.size <= _WRITTEN else None
    return ConstantChange(old_name, name, *types, new.size, differing, largest, values, readers)


def _written(c: Constant) -> str:
    return str(c.array.tolist())


def _compared(a: np.ndarray, b: np.ndarray) -> tuple[int, float | None]:
    """How many elements differ, and the largest difference: nan where it is none, None for other than numbers."""
    differing, largest, are_numbers = 0, 0.0, _is_number(a.dtype) and _is_number(b.dtype)
    for start in range(0, a.size, _BLOCK):
        x, y = a[start : start + _BLOCK], b[start : start + _BLOCK]
        apart = _bits(x) != _bits(y) if a.dtype == b.dtype and a.dtype.kind != "O" else x != y
        differing += int(np.count_nonzero(apart))
        if are_numbers and apart.any():
            largest = float(np.maximum(largest, _distances(x[apart], y[apart]).max()))
    return differing, largest if are_numbers else None


def _is_number(dtype: np.dtype) -> bool:
    return dtype.kind != "O" and from_numpy(dtype).kind in "fiuc"


def _bits(a: np.ndarray) -> np.ndarray:
    """Elements as words, so that numbers which are equal but not the same are not."""
    whole = np.ascontiguousarray(a)
    return whole.view(f"V{a.dtype.itemsize}") if a.dtype.itemsize > 8 else whole.view(f"u{a.dtype.itemsize}")


def _distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Absolute differences, in float64; those of integers are exact before they are rounded to it."""
    a, b = from_numpy(x.dtype), from_numpy(y.dtype)
    if a == b and a.is_integer:
        word = np.int64 if a.kind == "i" else np.uint64
        low, high = np.minimum(x.astype(word), y.astype(word)), np.maximum(x.astype(word), y.astype(word))
        return (high.view(np.uint64) - low.view(np.uint64)).astype(np.float64)
    wide = np.complex128 if "c" in (a.kind, b.kind) else np.float64
    with np.errstate(over="ignore", invalid="ignore"):
        return np.abs(x.astype(wide) - y.astype(wide))
