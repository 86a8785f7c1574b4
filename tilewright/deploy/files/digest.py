"""A digest that finds damage, the same in Python and in ``native/files.c``. Needs numpy alone.

The sum of the words of a block, each times an odd number of its own, so that no change of a single word goes unseen,
and their plain sum. Source: Wegman and Carter, New hash functions and their use in authentication and set equality,
1981.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 1 << 20
"""Words at a time."""


def digest_of(data: bytes | memoryview) -> tuple[int, int]:
    """The digest of a block."""
    digest = Digest()
    digest.update(data)
    return digest.value


class Digest:
    """The digest of bytes that come in pieces of whole words; zeros are added to the last."""

    def __init__(self) -> None:
        self._words = 0
        self._sums = [0, 0]

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The pieces, each added when it is taken."""
        for piece in pieces:
            self.update(piece)
            yield piece

    def update(self, piece: bytes | memoryview) -> None:
        whole = len(piece) // 8 * 8
        self._add(np.frombuffer(piece, "<u8", whole // 8))
        if whole < len(piece):
            self._add(np.frombuffer(bytes(piece[whole:]).ljust(8, b"\0"), "<u8"))

    def _add(self, words: np.ndarray) -> None:
        for start in range(0, len(words), _PIECE):
            part = words[start : start + _PIECE]
            factors = np.arange(self._words, self._words + len(part), dtype=np.uint64) * _STEP | np.uint64(1)
            for k, terms in enumerate((part * factors, part)):
                self._sums[k] = (self._sums[k] + int(np.sum(terms, dtype=np.uint64))) % (1 << 64)
            self._words += len(part)

    @property
    def value(self) -> tuple[int, int]:
        return self._sums[0], self._sums[1]
