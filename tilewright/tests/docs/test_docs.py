"""Documentation is run: its Python blocks, its commands, its tables and its generated page."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.frontend.table import CONVERTERS
from tilewright.inspect.ort import is_installed
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.deploy.exported import has_compiler
from tilewright.tests.docs.pages import blocks, prose
from tilewright.tests.graph_ir.rewriting import RULES
from tilewright.tests.sources import ROOT
from tilewright.tests.test_import_edges import ALLOWED

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")])
def test_python_blocks_run(page: str, tmp_path: Path) -> None:
    saved(perceptron(), tmp_path)
    script, code = tmp_path / "page.py", "\n".join(blocks(page, "python"))
    if ".export(" in code and not has_compiler():
        pytest.skip("needs a C compiler")
    script.write_text(code, encoding="utf-8")
    run = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


COMMANDS = [line[2:] for block in blocks("README.md", "console") for line in block.splitlines() if line[:2] == "$ "]


@pytest.mark.parametrize("line", [c for c in COMMANDS if c.startswith("tilewright ")])
def test_commands_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(perceptron(), tmp_path)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "build" and not has_compiler():
        pytest.skip("needs a C compiler")
    if words[0] == "bench":
        words += ["--runs", "2", *([] if is_installed() else ["--alone"])]
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", [c for c in COMMANDS if not c.startswith("tilewright ")])
def test_other_commands_name_files_that_exist(line: str) -> None:
    files = [w for w in shlex.split(line, comments=True) if w.endswith((".py", ".sh")) or w.startswith("./")]
    assert files
    assert all((ROOT / f).is_file() for f in files)


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    links = [x for x in re.findall(r"\]\(([^)#]+)", prose(page)) if not x.startswith(("http:", "https:"))]
    assert all(((ROOT / page).parent / x).exists() for x in links), links


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    """A path in backquotes that names a file of the package is there."""
    named = [x for x in re.findall(r"`([\w./-]+\.(?:py|md|toml))`", prose(page)) if "/" in x]
    bases = (ROOT, ROOT / "tilewright")
    assert not [x for x in named if not any((b / x).exists() for b in bases)]


def test_the_table_of_rooms_is_the_tested_one() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \|[^|]*\|([^|]*)\|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert len(rows) >= 10
    for room, imports in rows:
        assert set(re.findall(r"`([\w.]+)`", imports)) == ALLOWED[room], room


def maker(name: str) -> Any:
    """The script of docs that writes a page."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["make_pipeline", "make_rewrites", "make_json_output"])
def test_a_written_page_is_what_the_code_says(name: str) -> None:
    assert maker(name).out_of_date() is None


def test_the_page_on_rewrites_knows_every_rule_and_no_other() -> None:
    module = maker("make_rewrites")
    assert set(module.rules()) == set(RULES)
    assert module.unknown_names() == []
    rows = re.findall(r"^\| `(\w+)` \|", module.render(), re.MULTILINE)
    assert sorted(rows) == sorted(RULES)


def test_the_page_on_quantized_models_names_every_converter_of_the_domain() -> None:
    text = (ROOT / "docs/quantized-models.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(named) == sorted(op for domain, op in CONVERTERS if domain == "com.microsoft")
