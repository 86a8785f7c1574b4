"""Which state of its source the compiler is: the commit of the checkout that it runs from."""

from __future__ import annotations

import functools
from pathlib import Path

_GIT = ".git"
_SYMBOLIC = "ref: "


@functools.cache
def source_commit() -> str:
    """The commit, in hex; empty if this is an installed copy. Changes that are not committed do not show."""
    return commit_of(Path(__file__).resolve().parents[3])


def commit_of(checkout: Path) -> str:
    """The commit that is checked out there; empty if none is. Read from git's files, of a worktree too."""
    try:
        own = checkout / _GIT
        if own.is_file():
            own = checkout / own.read_text("utf-8").removeprefix("gitdir: ").strip()
        head = (own / "HEAD").read_text("utf-8").strip()
        if not head.startswith(_SYMBOLIC):
            return head
        name = head.removeprefix(_SYMBOLIC)
        shared = own / "commondir"
        common = own / shared.read_text("utf-8").strip() if shared.is_file() else own
        if (common / name).is_file():
            return (common / name).read_text("utf-8").strip()
        packed = (common / "packed-refs").read_text("utf-8").splitlines()
        return next((x.split()[0] for x in packed if x.endswith(f" {name}")), "")
    except (OSError, UnicodeDecodeError):
        return ""
