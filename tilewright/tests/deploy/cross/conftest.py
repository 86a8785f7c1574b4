"""Models as programs for other machines."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import tilewright
from tilewright.tests.deploy.program import Linked, Program, build_program


@pytest.fixture
def linked(tmp_path: Path) -> Linked:
    """Compile a model for a target, as a program."""
    count = 0

    def link(model: onnx.ModelProto, target: str) -> Program:
        nonlocal count
        count += 1
        folder = tmp_path / str(count)
        folder.mkdir()
        return build_program(tilewright.compile(model, target=target, progress=False), target, folder)

    return link
