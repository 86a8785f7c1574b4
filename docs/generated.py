"""What the scripts that write pages share: their command line, and how a page is held to the code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parent


def same(have: str, want: str) -> tuple[str, str]:
    """For a page whose every line counts."""
    return have, want


@dataclass(frozen=True, slots=True)
class GeneratedPage:
    """A page of ``docs`` that a script there writes.

    ``script``: its file. ``file``: the page, below ``docs``. ``render``: its text. ``comparable``: the parts of the
    page as it is and as it would be written that have to agree here (a page may show what depends on a version).
    """

    script: str
    file: str
    render: Callable[[], str]
    comparable: Callable[[str, str], tuple[str, str]] = same

    @property
    def path(self) -> Path:
        """Where the page is."""
        return DOCS / self.file

    def out_of_date(self) -> str | None:
        """Why the page must be written anew, or None."""
        anew = f"run python docs/{Path(self.script).name}"
        if not self.path.is_file():
            return f"docs/{self.file} is missing: {anew}"
        have, want = self.comparable(self.path.read_text(encoding="utf-8"), self.render())
        if have == want:
            return None
        pairs = zip([*have.splitlines(), ""], [*want.splitlines(), ""], strict=False)
        line, (old, new) = next((n, p) for n, p in enumerate(pairs, 1) if p[0] != p[1])
        return f"docs/{self.file} is out of date from line {line}: {anew}\n  is    {old}\n  wants {new}"

    def write(self) -> None:
        """Write the page."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.render(), encoding="utf-8")

    def main(self) -> int:
        """The command line of the page's script."""
        parser = argparse.ArgumentParser(description=f"Writes docs/{self.file}.")
        parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if it is out of date")
        if not parser.parse_args().check:
            self.write()
            return 0
        reason = self.out_of_date()
        if reason:
            print(reason, file=sys.stderr)
        return 1 if reason else 0


def note(script: str) -> str:
    """The comment below the title of a page."""
    return f"<!-- Written by docs/{Path(script).name}; a test compares it with the code. Do not edit. -->"
