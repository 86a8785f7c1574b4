"""Every public name says what it is, with an example, and the examples do what they say."""

from __future__ import annotations

import dataclasses
import doctest
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.deploy.exported import has_compiler
from tilewright.tests.docs.pages import script
from tilewright.tests.sources import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")

PUBLIC: dict[str, Any] = script("make_api").public() if (ROOT / "docs").is_dir() else {}
DOCUMENTED = {n: x for n, x in PUBLIC.items() if inspect.isclass(x) or inspect.isfunction(x)}
IMPORTED = script("make_api").imported() if (ROOT / "docs").is_dir() else {}


def example_of(name: str) -> doctest.DocTest:
    names = {"np": np, "tilewright": tilewright}
    return doctest.DocTestParser().get_doctest(inspect.getdoc(DOCUMENTED[name]) or "", names, name, None, None)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_it_has_an_example(name: str) -> None:
    assert example_of(name).examples


@pytest.mark.parametrize("name", [n for n in DOCUMENTED if example_of(n).examples])
def test_the_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = example_of(name)
    source = "".join(e.source for e in example.examples)
    if (".export(" in source or "export_" in source) and not has_compiler():
        pytest.skip("needs a C compiler")
    if "to_ir(" in source and importlib.util.find_spec("onnx_ir") is None:
        pytest.skip("needs onnx-ir")
    saved(perceptron(), tmp_path)
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert result.failed == 0, "".join(said)


@pytest.mark.parametrize("name", [n for n, x in DOCUMENTED.items() if inspect.isclass(x)])
def test_its_members_say_what_they_are(name: str) -> None:
    members = script("make_api").members(DOCUMENTED[name])
    silent = [m for m, v in members.items() if not inspect.getdoc(v)]
    assert not silent


@pytest.mark.parametrize("name", [n for n, x in DOCUMENTED.items() if dataclasses.is_dataclass(x)])
def test_its_fields_say_what_they_are(name: str) -> None:
    _, meanings = script("make_api").fields_of(DOCUMENTED[name])
    assert not [f for f, text in meanings.items() if not text]


def test_constants_and_aliases_are_described() -> None:
    module = script("make_api")
    for name in PUBLIC.keys() - DOCUMENTED.keys():
        owner, _, own = name.rpartition(".")
        assert module.said_below(module.HOMES[owner], own), name


def test_what_the_manual_imports_says_what_it_is() -> None:
    lines = {k: script("make_api").line(*k) for k in IMPORTED}
    assert not [k for k, text in lines.items() if len(text) < 8]


def test_an_example_that_lies_is_found() -> None:
    lie = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "lie", None, None)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(lie, out=lambda text: None).failed == 1
