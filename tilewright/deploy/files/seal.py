"""The seal of a library: digests at the end of the file, which say before it is loaded that nothing in it has changed.

Loading a library runs what is in it, and nothing but the system reads it first. So loaders look at the seal. Weights
inside the library are left out of it: the library looks at them itself, faster, when its model is loaded. Needs numpy
alone.

Layout (little endian): the magic; bytes of the file before the seal; offset and size of the weights; digests of what
comes before and after them.
"""

from __future__ import annotations

import struct

from tilewright.deploy.files.digest import digest_of

MAGIC = b"tilewright seal\n"
_SEAL = struct.Struct("<16s7Q")


class SealError(ValueError):
    """A file that is no library of ours, or damaged."""


def seal_of(data: memoryview, weights: tuple[int, int]) -> bytes:
    """What is to be written behind a library. ``weights``: offset and size."""
    start, size = weights
    return _SEAL.pack(MAGIC, len(data), start, size, *digest_of(data[:start]), *digest_of(data[start + size :]))


def require_seal(data: memoryview) -> None:
    """Raises SealError unless the file, as a whole, is as it was written."""
    end = len(data) - _SEAL.size
    if end < 0 or bytes(data[end : end + len(MAGIC)]) != MAGIC:
        raise SealError("expected an artifact of tilewright; this is another kind of file, or one that was cut off")
    _, size, start, inside, *_ = _SEAL.unpack_from(data, end)
    if size != end or start + inside > end or seal_of(data[:end], (start, inside)) != data[end:]:
        raise SealError("the library is damaged: its digest is not the one it was written with")
