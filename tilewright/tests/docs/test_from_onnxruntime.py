"""The page for users of ONNX Runtime names all that its session API has, and what it calls the same is there."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

import tilewright
from tilewright.tests.sources import ROOT


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_from_onnxruntime", ROOT / "docs" / "make_from_onnxruntime.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_writes(script: ModuleType) -> None:
    assert (ROOT / "docs/from-onnxruntime.md").read_text(encoding="utf-8") == script.render()


def test_what_is_the_same_is_there(script: ModuleType) -> None:
    for name, rows in script.CLASSES.items():
        mine = getattr(tilewright, name)
        known = {*dir(mine), *getattr(mine, "__dataclass_fields__", ())}
        absent = ("not there", "devices other", "`")
        missing = [r for r, text in rows.items() if r not in known and "(" not in r and not text.startswith(absent)]
        assert not missing, name


def test_every_name_of_onnxruntime_is_on_the_page(script: ModuleType) -> None:
    theirs = pytest.importorskip("onnxruntime")
    for name, rows in script.CLASSES.items():
        public = {n for n in dir(getattr(theirs, name)) if not n.startswith("_")}
        assert not public - rows.keys(), name
