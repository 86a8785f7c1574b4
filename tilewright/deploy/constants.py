"""The weights of an artifact: one block of bytes, each array once, aligned as kernels read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.core.io.stored import Content, loaded
from tilewright.machine.memory import LINE_BYTES

_FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
HEAD = b"tilewright weights\n".ljust(LINE_BYTES, b"\0")
"""The beginning of every block."""
_PIECE = 1 << 20
"""Words at a time."""


@dataclass(slots=True)
class Constants:
    """Arrays of several plans, without repetitions. ``size``: bytes of the block."""

    size: int = len(HEAD)
    _offsets: dict[bytes, int] = field(default_factory=dict)
    _contents: list[tuple[int, Content]] = field(default_factory=list)

    def place(self, name: str, content: Content) -> int:
        """The offset in the block of an array with these elements. Raises UnsupportedError for strings."""
        array = np.asarray(loaded(content), order="C")
        if array.dtype == object:
            raise UnsupportedError(f"tensor {name!r}: strings are no part of an artifact")
        data = array.reshape(-1).view(np.uint8)
        digest = hashlib.sha256(memoryview(data)).digest()  # type: ignore[arg-type]  # buffers from Python 3.12 on
        if digest not in self._offsets:
            self._offsets[digest] = self.size
            self._contents.append((self.size, content))
            self.size += -(-data.size // LINE_BYTES) * LINE_BYTES
        return self._offsets[digest]

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the block, in order."""
        yield HEAD
        for _, content in self._contents:
            data = np.asarray(loaded(content), order="C").reshape(-1).view(np.uint8).tobytes()
            yield data + bytes(-len(data) % LINE_BYTES)


class Digest:
    """Two sums of the words of a block, each times an odd number of its own: what ``native/files.c`` compares with.

    Source: Wegman and Carter, New hash functions and their use in authentication and set equality (1981). The bytes
    may come in pieces of whole words.
    """

    def __init__(self) -> None:
        self._words = 0
        self._sums = [0, 0]

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, each added when it is taken."""
        for piece in pieces:
            self._update(piece)
            yield piece

    def _update(self, piece: bytes) -> None:
        padded = piece + bytes(-len(piece) % 8)
        words = np.frombuffer(padded, "<u8")
        for start in range(0, len(words), _PIECE):
            part = words[start : start + _PIECE]
            i = np.arange(self._words, self._words + len(part), dtype=np.uint64)
            for k, factors in enumerate((i * np.uint64(_FIRST), (i + np.uint64(1)) * np.uint64(_SECOND))):
                total = int(np.sum(part * (factors | np.uint64(1)), dtype=np.uint64))
                self._sums[k] = (self._sums[k] + total) % (1 << 64)
            self._words += len(part)

    @property
    def value(self) -> tuple[int, int]:
        return self._sums[0], self._sums[1]
