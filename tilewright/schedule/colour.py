"""Colours for the text of functions and traces on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilewright.core.html.code import tokens

if TYPE_CHECKING:
    from rich.text import Text

_COLOURS: Mapping[str, str] = {
    "text": "green", "kind": "yellow", "word": "magenta", "type": "blue", "number": "cyan",
}  # fmt: skip


def coloured(text: str) -> Text:
    """``text`` with colours, for a console."""
    from rich.text import Text

    return Text.assemble(*((part, _COLOURS.get(kind, "")) for part, kind in tokens(text)))
