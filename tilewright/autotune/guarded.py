"""Memory that shows what a wrong kernel does to it: inputs that cannot be written, outputs with margins.

A store to a locked array ends the process; a store just outside a guarded one changes its margin. So a bad candidate
cannot spoil the data that the next ones are checked with.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from tilewright.runtime.arrays import address

_MARGIN = 256
_MARK = 0xA5
_POISON = 0xFF
_HUGE = 256 << 10
"""Bytes from which an array gets huge pages, with nothing else in them."""
_HUGE_PAGE = 2 << 20


def locked_copy(array: np.ndarray) -> np.ndarray:
    """A copy of ``array`` in pages of its own that nothing can write to; 64-byte aligned.

    Large arrays ask for huge pages, like those of a compiled model: numpy does for its weights, and what is computed
    lies in one large arena.
    """
    if array.nbytes == 0:
        return array
    pages = _pages(array.nbytes)
    out = np.frombuffer(pages, np.uint8, array.nbytes)
    out[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    protect = getattr(ctypes.CDLL(None), "mprotect", None)
    if protect is not None:
        protect(ctypes.c_void_p(address(out)), ctypes.c_size_t(len(pages)), ctypes.c_int(mmap.PROT_READ))
    out.flags.writeable = False
    return out.view(array.dtype).reshape(array.shape)


def _pages(size: int) -> mmap.mmap:
    """Fresh pages for ``size`` bytes. Raises MemoryError."""
    try:
        unit = _HUGE_PAGE if size >= _HUGE else mmap.PAGESIZE
        pages = mmap.mmap(-1, -(-size // unit) * unit)
    except OSError as e:
        raise MemoryError(f"{size} bytes: {e}") from e
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


class Guarded:
    """An array for results, with a margin on both sides that must not change.

    It has pages of its own: where an array begins in its page, compared with those that it is computed from, changes
    the time of a kernel by a tenth, and candidates that differ in nothing else must not differ in that.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        size = self._size + 2 * _MARGIN
        self._raw = np.frombuffer(_pages(size), np.uint8, size)
        self._raw[:_MARGIN] = _MARK
        self._raw[_MARGIN + self._size :] = _MARK
        self._body = self._raw[_MARGIN : _MARGIN + self._size]
        self.array = self._body.view(dtype).reshape(shape)

    def poison(self) -> None:
        """Fill with bytes that no result should have (NaN, -1)."""
        self._body[:] = _POISON

    def is_intact(self) -> bool:
        """True if the margins are as they were."""
        before, after = self._raw[:_MARGIN], self._raw[_MARGIN + self._size :]
        return bool((before == _MARK).all() and (after == _MARK).all())
