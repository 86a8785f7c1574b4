"""Colours for the text of functions and traces."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_TOKENS = re.compile(
    r"(?P<green>\"[^\"\n]*\")"
    r"|(?P<yellow>\b(?:parallel|vectorized|unrolled|local|shared|guard|init)\b)"
    r"|(?P<magenta>\b(?:def|for|in|with|if|as|range|block|spatial|reduce|ordered|out|dim)\b)"
    r"|(?P<blue>\b(?:bfloat|float|uint|int|bool|complex)\d*\b)"
    r"|(?P<cyan>(?<![\w.])\d[\w.+-]*)"
)
"""Texts, what a schedule changes (loop kinds, scopes), words, types, numbers: by the colours they have."""


def coloured(text: str) -> Text:
    """``text`` with colours, for a console."""
    from rich.text import Text

    shown = Text(text)
    shown.highlight_regex(_TOKENS)
    return shown
