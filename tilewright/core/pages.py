"""Memory of mapped files: give back the pages of an array that has been read and will hardly be read again."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

_PAGE = mmap.PAGESIZE


def release_pages(array: np.ndarray) -> None:
    """Drop the resident pages of an array that is a view of a mapped file. They come back from the file when read.

    Does nothing for other arrays, small ones, and systems without ``madvise``.
    """
    mapping = _mapping(array)
    if mapping is None or array.nbytes < 16 * _PAGE or not hasattr(mapping, "madvise"):
        return
    whole = np.frombuffer(mapping, np.uint8)
    low, high = np.lib.array_utils.byte_bounds(array)
    start = low - whole.__array_interface__["data"][0]
    first = -(-start // _PAGE) * _PAGE
    length = (start + high - low) // _PAGE * _PAGE - first
    if length > 0:
        with contextlib.suppress(OSError, ValueError):
            mapping.madvise(mmap.MADV_DONTNEED, first, length)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The mapping that an array is a view of, if any."""
    base: object = array
    for _ in range(32):
        if isinstance(base, mmap.mmap):
            return base
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return None
