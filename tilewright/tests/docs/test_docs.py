"""Documentation is run: its Python blocks, its commands, its tables and its generated page."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tilewright.cli import load_command, main
from tilewright.frontend.table import CONVERTERS
from tilewright.inspect.ort import is_installed
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.deploy.exported import has_compiler
from tilewright.tests.docs.pages import blocks, prose, script
from tilewright.tests.docs.shown import as_script, checked_prints, commands, require_same
from tilewright.tests.sources import ROOT
from tilewright.tests.test_import_edges import ALLOWED

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/**/*.md"))]


def runs(page: str) -> bool:
    """True for a page with Python blocks, or with commands whose output it shows."""
    return bool(blocks(page, "python")) or any(o for b in blocks(page, "console") for _, _, o in commands(b))


@pytest.mark.parametrize("page", [p for p in PAGES if runs(p)])
def test_blocks_run(page: str, tmp_path: Path) -> None:
    saved(perceptron(), tmp_path)
    script, code = tmp_path / "page.py", as_script(page)
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
    (tmp_path / "model.jsonl").touch()  # a log without records
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line, comments=True)[1:]
    if words[0] == "build" and not has_compiler():
        pytest.skip("needs a C compiler")
    if words[0] == "tune":
        words += ["--trials", "1", "--no-check"]
    if words[0] == "bench":
        words += ["--runs", "2", *([] if is_installed() else ["--alone"])]
    assert main(words) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", [c for c in COMMANDS if not c.startswith("tilewright ")])
def test_other_commands_name_files_that_exist(line: str) -> None:
    files = [w for w in shlex.split(line, comments=True) if w.endswith((".py", ".sh")) or w.startswith("./")]
    assert files
    assert all((ROOT / f).is_file() for f in files)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console")])
def test_commands_parse(page: str) -> None:
    """Every command of tilewright on a page has arguments that its parser takes."""
    for block in blocks(page, "console"):
        for _, line, _ in commands(block):
            words = shlex.split(re.split(r" (?:\||\|\||&&|>) ", line)[0], comments=True)
            if words[0] == "tilewright" and not words[-1].startswith("--help"):
                load_command(words[1])[1].parse_args(words[2:])


def test_outputs_are_compared() -> None:
    code = checked_prints("if True:\n    print(1 + 1)  # -> 2\nprint('a b')  # words\n", "p.md", 10)
    assert code.splitlines()[1] == "    with shows('2', 'p.md:11'): print(1 + 1)  # -> 2"
    assert code.splitlines()[2] == "print('a b')  # words"
    require_same("one two three\n", "one ... three", "p.md:1")
    with pytest.raises(AssertionError, match=r"^p\.md:1: the page shows\n3\nbut it prints\n2"):
        require_same("2", "3", "p.md:1")
    block = "$ tilewright a\nx\ny\n$ tilewright b\n"
    assert list(commands(block)) == [(0, "tilewright a", "x\ny"), (3, "tilewright b", "")]


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    """What a link of ours names is there, and so is the heading behind its ``#``."""
    links = [x for x in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not x.startswith(("http:", "https:"))]
    for path, _, anchor in (x.partition("#") for x in links):
        place = (ROOT / page).parent / path if path else ROOT / page
        assert place.exists(), path
        if anchor:
            assert anchor in anchors(place.resolve().relative_to(ROOT).as_posix()), f"{path}#{anchor}"


@cache
def anchors(page: str) -> frozenset[str]:
    """What the headings of a page are called in links."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", t.lower()).strip() for t in titles)
    return frozenset(re.sub(r"\s", "-", t) for t in plain)


def test_the_page_on_installing_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    rows = [line.split("|")[1] for line in prose("docs/install.md").splitlines() if line.startswith("| `")]
    assert set(extras) == {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_every_page_is_on_the_site() -> None:
    """In its navigation, but for decisions, which the page on architecture links."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", text, re.MULTILINE)
    pages = {p.removeprefix("docs/") for p in PAGES if p.startswith("docs/") and not p.startswith("docs/decisions/")}
    assert len(named) == len(set(named))
    assert set(named) == pages | {"index.md"}


@pytest.mark.skipif(importlib.util.find_spec("material") is None, reason="needs mkdocs-material")
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path / "site")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "site" / "reference" / "api" / "index.html").is_file()


def test_links_of_the_site() -> None:
    """The README is its first page; links to what it has not are text."""
    hooks = script("site_hooks")
    text = "[a](docs/install.md#where) [b](tilewright/cli.py) `x` ![p](docs/p.svg) [u](https://example.com)"
    assert hooks.for_site(text, "") == (
        "[a](install.md#where) b (`tilewright/cli.py`) `x` ![p](p.svg) [u](https://example.com)"
    )
    assert hooks.for_site("[r](../README.md) [c](../bindings/c) [o](rules.md)", "docs/deploy.md") == (
        "[r](index.md) c (`bindings/c`) [o](rules.md)"
    )
    assert hooks.for_site("[`cli.py`](../tilewright/cli.py)", "docs/a.md") == "`cli.py` (`tilewright/cli.py`)"
    assert hooks.for_site("```text\n[b](x.py)\n```\n", "") == "```text\n[b](x.py)\n```\n"


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


def test_the_page_on_quantized_models_names_every_converter_of_the_domain() -> None:
    text = (ROOT / "docs/quantized-models.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(named) == sorted(op for domain, op in CONVERTERS if domain == "com.microsoft")


def test_the_page_on_kernels_names_every_scalar_operation() -> None:
    """With the number of its arguments, their element types and that of its result."""
    kinds = {"f": "float", "i": "int", "u": "uint", "b": "bool"}
    text = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    section = text.partition("| names | arguments |")[2].partition("\n\n")[0]
    told: dict[str, list[str]] = {}
    for line in section.splitlines()[2:]:
        names, *facts = (cell.strip() for cell in line.strip("|").split("|"))
        for name in re.findall(r"`(\w+)`", names):
            assert name not in told, name
            told[name] = facts
    assert told == {
        name: [
            str(o.arity),
            ", ".join(o.only) or ", ".join(kinds[k] for k in o.kinds),
            o.result.replace("same", "the same"),
        ]
        for name, o in SCALAR_OPS.items()
    }
