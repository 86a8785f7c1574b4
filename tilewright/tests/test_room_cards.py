"""Each room's card: four lines in its ``__init__``, and what it says it may import is what the table allows."""

from __future__ import annotations

import ast

import pytest

from tilewright.tests.sources import PACKAGE, parsed, rooms

CARD = ("Takes:", "Gives:", "May import:", "Never:")


@pytest.mark.parametrize("room", rooms())
def test_card(room: str) -> None:
    text = ast.get_docstring(parsed(PACKAGE / room / "__init__.py")) or ""
    places = [text.find(part) for part in CARD]
    assert -1 not in places, f"{room}: expected {', '.join(CARD)} in the docstring of its __init__"
    assert places == sorted(places), f"{room}: expected the card's lines in the order {', '.join(CARD)}"
    for part, start in zip(CARD, places, strict=True):
        rest = text[start + len(part) :].strip()
        assert rest, f"{room}: nothing after {part}"
