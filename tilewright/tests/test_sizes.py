"""No file is longer than 500 lines, ours or the tests'; no room has more than 15 modules side by side."""

from __future__ import annotations

from collections import Counter

from tilewright.tests.sources import PACKAGE, ROOT, source_files

LINES = 500
LONGER: set[str] = set()
"""Files that are still to be cut."""
MODULES = 15


def test_length() -> None:
    folders = ("tilewright", "benchmarks", "docs", "tools")
    files = [p for f in folders for p in (ROOT / f).rglob("*.py")]
    assert files
    lengths = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert not {k: n for k, n in lengths.items() if n > LINES and k not in LONGER}


def test_modules_of_a_room() -> None:
    rooms = Counter(p.parent.relative_to(PACKAGE).as_posix() for p in source_files() if p.name != "__init__.py")
    assert not {room: n for room, n in rooms.items() if n > MODULES}
