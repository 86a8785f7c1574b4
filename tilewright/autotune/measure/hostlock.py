"""One measuring slot per host: a lock on a file that every measuring process of this user on this machine takes.

Building takes it shared, timing takes it alone, so no two sessions time at once and none builds while another times.
The system frees it when a process dies.
"""

from __future__ import annotations

import contextlib
import getpass
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tilewright.core.io.filelock import lock, unlock


def default_path() -> Path:
    """The lock file of this user on this host."""
    return Path(tempfile.gettempdir()) / f"tilewright-measuring-{getpass.getuser()}.lock"


class HostLock:
    """The lock at ``path``. One object may be held once at a time."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or default_path()

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Others may build too; nobody times."""
        with self._held(alone=False):
            yield

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """Nobody else builds or times."""
        with self._held(alone=True):
            yield

    @contextlib.contextmanager
    def _held(self, alone: bool) -> Iterator[None]:
        with self._path.open("ab") as f:
            lock(f, alone)
            try:
                yield
            finally:
                unlock(f)
