"""Models for WebAssembly: as programs that Node runs, and as modules that JavaScript calls, in Node and in browsers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.bindings.languages import BINDINGS, done
from tilewright.tests.deploy.browser import BROWSERS, said_by_page
from tilewright.tests.deploy.cross.models import EXAMPLES, assert_as_here
from tilewright.tests.deploy.program import Linked, needs_zig
from tilewright.tests.deploy.tools import find_program, needs

pytestmark = [needs_zig, needs("node")]

VECTORS = "llvm -mtriple=wasm32-wasi"
HERE = Path(__file__).parent
PAGE = HERE / "page.html"
X = np.random.default_rng(9).standard_normal((9, 32)).astype(np.float32)
SAID = """\
input x float32 [batch, 32]
output y float32 [batch, 10]
target wasm32-unknown-wasi
shapes [7, 10]
y float32 [1, 10]
y float32 [9, 10]
y float32 [0, 10]
error 2 input 'x' axis 1: expected 32, got 31
error 1 output 'y': expected memory for shape [9, 10], got one of shape [9, 9]
error 2 inputs: missing [x], unknown [z]
error 3
error 3 expected a WebAssembly module that tilewright exported
error 1 the session is closed
error 1 the model is closed"""
SCALAR = f"{VECTORS} -mattr=-simd128"


@pytest.mark.parametrize("target", [SCALAR, VECTORS], ids=["scalar", "vectors"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_same_results(name: str, target: str, linked: Linked) -> None:
    assert_as_here(name, target, linked)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``module.mjs`` needs."""
    folder = tmp_path_factory.mktemp("module")
    tilewright.compile(perceptron(), target=VECTORS, progress=False).export(folder / "model.wasm")
    (folder / "x.bin").write_bytes(X.tobytes())
    for source in (
        *(BINDINGS / "node" / n for n in ("wasm.js", "model.js", "package.json")),
        *HERE.glob("*.mjs"),
        PAGE,
    ):
        shutil.copy(source, folder)
    return folder


def in_node(folder: Path) -> dict[str, bytes]:
    done([find_program("node") or "node", "node.mjs"], folder)
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def in_browser(name: str, folder: Path) -> dict[str, bytes]:
    if name not in BROWSERS:
        pytest.skip(f"needs {name}")
    return said_by_page(name, folder, PAGE.name, last="said.txt")


@pytest.mark.skipif(not BINDINGS.is_dir(), reason="needs the source tree")
@pytest.mark.parametrize("where", ["node", "chromium", "firefox"])
def test_a_module_that_javascript_calls(where: str, folder: Path) -> None:
    got = in_node(folder) if where == "node" else in_browser(where, folder)
    assert got["said.txt"].decode() == SAID
    here = tilewright.compile(perceptron(), progress=False)
    for name, x in (("one.bin", X[:1]), ("nine.bin", X), ("given.bin", X)):
        y = np.frombuffer(got[name], np.float32).reshape(-1, 10)
        np.testing.assert_allclose(y, here.run({"x": x})["y"], 1e-5, 1e-6)


def test_vectors_are_used(tmp_path: Path) -> None:
    files = tilewright.compile(perceptron(), target=VECTORS, progress=False).dump(tmp_path)
    assert "f32x4.mul" in "".join(p.read_text() for p in files if p.suffix == ".s")
