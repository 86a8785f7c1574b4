"""The page about work on graphs: what it says that commands print is what they print."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.docs.pages import blocks
from tilewright.tests.sources import ROOT

PAGE = "docs/graph-work.md"
pytestmark = pytest.mark.skipif(not (ROOT / PAGE).is_file(), reason="needs the source tree")


def test_commands_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(perceptron(), tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks(PAGE, "python")), PAGE, "exec"), {})
    capsys.readouterr()
    examples = blocks(PAGE, "console")
    assert len(examples) >= 2
    for example in examples:
        command, _, said = example.partition("\n")
        assert main(shlex.split(command)[2:]) in (0, 1)
        out = capsys.readouterr().out
        beginning = said.removesuffix("...\n")
        assert out.startswith(beginning), out
        assert beginning != said or out == said, out
