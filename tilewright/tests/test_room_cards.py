"""Each room's card: four lines in its ``__init__``, and what it says it may import is what its files do import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, parsed, source_files
from tilewright.tests.test_import_edges import ALLOWED, ANYTHING, named_room, own_imports

CARD = ("Takes:", "Gives:", "May import:", "Never:")


def rooms() -> list[str]:
    """Every sub-package, those inside others too, as a dotted name."""
    folders = sorted(p.parent.relative_to(PACKAGE) for p in PACKAGE.glob("*/**/__init__.py"))
    return [".".join(f.parts) for f in folders if f.parts[0] != "tests"]


def folder(room: str) -> Path:
    return PACKAGE.joinpath(*room.split("."))


def card(room: str) -> dict[str, str]:
    """The four parts of a card. Fails if one is missing, empty or out of order."""
    text = ast.get_docstring(parsed(folder(room) / "__init__.py")) or ""
    places = [text.find(part) for part in CARD]
    assert -1 not in places, f"{room}: expected {', '.join(CARD)} in the docstring of its __init__"
    assert places == sorted(places), f"{room}: expected the card's lines in the order {', '.join(CARD)}"
    ends = (*places[1:], len(text))
    return {c: text[a + len(c) : b].strip() for c, a, b in zip(CARD, places, ends, strict=True)}


def named(text: str) -> set[str]:
    """The modules that a card's line names; what stands in brackets only explains."""
    words = re.findall(r"\w+(?:\.\w+)*", re.sub(r"\([^)]*\)", "", text))
    return {w for w in words if (path := folder(w)).is_dir() or path.with_suffix(".py").is_file()}


def used(room: str) -> set[str]:
    """What the files of a room import: other rooms, and modules around it in the room that it is inside of."""
    found = set()
    for path in source_files():
        if not path.is_relative_to(folder(room)):
            continue
        for _, module in own_imports(parsed(path)):
            name = module.partition(".")[2]
            if name != room and not name.startswith(f"{room}."):
                same = name.split(".")[0] == room.split(".")[0]
                found.add(name if same else named_room(name))
    return found


@pytest.mark.parametrize("room", rooms())
def test_card(room: str) -> None:
    parts = card(room)
    assert all(parts.values()), f"{room}: nothing after {[k for k, v in parts.items() if not v]}"
    if room in ANYTHING:
        assert parts["May import:"].startswith("everything")
        return
    says, does = named(parts["May import:"]), used(room)
    missing = {m for m in does if not any(m == s or m.startswith(f"{s}.") for s in says)}
    assert not missing, f"{room}: its card does not name {sorted(missing)}"
    idle = {s for s in says if s != room and not any(m == s or m.startswith(f"{s}.") for m in does)}
    assert not idle, f"{room}: its card names {sorted(idle)}, which no file of it imports"
    if room in ALLOWED:
        allowed = {r for r in ALLOWED[room] if not r.startswith(f"{room}.")}
        assert says == allowed, f"{room}: its card names {sorted(says)}, the table of edges {sorted(allowed)}"


def test_cards_are_read_as_written() -> None:
    assert named("core, reference (and lowering), the rest of graph_ir.") == {"core", "reference", "graph_ir"}
    assert named("graph_ir.ir, core.dtypes and its neighbours, core.no_such_thing") == {"graph_ir.ir", "core.dtypes"}
