"""A file of lines that several processes append to: locked, torn lines contained, rewritten in one step.

Every writer holds an exclusive lock (``flock``) for one append, and a rewrite replaces the file while it holds the lock
of the old one; a writer that got the lock of a file which is no longer the one at the path opens it again. A process
killed in the middle of an append leaves a line without its end; the next append closes it first, so that it costs that
line and no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tail:
    """What was read: complete lines, the bytes in front of them and up to their end, and the file they are from.

    ``torn``: the bytes of a last line without its end.
    """

    lines: tuple[bytes, ...]
    begin: int
    end: int
    file: int
    torn: bytes = b""


def append_line(path: Path, line: bytes) -> None:
    """Append one line (without its newline) under the lock, in one write."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as f:
        size = os.fstat(f.fileno()).st_size
        closing = b""
        if size:
            f.seek(size - 1)
            closing = b"" if f.read(1) == b"\n" else b"\n"
        _write_all(f.fileno(), closing + line + b"\n")


def read_lines(path: Path, start: int = 0, file: int = 0) -> Tail:
    """Complete lines from byte ``start`` on; from the beginning if the file is not the one called ``file`` any more."""
    try:
        f = path.open("rb")
    except FileNotFoundError:
        return Tail((), 0, 0, 0)
    with f:
        with contextlib.suppress(OSError):  # file systems without locks are read as they are
            fcntl.flock(f.fileno(), fcntl.LOCK_SH)
        facts = os.fstat(f.fileno())
        begin = start if facts.st_ino == file and facts.st_size >= start else 0
        f.seek(begin)
        data = f.read()
    complete, _, torn = data.rpartition(b"\n")
    end = begin + len(data) - len(torn)
    return Tail(tuple(complete.split(b"\n")) if end > begin else (), begin, end, facts.st_ino, torn)


def rewrite_lines(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Replace the lines of the file by ``change`` of them; a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as f:
        f.seek(0)
        lines = change([x for x in f.read().split(b"\n") if x])
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as new:
            temporary = Path(new.name)
            new.write(b"".join(x + b"\n" for x in lines))
            new.flush()
            os.fsync(new.fileno())
        temporary.chmod(os.fstat(f.fileno()).st_mode & 0o777)
        temporary.replace(path)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[FileIO]:
    """The file at ``path``, created if need be, open for reading and appending and locked for this process alone."""
    while True:
        with path.open("a+b", buffering=0) as f:
            fcntl.flock(f.fileno(), fcntl.LOCK_EX)
            if _is_at(f, path):
                yield f
                return


def _is_at(f: FileIO, path: Path) -> bool:
    try:
        return os.fstat(f.fileno()).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
