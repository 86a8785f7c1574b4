"""Object code on disk, found by content: what was compiled, for which CPU, by which version of the generator.

An entry is a file named by the SHA-256 of its key; it starts with the digest of its contents, so a damaged file is
noticed, ignored and rewritten. Writes go to a temporary file that is renamed, so readers never see half an entry.
When the directory exceeds its limit, the entries unused for longest are deleted (a hit renews the file's time).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from tilewright.core.config import Config, from_environment
from tilewright.core.io.files import TEMPORARY, beside
from tilewright.machine.target import Target

_SUFFIX = ".o"
_DIGEST_BYTES = 32
_TRIMMED = "trimmed"
"""A file whose time says when the cache was last looked through."""
_TRIM_SECONDS = 600.0
_ENTRY = re.compile(rf"[0-9a-f]{{62}}{re.escape(_SUFFIX)}")
"""What entries are called, in a directory of two more digits: other files in the cache's directory are not ours."""
_UNFINISHED_SECONDS = 3600.0
"""After this long whoever was writing a file was killed."""


ROOMS = ("core", "machine", "tensor_ir", "codegen")
"""The rooms whose code stands between a scheduled function and its machine code."""


@functools.cache
def sources_version(rooms: tuple[str, ...] = ROOMS) -> str:
    """A hash of the sources of ``rooms``, with the versions of llvmlite and LLVM."""
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    for room in rooms:
        digest.update(_room_digest(room))
    return digest.hexdigest()[:16]


@functools.cache
def _room_digest(room: str) -> bytes:
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for path in sorted((package / room).rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.digest()


def object_key(text: str, target: Target, opt: int = 3, rooms: tuple[str, ...] = ROOMS) -> str:
    """The cache key of code given as text (its IR, or anything that determines the IR with the code of ``rooms``)."""
    parts = (sources_version(rooms), target.key(), str(target.has_fma), str(opt), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """The cache in ``directory`` (None: every look-up misses, nothing is written)."""

    directory: Path | None
    limit_bytes: int = 1 << 30

    @staticmethod
    def open(config: Config | None = None) -> ObjectCache:
        """The cache that the configuration names."""
        c = config or from_environment()
        return ObjectCache(c.cache_dir, c.cache_bytes)

    def get(self, key: str) -> bytes | None:
        """The object stored under ``key``, or None."""
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        body = blob[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != blob[:_DIGEST_BYTES]:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: str, body: bytes) -> None:
        """Store an object. A full or read-only disk is not an error: the next run compiles again."""
        if self.directory is None:
            return
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with beside(path, durable=False) as f:
                f.write(hashlib.sha256(body).digest())
                f.write(body)

    def trim_sometimes(self) -> int:
        """As :meth:`trim`, unless somebody did that within the last minutes: it looks at every file. Call it after a
        build."""
        if self.directory is None:
            return 0
        stamp = self.directory / _TRIMMED
        try:
            if time.time() - stamp.stat().st_mtime < _TRIM_SECONDS:
                return 0
        except OSError:
            pass
        with contextlib.suppress(OSError):
            stamp.touch()
        return self.trim()

    def trim(self) -> int:
        """Delete the least recently used entries until the limit holds; the number deleted."""
        if self.directory is None or not self.directory.is_dir():
            return 0
        entries: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("[0-9a-f][0-9a-f]/*"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                if _ENTRY.fullmatch(path.name):
                    entries.append((facts.st_mtime, facts.st_size, path))
                elif path.name.startswith(TEMPORARY) and time.time() - facts.st_mtime > _UNFINISHED_SECONDS:
                    path.unlink()
        total = sum(size for _, size, _ in entries)
        deleted = 0
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                deleted += 1
            total -= size
        return deleted

    def _path(self, key: str) -> Path:
        if self.directory is None:
            raise ValueError("this cache has no directory")
        return self.directory / key[:2] / (key[2:] + _SUFFIX)
