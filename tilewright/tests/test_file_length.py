"""No file is longer than 600 lines, ours or the tests'."""

from __future__ import annotations

from tilewright.tests.sources import ROOT

LIMIT = 600


def test_length() -> None:
    folders = ("tilewright", "benchmarks", "docs", "tools")
    files = [p for f in folders for p in (ROOT / f).rglob("*.py")]
    assert files
    lengths = {p.relative_to(ROOT).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in files}
    assert not {k: n for k, n in lengths.items() if n > LIMIT}
