"""The control groups (Linux) that a process is in: the files in which they set limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def read(path: Path) -> str | None:
    """The text of a file; None where there is none to read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def control_directories(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """The directory of each group from the process's own to the root, with the version (2 or 1) of its hierarchy."""
    for line in (read(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        _, controllers, path = parts
        if controllers == "":
            yield from ((2, d) for d in _ancestors(root / "sys/fs/cgroup", path))
        elif controller in controllers.split(","):
            for mount in (controllers, controller):
                yield from ((1, d) for d in _ancestors(root / "sys/fs/cgroup" / mount, path))


def control_files(root: Path, controller: str, v2: str, v1: str) -> Iterator[str]:
    """The texts of a limit's file in all these groups."""
    for version, directory in control_directories(root, controller):
        text = read(directory / (v2 if version == 2 else v1))
        if text is not None:
            yield text


def _ancestors(mount: Path, path: str) -> list[Path]:
    relative = Path(path.lstrip("/"))
    return [mount / relative, *(mount / p for p in relative.parents)]
