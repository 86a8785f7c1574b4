"""A terminal for tests: it knows the few sequences that rich writes to draw over what it drew."""

from __future__ import annotations

import io
import re

from rich.console import Console

_PARTS = re.compile(r"\x1b\[\??\d*(?:;\d+)*[A-Za-z]|\n|\r|[^\x1b\n\r]+")


class Screen(io.StringIO):
    """``lines``: what is to be seen on ``columns`` of it."""

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns = columns
        self.lines = [""]
        self.at = self.column = 0
        self.writes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        for part in _PARTS.findall(text):
            self._take(part)
        return super().write(text)

    def _take(self, part: str) -> None:
        if part == "\n":
            self.at, self.column = self.at + 1, 0
            self.lines += [""] * (self.at + 1 - len(self.lines))
        elif part == "\r":
            self.column = 0
        elif part == "\x1b[2K":
            self.lines[self.at] = ""
        elif part[0] == "\x1b" and part[-1] == "A":
            self.at -= int(part[2:-1])
            assert self.at >= 0, "drawn above the first line"
        elif part[0] != "\x1b":
            line = self.lines[self.at].ljust(self.column)
            self.lines[self.at] = line[: self.column] + part + line[self.column + len(part) :]
            self.column += len(part)
            assert self.column <= self.columns, "wider than the terminal"

    @property
    def seen(self) -> list[str]:
        """The lines with something on them."""
        return [x.rstrip() for x in self.lines if x.strip()]


def console_on(screen: Screen, rows: int = 24) -> Console:
    """A console of that size on it, without colours."""
    return Console(
        file=screen, force_terminal=True, width=screen.columns, height=rows, color_system=None, highlight=False
    )
