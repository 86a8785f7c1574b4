"""Memory that shows what a wrong kernel does to it: inputs that cannot be written, outputs with margins.

A store to a locked array ends the process; a store just outside a guarded one changes its margin. So a bad candidate
cannot spoil the data that the next ones are checked with.
"""

from __future__ import annotations

import ctypes
import mmap
import os

import numpy as np

from tilewright.core.io.pages import fresh_pages, whole_pages
from tilewright.runtime.resources.arrays import address

_MARGIN = 256
_MARK = 0xA5
_POISON = 0xFF


def locked_copy(array: np.ndarray) -> np.ndarray:
    """A copy of ``array`` in pages of its own that nothing can write to; 64-byte aligned.

    Large arrays get huge pages, as the weights and the arena of a compiled model do.
    """
    if array.nbytes == 0:
        return array
    out = fresh_pages(array.nbytes)
    out[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    protect = None if os.name == "nt" else getattr(ctypes.CDLL(None), "mprotect", None)
    if protect is not None:
        protect(ctypes.c_void_p(address(out)), ctypes.c_size_t(whole_pages(array.nbytes)), ctypes.c_int(mmap.PROT_READ))
    out.flags.writeable = False
    return out.view(array.dtype).reshape(array.shape)


class GuardedArray:
    """An array for results, with a margin on both sides that must not change.

    It has pages of its own: where an array begins in its page, compared with those that it is computed from, changes
    the time of a kernel by a tenth, and candidates that differ in nothing else must not differ in that.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        size = self._size + 2 * _MARGIN
        self._raw = fresh_pages(size)
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
