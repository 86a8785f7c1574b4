"""The words of functions, graphs and traces by what they are; and such a text as HTML, in colours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

_TOKENS = re.compile(
    r"(?P<text>\"[^\"\n]*\")"
    r"|(?P<kind>\b(?:parallel|vectorized|unrolled|local|shared|guard|init)\b)"
    r"|(?P<word>\b(?:def|for|in|with|if|as|range|block|spatial|reduce|ordered|out|dim)\b)"
    r"|(?P<type>\b(?:bfloat|float|uint|int|bool|complex)\d*\b)"
    r"|(?P<number>(?<![\w.])\d[\w.+-]*)"
)
"""Texts, what a schedule changes (loop kinds, scopes), words, types, numbers."""


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """The parts of ``text`` in order, each with what it is: "text", "kind", "word", "type", "number", or "" for the
    rest."""
    at = 0
    for found in _TOKENS.finditer(text):
        if found.start() > at:
            yield text[at : found.start()], ""
        yield found.group(), str(found.lastgroup)
        at = found.end()
    if at < len(text):
        yield text[at:], ""


def highlighted(text: str) -> str:
    """``text`` as HTML, a class around each part that has a colour."""
    return "".join(f'<span class="{kind}">{escape(part)}</span>' if kind else escape(part)
                   for part, kind in tokens(text))  # fmt: skip
