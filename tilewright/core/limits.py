"""How large what a model describes may be. A file of a few bytes can ask for any number; each is held to one of these.

The limits are far beyond what machines can do today: within them a build stays quick, and no index leaves 64 bits.
"""

from __future__ import annotations

from tilewright.core.errors import ResourceError, UnsupportedError

MAX_RANK = 32
"""Dimensions of a tensor: as many as all versions of numpy that we support have."""
MAX_DIM = 2**40
"""Size of a dimension that a file declares."""
MAX_STORED_ELEMENTS = 2**31
"""Elements of a tensor that a file declares: an input or a constant."""
MAX_ELEMENTS = 2**38
"""Elements of any value, also of those that are never in memory as a whole."""
MAX_MADE_BYTES = 1 << 28
"""Bytes that a build makes of a few: tables, and constants that the file gives by a rule."""


def require_rank(who: str, rank: int) -> None:
    """Raises UnsupportedError for more dimensions than tensors can have here."""
    if rank > MAX_RANK:
        raise UnsupportedError(f"{who}: expected at most {MAX_RANK} dimensions, got {rank}")


def require_makeable(who: str, what: str, nbytes: int) -> None:
    """Raises ResourceError where a build would make more than :data:`MAX_MADE_BYTES` of something."""
    if nbytes > MAX_MADE_BYTES:
        raise ResourceError(f"{who}: expected {what} of at most {MAX_MADE_BYTES} bytes, got {nbytes}")
