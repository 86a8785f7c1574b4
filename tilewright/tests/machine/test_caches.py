"""The caches that the operating system tells of."""

from __future__ import annotations

from pathlib import Path

from tilewright.machine.caches import read_caches


def test_caches(tmp_path: Path) -> None:
    files = {
        "index0": ("1", "Data\n", "48K"), "index1": ("1", "Instruction", "32K"), "index2": ("2", "Unified", "2M"),
    }  # fmt: skip
    for name, parts in files.items():
        (tmp_path / name).mkdir()
        for part, text in zip(("level", "type", "size"), parts, strict=True):
            (tmp_path / name / part).write_text(text)
    assert read_caches(tmp_path) == (48 * 1024, 2 * 1024**2, 0)
    assert read_caches(tmp_path / "absent") == (32 * 1024, 512 * 1024, 0)
