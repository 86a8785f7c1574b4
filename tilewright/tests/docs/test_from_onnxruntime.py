"""The page for users of ONNX Runtime names all that its session API has, and what it calls the same is there."""

from __future__ import annotations

import pytest

import tilewright
from tilewright.tests.docs.pages import script
from tilewright.tests.sources import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")


def test_what_is_the_same_is_there() -> None:
    for name, rows in script("make_from_onnxruntime").CLASSES.items():
        mine = getattr(tilewright, name)
        known = {*dir(mine), *getattr(mine, "__dataclass_fields__", ())}
        absent = ("not there", "devices other", "`")
        missing = [r for r, text in rows.items() if r not in known and "(" not in r and not text.startswith(absent)]
        assert not missing, name


def test_every_name_of_onnxruntime_is_on_the_page() -> None:
    theirs = pytest.importorskip("onnxruntime")
    for name, rows in script("make_from_onnxruntime").CLASSES.items():
        public = {n for n in dir(getattr(theirs, name)) if not n.startswith("_")}
        assert not public - rows.keys(), name
