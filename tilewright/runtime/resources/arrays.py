"""Bytes of arrays: aligned allocation, addresses, views of raw memory."""

from __future__ import annotations

import ctypes
import math

import numpy as np

from tilewright.core.io.pages import LARGE, fresh_pages
from tilewright.machine.memory import LINE_BYTES
from tilewright.runtime.resources.memory import require_memory

_NOTHING = ctypes.c_char * 0


def aligned_empty(nbytes: int) -> np.ndarray:
    """A fresh uint8 array of ``nbytes`` whose address is a multiple of 64; a large one in pages of its own."""
    if nbytes >= LARGE:
        return fresh_pages(nbytes)
    raw = np.empty(nbytes + LINE_BYTES, np.uint8)
    skip = -address(raw) % LINE_BYTES
    return raw[skip : skip + nbytes]


def aligned_array(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A fresh C-contiguous array whose address is a multiple of 64."""
    nbytes = math.prod(shape) * dtype.itemsize
    require_memory("run", "the elements of an array", nbytes)
    raw = np.empty(nbytes + LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, raw, -address(raw) % LINE_BYTES)


def address(array: np.ndarray) -> int:
    """The address of the first element, quickly for writable arrays whose element type the buffer protocol knows."""
    try:
        return ctypes.addressof(_NOTHING.from_buffer(array))  # type: ignore[arg-type]  # a buffer from Python 3.12 on
    except (TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


def view(raw: np.ndarray, offset: int, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """A view of a byte array as ``dtype`` and ``shape``, starting at ``offset``."""
    return np.ndarray(shape, dtype, buffer=raw.data, offset=offset)
