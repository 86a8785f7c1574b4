"""Files that we write: whole or not at all, and never in place of somebody else's.

Whatever a command or an API writes goes through here (a test finds what does not): it is written beside its place,
brought to the disk, and renamed. A full disk, an error or a kill in between leaves what was there before; a kill may
leave a file ``.tilewright-...`` beside it, which nothing reads. Before that, the file at the place must be of the kind
that is written, which its contents say, or empty. Tuning logs, which several processes append to, are in
``autotune/records/logfile.py``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.core.errors import InputError

TEMPORARY = ".tilewright-"
"""How the names of unfinished files begin."""
MARK = "written by tilewright, which replaces it on its next run"
"""What the first line of a text says, after the sign of a comment."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What is written. ``what``: for messages (``a report page``); ``is_ours``: whether an open file is one."""

    what: str
    is_ours: Callable[[IO[bytes]], bool]


def begins_with(what: str, *starts: bytes) -> Kind:
    """The kind of files that begin with one of ``starts``."""
    return Kind(what, lambda f: f.read(max(map(len, starts))).startswith(starts))


def ends_with(what: str, end: bytes) -> Kind:
    """The kind of files that end with ``end``."""

    def is_ours(f: IO[bytes]) -> bool:
        f.seek(max(0, f.seek(0, os.SEEK_END) - len(end)))
        return f.read() == end

    return Kind(what, is_ours)


TEXT = begins_with("a text that tilewright wrote", f"# {MARK}\n".encode(), f"; {MARK}\n".encode())
"""Dumps: their first line is a comment, so that what parsed without it does with it."""


def marked(text: str, comment: str = "#") -> bytes:
    """``text`` with the first line of :data:`TEXT`."""
    return f"{comment} {MARK}\n{text}".encode()


def require_replaceable(path: str | Path, kind: Kind) -> Path:
    """The place that writing to ``path`` is about, symbolic links followed. Raises InputError if something else than
    ``kind`` is there."""
    place = Path(path).expanduser()
    try:
        facts = place.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(place))
    if stat.S_ISDIR(facts.st_mode):
        raise InputError(f"{path}: expected {kind.what} or no file, found a directory")
    if not stat.S_ISREG(facts.st_mode):
        return place  # a pipe or a device: nothing there to lose
    if facts.st_size:
        with place.open("rb") as f:
            if not kind.is_ours(f):
                raise InputError(
                    f"{path}: expected {kind.what} or no file, found another kind of file; it stays as it is"
                )
    return Path(os.path.realpath(place))


@contextlib.contextmanager
def replacing(path: str | Path, kind: Kind) -> Iterator[IO[bytes]]:
    """The file to write, in place of the ``kind`` that is at ``path`` or of none. Raises InputError for anything else
    there, OSError with the path for what the system refuses."""
    place = require_replaceable(path, kind)
    with _named(path):
        if place.exists() and not place.is_file():
            with place.open("wb") as f:
                yield f
            return
        with beside(place) as f:
            yield f


def write_file(path: str | Path, kind: Kind, data: bytes) -> None:
    """:func:`replacing` with what is known as a whole."""
    with replacing(path, kind) as f:
        f.write(data)


@contextlib.contextmanager
def beside(place: Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """A new file in the directory of ``place``, which it replaces at the end, with its permissions; after an error
    there is none. ``durable``: on the disk before that."""
    f, temporary = _fresh(place.parent)
    with contextlib.ExitStack() as undo:
        undo.callback(temporary.unlink, missing_ok=True)
        with f:
            yield f
            if durable:
                f.flush()
                os.fsync(f.fileno())
        _take_rights(temporary, place)
        temporary.replace(place)
        undo.pop_all()
    if durable:
        _sync_directory(place.parent)


def create_file(path: str | Path, data: bytes) -> Path:
    """Write a file that was not there; its path, which has a number if ``path`` was taken."""
    wanted = place = Path(path)
    for n in itertools.count(2):
        with contextlib.suppress(FileExistsError), contextlib.ExitStack() as undo, _named(place):
            with place.open("xb") as f:
                undo.callback(place.unlink, missing_ok=True)
                f.write(data)
            undo.pop_all()
            break
        place = wanted.with_name(f"{wanted.stem}_{n}{wanted.suffix}")
    return place


def _fresh(directory: Path) -> tuple[IO[bytes], Path]:
    """A new file, with the permissions that new files get here, and its path."""
    n = 0
    while True:
        path = directory / f"{TEMPORARY}{os.getpid()}-{threading.get_native_id()}-{n}"
        with contextlib.suppress(FileExistsError):
            return path.open("xb"), path
        n += 1


def _take_rights(new: Path, place: Path) -> None:
    """The owner and permissions of the file at ``place``, if there is one and as far as we may give them."""
    with contextlib.suppress(OSError):
        old, own = place.stat(), new.stat()
        if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid) and hasattr(os, "chown"):
            with contextlib.suppress(OSError):
                os.chown(new, old.st_uid, old.st_gid)
        new.chmod(stat.S_IMODE(old.st_mode))


def _sync_directory(directory: Path) -> None:
    """Bring a rename to the disk, where directories can be opened."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _named(path: str | Path) -> Iterator[None]:
    """Errors of the system that name no file, or the unfinished one, name ``path``."""
    try:
        yield
    except OSError as e:
        unnamed = e.filename is None or Path(os.fsdecode(e.filename)).name.startswith(TEMPORARY)
        if e.errno is None or not unnamed:
            raise
        raise OSError(e.errno, os.strerror(e.errno), str(path)) from e
