"""Models for WebAssembly, run by Node: as programs, and as modules whose functions JavaScript calls."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.cross.models import EXAMPLES, assert_as_here
from tilewright.tests.deploy.program import Linked, needs_zig
from tilewright.tests.deploy.tools import needs

pytestmark = [needs_zig, needs("node")]

VECTORS = "llvm -mtriple=wasm32-wasi"
SCRIPT = Path(__file__).parent / "module.mjs"
SCALAR = f"{VECTORS} -mattr=-simd128"


@pytest.mark.parametrize("target", [SCALAR, VECTORS], ids=["scalar", "vectors"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_same_results(name: str, target: str, linked: Linked) -> None:
    assert_as_here(name, target, linked)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "model.wasm"
    tilewright.compile(perceptron(), target=VECTORS, progress=False).export(path)
    return path


def called(module: Path, x: np.ndarray) -> subprocess.CompletedProcess[str]:
    source, target = module.with_suffix(".in"), module.with_suffix(".out")
    source.write_bytes(x.tobytes())
    shape = "x".join(map(str, x.shape))
    command = ["node", str(SCRIPT), str(module), shape, str(source), str(target)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_a_module_that_javascript_calls(module: Path) -> None:
    here = tilewright.compile(perceptron(), progress=False)
    for rows in (1, 9):
        x = np.random.default_rng(rows).standard_normal((rows, 32)).astype(np.float32)
        done = called(module, x)
        assert (done.stdout.strip(), done.stderr) == (f"{rows}x10", "")
        got = np.frombuffer(module.with_suffix(".out").read_bytes(), np.float32).reshape(rows, 10)
        np.testing.assert_allclose(got, here.run({"x": x})["y"], 1e-5, 1e-6)


def test_messages_of_a_module(module: Path) -> None:
    done = called(module, np.zeros((2, 31), np.float32))
    assert (done.returncode, done.stderr.strip()) == (12, "input 'x' axis 1: expected 32, got 31")


def test_vectors_are_used(tmp_path: Path) -> None:
    files = tilewright.compile(perceptron(), target=VECTORS, progress=False).dump(tmp_path)
    assert "f32x4.mul" in "".join(p.read_text() for p in files if p.suffix == ".s")
