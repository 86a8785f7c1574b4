"""Models for Windows: libraries that are looked at, and run where there is Wine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.cross.headers import pe_exports
from tilewright.tests.deploy.cross.models import assert_as_here
from tilewright.tests.deploy.program import Linked, ProgramError, build_program, needs_zig
from tilewright.tests.deploy.tools import needs

pytestmark = needs_zig

TARGET = "llvm -mtriple=x86_64-windows-gnu -mcpu=x86-64-v2 -num-threads=2"


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINEPREFIX", str(tmp_path_factory.mktemp("wine")))
        patch.setenv("WINEDEBUG", "-all")
        yield


def test_a_library_shows_its_functions(tmp_path: Path) -> None:
    tilewright.compile(perceptron(), target=TARGET, progress=False).export(tmp_path / "model.dll")
    machine, names = pe_exports((tmp_path / "model.dll").read_bytes())
    assert machine == 0x8664
    assert "tw_session_run" in names
    assert all(n.startswith("tw_") for n in names)


@needs("wine")
@pytest.mark.usefixtures("wine")
@pytest.mark.parametrize("name", ["integers", "loop", "convolution"])
def test_same_results(name: str, linked: Linked) -> None:
    assert_as_here(name, TARGET, linked)


@needs("wine")
@pytest.mark.usefixtures("wine")
def test_a_library_that_is_loaded(tmp_path: Path) -> None:
    model, here = (tilewright.compile(perceptron(), target=t, progress=False) for t in (TARGET, None))
    program = build_program(model, TARGET, tmp_path, is_linked=False)
    x = np.random.default_rng(0).standard_normal((7, 32)).astype(np.float32)
    np.testing.assert_allclose(program.run({"x": x})["y"], here.run({"x": x})["y"], 1e-5, 1e-6)
    with pytest.raises(ProgramError, match="axis 1: expected 32, got 33"):
        program.run({"x": np.zeros((7, 33), np.float32)})
    weights = model.export(tmp_path / "model.dll", weights="beside")[1]
    assert program.run({"x": x})["y"].shape == (7, 10)
    weights.unlink()
    with pytest.raises(ProgramError, match=r"model\.dll\.weights"):
        program.run({"x": x})
