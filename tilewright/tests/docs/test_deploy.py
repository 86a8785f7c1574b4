"""The programs on the page about artifacts, and that of the README, are built and run; its tables are the header's."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.deploy.include import get_include
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.bindings.languages import BINDINGS, LANGUAGES, done
from tilewright.tests.deploy.browser import BROWSERS, said_by_page
from tilewright.tests.deploy.exported import needs_compiler
from tilewright.tests.deploy.program import needs_zig
from tilewright.tests.docs.pages import blocks
from tilewright.tests.sources import ROOT

PAGE = "docs/deploy.md"
SAYS_OUTPUT = """<script>
  setInterval(() => {
    const { value } = document.querySelector("output");
    if (value) fetch("output", { method: "POST", body: value });
  }, 50);
</script>
"""
HEADER = Path(get_include(), "tilewright.h").read_text(encoding="utf-8")

pytestmark = [needs_compiler, pytest.mark.skipif(not BINDINGS.is_dir(), reason="needs the source tree")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where ``model.so`` is."""
    tilewright.compile(perceptron(), progress=False).export(tmp_path / "model.so")
    return tmp_path


def require_first(said: str) -> None:
    """A program printed the first result for zeros."""
    expected = tilewright.compile(perceptron(), progress=False).run({"x": np.zeros((4, 32), np.float32)})["y"]
    np.testing.assert_allclose(float(said), expected[0, 0], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(LANGUAGES))
def test_programs(name: str, folder: Path) -> None:
    language = LANGUAGES[name]
    if missing := language.missing():
        pytest.skip(f"{name}: {missing}")
    suffix = language.example.suffix
    (program,) = blocks(PAGE, {".rs": "rust"}.get(suffix, suffix[1:]))
    source = folder / f"source{suffix}"
    source.write_text(program, encoding="utf-8")
    require_first(done(language.build(source, folder), folder))


@needs_zig
@pytest.mark.parametrize("browser", BROWSERS or [pytest.param("", marks=pytest.mark.skip(reason="needs a browser"))])
def test_the_page_for_browsers(browser: str, tmp_path: Path) -> None:
    target = "llvm -mtriple=wasm32-wasi"
    tilewright.compile(perceptron(), target=target, progress=False).export(tmp_path / "model.wasm")
    for name in ("wasm.js", "model.js"):
        shutil.copy(BINDINGS / "node" / name, tmp_path)
    (page,) = blocks(PAGE, "html")
    (tmp_path / "page.html").write_text(page + SAYS_OUTPUT, encoding="utf-8")
    require_first(said_by_page(browser, tmp_path, "page.html", last="output")["output"].decode())


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_the_program_of_the_readme(folder: Path) -> None:
    (program,), (_, commands) = blocks("README.md", "c"), blocks("README.md", "sh")
    (folder / "first.c").write_text(program, encoding="utf-8")
    require_first(done(["sh", "-ec", f'PATH="{Path(sys.executable).parent}:$PATH"; {commands}'], folder))


def test_statuses_are_those_of_the_header() -> None:
    named = re.findall(r"^  (TW_\w+) = (\d+)", HEADER, re.MULTILINE)
    rows = re.findall(r"^\| (\d+) \| `(TW_\w+)` \|", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(number, name) for name, number in named]


def test_functions_are_those_of_the_header() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    functions = set(re.findall(r"^TW_API .*?(tw_\w+)\(", HEADER, re.MULTILINE))
    mentioned = set(re.findall(r"`(tw_[a-z_]+)`", text))
    assert functions <= mentioned | {"tw_model_input_count", "tw_model_output_count"}
    assert mentioned <= functions | {"tw_options"}
