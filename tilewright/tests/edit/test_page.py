"""The pages about work on graphs: what they say that commands print is what they print."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.docs.pages import blocks
from tilewright.tests.sources import ROOT

PAGES = {"docs/graph-work.md": 2, "docs/editing-graphs.md": 5}
"""Pages, and how many commands they show at least."""
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(perceptron(), tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks(page, "python")), page, "exec"), {})
    capsys.readouterr()
    examples = blocks(page, "console")
    assert len(examples) >= PAGES[page]
    for example in examples:
        command, _, said = example.partition("\n")
        assert main(shlex.split(command)[2:]) in (0, 1)
        out = capsys.readouterr().out
        beginning = said.removesuffix("...\n")
        assert out.startswith(beginning), out
        assert beginning != said or out == said, out
