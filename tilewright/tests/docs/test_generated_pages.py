"""Pages that scripts write are what the code says today."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.cli import COMMANDS, load_command
from tilewright.core.config import VARIABLES, from_environment
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.tests.docs.pages import blocks, script
from tilewright.tests.graph_ir.rewriting import RULES
from tilewright.tests.sources import PACKAGE, ROOT, source_files

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")

SCRIPTS = sorted(p.stem for p in ROOT.glob("docs/make_*.py") if p.stem != "make_all")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_page_is_what_its_script_writes(name: str) -> None:
    assert script(name).PAGE.out_of_date() is None


def test_one_command_writes_them_all() -> None:
    assert [Path(p.script).stem for p in script("make_all").PAGES] == SCRIPTS


def test_a_changed_page_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated = script("generated")
    monkeypatch.setattr(generated, "DOCS", tmp_path)
    page = generated.GeneratedPage("make_it.py", "a/it.md", lambda: "one\ntwo\n")
    assert page.out_of_date() == "docs/a/it.md is missing: run python docs/make_it.py"
    monkeypatch.setattr(sys, "argv", ["make_it.py"])
    assert page.main() == 0
    monkeypatch.setattr(sys, "argv", ["make_it.py", "--check"])
    assert page.main() == 0
    page.path.write_text("one\nzwei\n", encoding="utf-8")
    assert page.main() == 1
    assert str(page.out_of_date()).startswith("docs/a/it.md is out of date from line 2: run python docs/make_it.py")


def test_the_page_on_rewrites_knows_every_rule_and_no_other() -> None:
    module = script("make_rewrites")
    assert set(module.rules()) == set(RULES)
    assert module.unknown_names() == []
    rows = re.findall(r"^\| `(\w+)` \|", module.render().split("\n## ", 2)[2], re.MULTILINE)
    assert sorted(rows) == sorted(RULES)


def test_every_public_name_is_in_a_section_of_its_page() -> None:
    module = script("make_api")
    listed = [n for names in module.SECTIONS.values() for n in names]
    assert sorted([*listed, "__version__"]) == sorted(tilewright.__all__)


def test_every_primitive_is_on_its_page() -> None:
    titles = re.findall(r"^### (\w+)$", script("make_primitives").render(), re.MULTILINE)
    assert sorted(titles) == sorted(PRIMITIVES)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_argument_of_the_command_line_says_what_it_is(command: str) -> None:
    parsers = [load_command(command)[1]]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action.choices, dict) and action.option_strings == []:
                parsers += action.choices.values()
            else:
                assert action.help, f"{parser.prog}: {action.dest}"


def test_the_table_of_variables_is_what_the_package_reads() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in source_files())
    named = set(re.findall(r"\bTILEWRIGHT_[A-Z_]+\b", text))
    assert named == {v.name for v in VARIABLES if v.name.startswith("TILEWRIGHT_")}
    assert from_environment({"HOME": "/h"}).cache_bytes == int(_default("TILEWRIGHT_CACHE_BYTES").split()[0])


def _default(name: str) -> str:
    return next(v.default for v in VARIABLES if v.name == name)


def test_one_file_reads_the_environment() -> None:
    reads = [p for p in source_files() if re.search(r"\bos\.(environ|getenv)\b", p.read_text(encoding="utf-8"))]
    assert [p.relative_to(PACKAGE).as_posix() for p in reads] == ["core/config.py"]


def test_docstrings_become_markdown() -> None:
    markdown = script("docstrings").markdown
    assert markdown("See ``a`` and :class:`~b.C`.") == "See `a` and `b.C`."
    assert markdown("Example:\n\n>>> 1 + 1  # doctest: +SKIP\n2\n\nEnd.") == (
        "Example:\n\n```pycon\n>>> 1 + 1\n2\n```\n\nEnd."
    )
    assert markdown("Grammar::\n\n    a ::= b") == "Grammar:\n\n```text\na ::= b\n```"


def test_generated_pages_have_no_block_that_would_run() -> None:
    for page in script("make_all").PAGES:
        if page.file.startswith("reference/"):
            assert blocks(f"docs/{page.file}", "python") == []
