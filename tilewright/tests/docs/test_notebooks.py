"""The notebooks run from the first cell to the last, and are kept in the form in which changes can be read.

What a notebook asserts is results, not times.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tilewright.tests.docs.run_notebook import cells
from tilewright.tests.sources import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))

pytestmark = pytest.mark.skipif(not NOTEBOOKS, reason="needs the source tree")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("strip_notebooks", ROOT / "docs" / "strip_notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_four() -> None:
    assert [p.name[:2] for p in NOTEBOOKS] == ["1-", "2-", "3-", "4-"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_runs(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "tilewright.tests.docs.run_notebook", str(path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr
    assert "assert" in "\n".join(cells(path)), "a notebook that checks nothing"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_is_stripped(path: Path, script: ModuleType) -> None:
    text = path.read_text(encoding="utf-8")
    assert script.stripped(text) == text, "python docs/strip_notebooks.py"


def test_stripping_keeps_what_was_written_and_nothing_of_a_run(script: ModuleType) -> None:
    ran = {
        "cells": [
            {"cell_type": "code", "id": "x", "metadata": {"a": 1}, "source": ["a = 1\n", "a\n"], "execution_count": 7,
             "outputs": [{"output_type": "stream", "text": ["secret"]}]},
            {"cell_type": "markdown", "metadata": {}, "source": "# Title"},
        ],
        "metadata": {"language_info": {"version": "3.99"}}, "nbformat": 4, "nbformat_minor": 2,
    }  # fmt: skip
    text = script.stripped(json.dumps(ran))
    assert "secret" not in text
    assert "3.99" not in text
    code, title = json.loads(text)["cells"]
    assert code == {
        "cell_type": "code", "execution_count": None, "id": "cell-0", "metadata": {}, "outputs": [],
        "source": ["a = 1\n", "a"],
    }  # fmt: skip
    assert title["source"] == ["# Title"]
    assert script.stripped(text) == text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_it_is_a_notebook_to_jupyter(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(path, as_version=4))
