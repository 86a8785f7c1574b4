"""Pages of memory: large ones for what a model reads again and again, and those of the compiler given back.

A page of 4 KiB ends what a processor fetches ahead, and each has to be looked up, in a virtual machine in two tables.
So what is large asks for pages of 2 MiB (Linux: transparent huge pages; elsewhere nothing changes).

A compiler is some 80 MB of code, as much as a network of 20 million weights, and of no use once the network is built.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from tilewright.machine.memory import HUGE_PAGE_BYTES, LINE_BYTES

_PAGE = mmap.PAGESIZE
LARGE = 256 << 10
"""Bytes from which an array gets huge pages, with nothing else in them."""
_BLOCK = 64 << 20


def whole_pages(nbytes: int) -> int:
    """The bytes of the pages that :func:`fresh_pages` gives for ``nbytes``."""
    unit = HUGE_PAGE_BYTES if nbytes >= LARGE else _PAGE
    return -(-nbytes // unit) * unit


def private_mapping(nbytes: int) -> mmap.mmap:
    """At least ``nbytes`` of zeros that nobody shares. Raises MemoryError."""
    kind = {} if os.name == "nt" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}  # shared pages are never huge
    try:
        return mmap.mmap(-1, max(1, nbytes), **kind)
    except OSError as e:
        raise MemoryError(f"{nbytes} bytes: {e}") from e


def fresh_pages(nbytes: int) -> np.ndarray:
    """``nbytes`` of zeros (uint8) that begin at a page, with nothing else in their pages. Raises MemoryError."""
    size = whole_pages(nbytes)
    huge = nbytes >= LARGE and hasattr(mmap, "MADV_HUGEPAGE")
    mapping = private_mapping(size + (HUGE_PAGE_BYTES if huge else 0))
    raw = np.frombuffer(mapping, np.uint8)
    start = -_address(raw) % HUGE_PAGE_BYTES if huge else 0
    if huge:
        with contextlib.suppress(OSError):  # a kernel without them
            mapping.madvise(mmap.MADV_HUGEPAGE, start, size)
    return raw[start : start + nbytes]


class Pool:
    """Memory for the constants of a model: one after the other, each at a multiple of 64 bytes."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)

    def place(self, array: np.ndarray) -> np.ndarray:
        """A copy of ``array`` that cannot be written."""
        if array.dtype.hasobject or array.nbytes == 0:
            return array
        needed = -(-array.nbytes // LINE_BYTES) * LINE_BYTES
        if needed > len(self._free):
            self._free = fresh_pages(max(needed, _BLOCK))
        mine, self._free = self._free[:needed], self._free[needed:]
        out: np.ndarray = np.ndarray(array.shape, array.dtype, mine.data)
        out[...] = array
        out.flags.writeable = False
        return out


def trim_heap() -> None:
    """Give what lies free in the C library's heap back to the system (glibc; elsewhere nothing)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name != "nt" else None
    if trim is not None:
        trim(0)


def release_code(library: str) -> None:
    """Drop the resident pages of the code of a loaded library, named without its folder and ending: ``libllvmlite``.

    They come back from the file when they are executed. Does nothing on systems without ``/proc`` and ``madvise``.
    """
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
        madvise = ctypes.CDLL(None).madvise
    except (OSError, AttributeError):
        return
    for line in maps.splitlines():
        span, kind, _, _, _, *path = line.split(maxsplit=5)
        if kind == "r-xp" and path and Path(path[0]).name.split(".")[0] == library:
            start, end = (int(x, 16) for x in span.split("-"))
            madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), mmap.MADV_DONTNEED)


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])
