"""Text for people, by rich: tables, colours, and what a stream may be drawn on. rich is loaded when first needed."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from tilewright.core.html.code import tokens

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_RULE = "    \n    \n----\n" + 5 * "    \n"
"""How rich is told to rule off the head of a table with a line of dashes, and nothing else."""
_ENDLESS = 1_000_000
_COLOURS: Mapping[str, str] = {
    "text": "green", "kind": "yellow", "word": "magenta", "type": "blue", "number": "cyan",
}  # fmt: skip


def console(out: TextIO, draws: bool | None = None) -> Console:
    """Writes to ``out`` what is given. ``draws``: in colours, and it may move the cursor; None asks whether ``out`` is
    a terminal. NO_COLOR and TERM=dumb are respected."""
    from rich.console import Console

    return Console(file=out, force_terminal=draws, markup=False, emoji=False, highlight=False)


def coloured(text: str) -> Text:
    """The text of a function or a trace with colours, for a console."""
    from rich.text import Text

    return Text.assemble(*((part, _COLOURS.get(kind, "")) for part, kind in tokens(text)))


def bytes_text(n: float) -> str:
    """A number of bytes in the unit that suits it: ``4 KiB``, ``12.5 MiB``."""
    for unit in ("B", "KiB", "MiB"):
        if n < 1024:
            return f"{n:.4g} {unit}"
        n /= 1024
    return f"{n:.4g} GiB"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under headings, as wide as they need to be. A heading that starts with a space is of a column aligned to
    the right; a row may be shorter than the head."""
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table

    drawn = Table(box=Box(_RULE, ascii=True), show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in head:
        drawn.add_column(title.strip(), justify="right" if title.startswith(" ") else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=_ENDLESS, color_system=None, markup=False, emoji=False).print(drawn)
    return "\n".join(line.rstrip() for line in out.getvalue()[:-1].split("\n"))
