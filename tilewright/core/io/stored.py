"""Bytes of a file as arrays in memory of their own: what happens to the file afterwards changes nothing in them.

A mapped file would show what is written to it later, and where it is cut off the process ends. So bytes are read, and
every read makes sure that the file is still as it was when it was opened. A large array is read when somebody needs its
elements, and again for the next one: a network is larger than any of its weights.
"""

from __future__ import annotations

import io
import math
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from tilewright.core.errors import ModelError
from tilewright.core.io.pages import private_mapping

T = TypeVar("T")
LEAST = 64 << 10
"""Bytes from which an array is read when it is needed; smaller ones are read once and stay."""
_WINDOW = 32 << 10
_LARGEST_KEPT = 16 << 20


class StoredFile:
    """An open file, indexed as bytes are, that must not change. Every read raises ModelError if it has."""

    def __init__(self, path: Path, file: io.FileIO) -> None:
        self._path, self._file, self._lock = path.absolute(), file, threading.Lock()
        self._stamp = _stamp(file)
        self._window, self._start = b"", 0
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self._stamp[0]

    def __getitem__(self, at: int) -> int:
        i = at - self._start
        if not 0 <= i < len(self._window):
            self._window, self._start, i = self.read(at, min(_WINDOW, len(self) - at)), at, 0
        return self._window[i]

    def read(self, offset: int, nbytes: int) -> bytes:
        """Some bytes as a copy."""
        out = bytearray(nbytes)
        self.read_into(memoryview(out), offset)
        return bytes(out)

    def read_into(self, out: memoryview, offset: int) -> None:
        """Fill ``out`` from ``offset`` on."""
        done = 0
        try:
            while done < len(out):
                count = self._read_some(out[done:], offset + done)
                if not count:
                    break
                done += count
            is_whole = done == len(out) and _stamp(self._file) == self._stamp
        except OSError as e:
            raise ModelError(f"cannot read {self._path}: {e.strerror or e}") from e
        if not is_whole:
            raise ModelError(f"{self._path} has changed since it was opened")

    def _read_some(self, out: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [out], offset)
        with self._lock:
            self._file.seek(offset)
            return self._file.readinto(out) or 0


def _stamp(file: io.FileIO) -> tuple[int, int]:
    stat = os.fstat(file.fileno())
    return stat.st_size, stat.st_mtime_ns


class Scratch:
    """Memory for one array after the other: fresh pages take longer than what is read into them."""

    def __init__(self) -> None:
        self._view = memoryview(b"")

    def take(self, nbytes: int) -> memoryview | None:
        """Memory that the next call gives again; None for what is too large to be kept."""
        if nbytes > _LARGEST_KEPT:
            return None
        if nbytes > len(self._view):
            self._view = memoryview(private_mapping(nbytes))
        return self._view[:nbytes]


class StoredBytes:
    """A part of a file, in memory while an array of it is in use. ``known``: what was found out about its elements."""

    def __init__(self, file: StoredFile, offset: int, nbytes: int) -> None:
        self.known: dict[Hashable, Any] = {}
        self._file, self._offset, self._nbytes = file, offset, nbytes
        self._memory: weakref.ref[_Memory] | None = None

    def array(self, scratch: Scratch | None = None) -> np.ndarray:
        """The bytes (uint8, read-only). ``scratch``: they may lie there. Raises ModelError and MemoryError."""
        memory = None if self._memory is None else self._memory()
        if memory is None:
            kept = None if scratch is None else scratch.take(self._nbytes)
            view = memoryview(private_mapping(self._nbytes))[: self._nbytes] if kept is None else kept
            self._file.read_into(view, self._offset)
            memory = np.ndarray.__new__(_Memory, (self._nbytes,), np.uint8, view)
            memory.flags.writeable = False
            if kept is None:
                memory.origin = weakref.ref(self)
                self._memory = weakref.ref(memory)
        return memory.view(np.ndarray)


class _Memory(np.ndarray):
    """Memory that bytes of a file were read into. It stands at the end of the bases of all arrays that are views of it,
    as numpy skips no base that a buffer of another kind is behind."""

    origin: weakref.ref[StoredBytes] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StoredArray:
    """An array within a part of a file, described. ``offset``: bytes from the part's beginning to the first element.
    ``stored``: the type of its elements there, if another; they are converted whenever they are read."""

    source: StoredBytes
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    stored: np.dtype | None = None

    @classmethod
    def dense(cls, source: StoredBytes, dtype: np.dtype, shape: tuple[int, ...]) -> StoredArray:
        """The elements of a part, the last index fastest."""
        strides = tuple(dtype.itemsize * math.prod(shape[i + 1 :]) for i in range(len(shape)))
        return cls(source, dtype, shape, strides)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def transposed(self) -> StoredArray:
        """The array with its axes in reverse order."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    def converted(self, dtype: np.dtype) -> StoredArray:
        """The array in another element type."""
        return replace(self, dtype=dtype, stored=self.stored or self.dtype)

    def array(self, scratch: Scratch | None = None) -> np.ndarray:
        """The elements (read-only). ``scratch``: they may lie there. Raises ModelError and MemoryError."""
        stored = self.stored or self.dtype
        elements = np.ndarray(self.shape, stored, self.source.array(scratch), self.offset, self.strides)
        return elements if self.stored is None else cast_elements(elements, self.dtype)

    def once(self, question: str, find: Callable[[np.ndarray], T]) -> T:
        """What ``find`` says of the elements, in whatever order; they are read for it once, for all arrays of them."""
        known, key = self.source.known, (question, self.dtype, self.stored, self.offset, math.prod(self.shape))
        if key not in known:
            known[key] = find(self.array())
        found: T = known[key]
        return found

    def key(self) -> Hashable:
        """Equal for equal descriptions."""
        return self.source, self.dtype, self.shape, self.strides, self.offset, self.stored


def cast_elements(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``array`` in another element type; what is too large for it becomes infinite."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


Content: TypeAlias = "np.ndarray | StoredArray"


def content_of(array: np.ndarray) -> Content:
    """``array`` itself, or its description if it is a view of what can be read again."""
    base: object = array
    while isinstance(base, np.ndarray) and not isinstance(base, _Memory):
        base = base.base
    if not isinstance(base, _Memory) or base.origin is None or array.size == 0:
        return array
    source = base.origin()
    if source is None:
        return array
    start = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return StoredArray(source, array.dtype, array.shape, array.strides, start)


def loaded(content: Content, scratch: Scratch | None = None) -> np.ndarray:
    """The elements. ``scratch``: they may lie there. Raises ModelError and MemoryError."""
    return content.array(scratch) if isinstance(content, StoredArray) else content
