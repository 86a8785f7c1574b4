"""Colours for the text of functions and traces."""

from __future__ import annotations

import re

_RESET = "\x1b[0m"
_COLOURS = {
    "kind": "\x1b[1;33m",  # what a schedule changes: loop kinds, scopes
    "word": "\x1b[35m",
    "text": "\x1b[32m",
    "number": "\x1b[36m",
    "type": "\x1b[34m",
}
_TOKENS = re.compile(
    r"(?P<text>\"[^\"\n]*\")"
    r"|(?P<kind>\b(?:parallel|vectorized|unrolled|local|shared|guard|init)\b)"
    r"|(?P<word>\b(?:def|for|in|with|if|as|range|block|spatial|reduce|ordered|out|dim)\b)"
    r"|(?P<type>\b(?:bfloat|float|uint|int|bool|complex)\d*\b)"
    r"|(?P<number>(?<![\w.])\d[\w.+-]*)"
)


def coloured(text: str) -> str:
    """``text`` with ANSI colours; without them it is ``text`` again."""
    return _TOKENS.sub(lambda m: f"{_COLOURS[m.lastgroup or 'word']}{m.group()}{_RESET}", text)
