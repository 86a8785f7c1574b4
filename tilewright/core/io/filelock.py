"""Locks on open files, between processes; freed when the file is closed or its process dies.

Where the system has none (Windows), nothing is locked: several processes must not write to one log at a time there.
"""

from __future__ import annotations

from typing import IO

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None


def lock(f: IO[bytes], alone: bool) -> None:
    """Wait until nobody else holds the file, or with ``alone`` False nobody alone."""
    if fcntl is not None:
        fcntl.flock(f.fileno(), fcntl.LOCK_EX if alone else fcntl.LOCK_SH)


def unlock(f: IO[bytes]) -> None:
    """Let others have it before it is closed."""
    if fcntl is not None:
        fcntl.flock(f.fileno(), fcntl.LOCK_UN)
