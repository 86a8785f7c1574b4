"""Models for macOS: libraries that are linked and looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.cross.headers import mach_o_exports
from tilewright.tests.deploy.program import needs_zig

pytestmark = needs_zig


@pytest.mark.parametrize(
    ("target", "machine"),
    [("arm64-apple-macos -mcpu=apple-m1", 0x0100000C), ("x86_64-apple-darwin -mcpu=x86-64-v3", 0x01000007)],
)
def test_a_library_shows_its_functions(target: str, machine: int, tmp_path: Path) -> None:
    path = tmp_path / "model.dylib"
    tilewright.compile(perceptron(), target=f"llvm -mtriple={target}", progress=False).export(path)
    found, names = mach_o_exports(path.read_bytes())
    assert found == machine
    assert "_tw_session_run" in names
    assert all(n.startswith("_tw_") and len(n) < 30 for n in names - {"___dso_handle", "__mh_dylib_header"})
