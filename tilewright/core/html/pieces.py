"""What a piece of a page is put together from. Strings that are given are texts and are escaped; what comes back is
HTML, of the type :class:`Html`, which is not escaped again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from tilewright.core.html.code import highlighted
from tilewright.core.html.style import FRAGMENT, fragment_style

MOST_LINES = 400
"""Of a text; of a longer one the rest is counted, not shown."""
MOST_ROWS = 500


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Bar:
    """A cell that shows a share of 1 by its length. ``bad``: in the colour of what went wrong."""

    share: float
    bad: bool = False


Cell: TypeAlias = "str | Bar"


def fragment(*parts: str) -> str:
    """Pieces as one, with their style: what ``_repr_html_`` returns."""
    return f'<div class="{FRAGMENT}"><style>{fragment_style()}</style>{"".join(map(_html, parts))}</div>'


def title(text: str, more: str = "") -> Html:
    """A line that says what is shown, and the facts behind it."""
    behind = f' <span class="soft">{escape(more)}</span>' if more else ""
    return Html(f"<p><b>{escape(text)}</b>{behind}</p>")


def remark(text: str) -> Html:
    """A line of less weight."""
    return Html(f'<p class="soft">{escape(text)}</p>')


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Html:
    """Columns under headings; as in :func:`tilewright.core.console.table`, a heading that starts with a space is of a
    column aligned to the right, and a row may be shorter than the head."""
    kinds = [' class="n"' if h.startswith(" ") else "" for h in head]
    titles = "".join(f"<th{k}>{escape(h.strip())}</th>" for h, k in zip(head, kinds, strict=True))
    body = "".join(f"<tr>{''.join(map(_cell, row, kinds))}</tr>" for row in rows[:MOST_ROWS])
    made = f'<div class="scroll"><table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>'
    left = len(rows) - MOST_ROWS
    return Html(made + (remark(f"and {left} more rows") if left > 0 else ""))


def facts(named: Mapping[str, str]) -> Html:
    """Names with their values."""
    return Html(f"<dl>{''.join(f'<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>' for k, v in named.items())}</dl>")


def code(text: str, most: int = MOST_LINES) -> Html:
    """A function, a graph or a trace, in colours; at most ``most`` lines of it."""
    lines = text.rstrip("\n").split("\n")
    left = len(lines) - most
    shown = highlighted("\n".join(lines[:most]))
    return Html(f"<pre>{shown}</pre>" + (remark(f"and {left} more lines") if left > 0 else ""))


def details(summary: str, *parts: str) -> Html:
    """What is shown when its summary is clicked."""
    return Html(f"<details><summary>{escape(summary)}</summary>{''.join(map(_html, parts))}</details>")


def _html(part: str) -> str:
    return part if isinstance(part, Html) else escape(part)


def _cell(cell: Cell, kind: str) -> str:
    if isinstance(cell, Bar):
        share = 100 * min(max(cell.share, 0.0), 1.0)
        return f'<td class="wide"><span class="bar{" bad" if cell.bad else ""}" style="width:{share:.1f}%"></span></td>'
    return f"<td{kind}>{_html(cell)}</td>"
