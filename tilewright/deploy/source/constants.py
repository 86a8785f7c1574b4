"""The weights of an artifact: one block of bytes, each array once, aligned as kernels read them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.core.io.stored import Content, loaded
from tilewright.machine.memory import LINE_BYTES

HEAD = b"tilewright weights\n".ljust(LINE_BYTES, b"\0")
"""The beginning of every block."""


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
