"""A file of lines that several processes append to: recognised, locked, torn lines contained, rewritten in one step.

Every writer holds an exclusive lock for one append, and a rewrite replaces the file while it holds the lock of the old
one; a writer that got the lock of a file which is no longer the one at the path opens it again. An append that the
system refuses in the middle (a full disk) is taken back. A process killed in the middle of one leaves a line without
its end; the next append closes it first, so that it costs that line and no other.

Nothing is read from or written to a file that is not a log: its first line is a JSON object with a ``schema``, or, if
that line is damaged, one of the next few.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO

from tilewright.core.errors import InputError
from tilewright.core.io.filelock import HAS_LOCKS, lock, unlock
from tilewright.core.io.files import beside

_BUFFER = 1 << 20
_MARK = 64
_LOOKED_AT = 8
"""Lines that may be damaged at the beginning of a log."""
_LONGEST = 4 << 20
"""Bytes in which one of them must end."""
_BEGIN = re.compile(rb'\{"schema":\d')
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")


@dataclass(frozen=True, slots=True)
class Position:
    """How far a log was read: the byte after the last complete line, the file's number, and the bytes before that."""

    at: int = 0
    file: int = 0
    mark: bytes = b""


START = Position()


@dataclass(frozen=True, slots=True)
class Tail:
    """What there is to read, while the file is open: complete lines with the place of each, and where the next reading
    begins. ``is_new``: it is not the file that was read before. ``torn``: the bytes of a last line without its end.
    """

    lines: Iterator[tuple[int, bytes]]
    is_new: bool
    end: Position
    torn: bytes = b""
    file: FileIO | None = None

    def read(self, place: int, length: int) -> bytes:
        """A line that was there before; not while ``lines`` is being read."""
        if self.file is None:
            return b""
        self.file.seek(place)
        return self.file.read(length) or b""


def append_made(path: Path, start: Position, make: Callable[[Tail], Sequence[bytes]]) -> Position:
    """Append what ``make`` makes of the lines that came after ``start`` (without newlines), under the lock, in one
    write: all of it or, if that fails, none. Where the next reading begins. Raises InputError if there is a file that
    is not a log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path) as f:
        facts = os.fstat(f.fileno())
        size = facts.st_size
        tail = _tail(path, f, start, facts)
        lines = make(tail)
        closing = b"\n" if tail.torn else b""
        try:
            _write_all(f.fileno(), closing + b"".join(x + b"\n" for x in lines))
        except OSError as e:
            with contextlib.suppress(OSError):
                os.ftruncate(f.fileno(), size)
            raise OSError(e.errno, e.strerror, str(path)) from e
        end = os.fstat(f.fileno()).st_size
        return Position(end, facts.st_ino, _before(f, end))


@contextlib.contextmanager
def reading(path: Path, start: Position = START) -> Iterator[Tail]:
    """What came after ``start``; all of it if the file is another one by now. A missing file has no lines. Raises
    InputError if it is not a log."""
    if not _is_there(path):
        yield Tail(iter(()), True, START)
        return
    with path.open("rb", buffering=0) as f:
        with contextlib.suppress(OSError):  # file systems without locks are read as they are
            lock(f, alone=False)
        facts = os.fstat(f.fileno())
        with contextlib.suppress(OSError):  # what comes after this size is not read, so that writers need not wait
            unlock(f)
        yield _tail(path, f, start, facts)


def _tail(path: Path, f: FileIO, start: Position, facts: os.stat_result) -> Tail:
    goes_on = facts.st_ino == start.file and facts.st_size >= start.at and _before(f, start.at) == start.mark
    begin = start.at if goes_on else 0
    if not goes_on:
        _require_lines(path, f)
    end = _last_end(f, begin, facts.st_size)
    f.seek(end)
    torn = f.read(facts.st_size - end) or b""
    position = Position(end, facts.st_ino, _before(f, end))
    return Tail(_lines(f, begin, end), not goes_on, position, torn, f)


def rewrite_lines(
    path: Path, choose: Callable[[Iterable[bytes]], Mapping[int, bytes | None]], output: Path | None = None,
    dry_run: bool = False,
) -> None:  # fmt: skip
    """Keep the lines whose numbers (from 0, empty ones not counted) ``choose`` gives for all of them, each as it is or
    as the text there. ``output``: a new file for them, instead of this one. ``dry_run``: only ``choose``.

    A reader sees the old file or the new one. Raises InputError if the file is not a log, or if there is one at
    ``output``.
    """
    if not _is_there(path):
        choose(())
        return
    if output is not None:
        _require_free(output)
    with _locked(path) as f:
        place = Path(os.path.realpath(path))
        with place.open("rb", buffering=_BUFFER) as old:
            kept = choose(x.rstrip(b"\r\n") for x in old if x.strip())
            if dry_run:
                return
            old.seek(0)
            with beside(place if output is None else Path(os.path.realpath(output))) as new:
                for number, line in enumerate(filter(bytes.strip, old)):
                    if number in kept:
                        text = kept[number]
                        new.write(line if text is None else text)
                        new.write(b"" if text is None and line.endswith(b"\n") else b"\n")
                if not HAS_LOCKS:  # a file that is open cannot be replaced there
                    f.close()
                    old.close()


def _require_free(path: Path) -> None:
    if _is_there(path) and path.stat().st_size:
        raise InputError(f"{path}: expected no file or an empty one, found one; it stays as it is")


def require_log(path: Path) -> None:
    """Raises InputError if there is something at ``path`` that is not a log. An empty file is one."""
    if _is_there(path):
        with path.open("rb") as f:
            _require_lines(path, f)


def _is_there(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise InputError(f"{path}: expected a tuning log, found {what}")
    return True


def _require_lines(path: Path, f: IO[bytes]) -> None:
    f.seek(0)
    data = f.read(_MARK)
    begin = data.removeprefix(_BOM).lstrip().replace(b" ", b"")
    if _BEGIN.match(begin):
        return
    if len(data) < _MARK and b'{"schema":'.startswith(begin):  # empty, or killed while the very first line was written
        return
    data += f.read(_LONGEST)
    if data.startswith(_UTF16):
        raise InputError(f"{path}: expected a tuning log, found UTF-16 text; store it as UTF-8")
    first = [x for x in data.split(b"\n") if x.strip()][:_LOOKED_AT]
    if first and not any(map(_is_entry, first)):
        raise InputError(f"{path}: expected a tuning log, found another kind of file; it stays as it is")


def _is_entry(line: bytes) -> bool:
    try:
        data = json.loads(line.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and type(data.get("schema")) is int


def _before(f: IO[bytes], at: int) -> bytes:
    """The last bytes before a place."""
    f.seek(max(0, at - _MARK))
    return f.read(min(at, _MARK))


def _last_end(f: IO[bytes], begin: int, size: int) -> int:
    """Where the last complete line between two places ends."""
    at = size
    while at > begin:
        start = max(begin, at - _BUFFER)
        f.seek(start)
        found = f.read(at - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        at = start
    return begin


def _lines(f: FileIO, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    f.seek(begin)
    buffered = io.BufferedReader(f, _BUFFER)
    place = begin
    while place < end and (line := buffered.readline()):
        yield place, line.rstrip(b"\r\n")
        place += len(line)
    buffered.detach()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[FileIO]:
    """The log at ``path``, created if need be, open for reading and appending and locked for this process alone."""
    while True:
        _is_there(path)
        with path.open("a+b", buffering=0) as f:
            lock(f, alone=True)
            if _is_at(f, path):
                _require_lines(path, f)
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
