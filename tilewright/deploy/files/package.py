"""Packages: one file with the code of a model for several CPUs, each with its weights. Reading needs numpy alone.

Layout (little endian): the magic, format, number of members, bytes of the file, and a digest of the table behind them;
then 128 bytes a member: the architecture and system its code is for, and offset, size and digest of code, manifest and
weights. Code and weights begin at pages, so that they can be mapped; weights that members share stand there once. The
first member that a CPU can run is the best for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.core.io.files import begins_with, replacing
from tilewright.deploy.files.digest import digest_of
from tilewright.machine.memory import PAGE_BYTES

MAGIC = b"\x89TWA\r\n\x1a\n"
FORMAT = 1
PACKAGE = begins_with("a package of tilewright", MAGIC)
_HEAD = struct.Struct("<8sIIQQQ")
_MEMBER = struct.Struct("<32s12Q")
_MOST = 1024
"""Members of a package."""


class PackageError(ValueError):
    """A file that is no package, damaged, cut off, or of a newer format."""


@dataclass(frozen=True, slots=True)
class Part:
    """A range of the file with its digest."""

    offset: int
    size: int
    digest: tuple[int, int]

    def of(self, data: memoryview, what: str) -> memoryview:
        """These bytes. Raises PackageError if they are not what was written."""
        found = data[self.offset : self.offset + self.size]
        if len(found) != self.size or digest_of(found) != self.digest:
            raise PackageError(f"the {what} is damaged: its digest is not the one it was written with")
        return found


@dataclass(frozen=True, slots=True)
class Member:
    """``system``: ``x86_64-linux``; ``code``: a shared library without weights."""

    system: str
    code: Part
    manifest: Part
    weights: Part


def write_package(path: Path, members: Sequence[tuple[str, bytes, bytes, Path]]) -> None:
    """Write a package of (system, code, manifest, file of weights), the best first."""
    at = _aligned(_HEAD.size + _MEMBER.size * len(members))
    blocks: list[bytes | Path] = []
    places: dict[tuple[int, tuple[int, int]], Part] = {}

    def place(block: bytes | Path) -> Part:
        nonlocal at
        data = block if isinstance(block, bytes) else block.read_bytes()
        key = len(data), digest_of(data)
        if key not in places:
            places[key] = Part(at, *key)
            blocks.append(block)
            at += _aligned(len(data))
        return places[key]

    rows = b""
    for system, code, manifest, weights in members:
        parts = [place(code), place(manifest), place(weights)]
        numbers = [n for p in parts for n in (p.offset, p.size, *p.digest)]
        rows += _MEMBER.pack(system.encode(), *numbers)
    head = _HEAD.pack(MAGIC, FORMAT, len(members), at, *digest_of(rows))
    with replacing(path, PACKAGE) as f:
        f.write(_padded(head + rows))
        for block in blocks:
            f.write(_padded(block if isinstance(block, bytes) else block.read_bytes()))


def read_package(data: memoryview) -> tuple[Member, ...]:
    """The members of a package, after the table is found to be whole. Raises PackageError."""
    if len(data) < _HEAD.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise PackageError("expected a package of tilewright, got another kind of file")
    _, version, count, size, *digest = _HEAD.unpack_from(data)
    if version != FORMAT:
        raise PackageError(f"expected format {FORMAT}, got {version}: a newer release wrote it")
    rows = data[_HEAD.size : _HEAD.size + _MEMBER.size * min(count, _MOST)]
    if size != len(data) or not 0 < count <= _MOST or digest_of(rows) != tuple(digest):
        raise PackageError(f"the package is damaged or cut off: it says that it has {size} bytes, and has {len(data)}")
    return tuple(_members(rows, len(data)))


def _members(rows: memoryview, size: int) -> Iterator[Member]:
    for system, *numbers in _MEMBER.iter_unpack(rows):
        parts = [Part(o, n, (a, b)) for o, n, a, b in zip(*[iter(numbers)] * 4, strict=True)]
        if any(p.offset % PAGE_BYTES or p.offset + p.size > size for p in parts):
            raise PackageError("the table of the package names places outside of it")
        yield Member(system.rstrip(b"\0").decode(errors="replace"), *parts)


def manifests(data: memoryview) -> list[dict[str, Any]]:
    """What the members say of themselves."""
    return [json.loads(bytes(m.manifest.of(data, "manifest"))) for m in read_package(data)]


def _aligned(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _padded(data: bytes) -> bytes:
    return data + bytes(_aligned(len(data)) - len(data))
