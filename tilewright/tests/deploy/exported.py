"""Compiled models and their artifacts side by side: what one gives, the other gives bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.errors import TargetError
from tilewright.deploy.loader import Artifact
from tilewright.deploy.toolchain import find_toolchain
from tilewright.runtime.model import CompiledModel


def has_compiler() -> bool:
    """Is there a C compiler, the system's or that of the ``ziglang`` package?"""
    try:
        find_toolchain(detect_host())
    except TargetError:
        return False
    return True


needs_compiler = pytest.mark.skipif(
    not has_compiler(), reason="needs a C compiler: cc, gcc, clang or the ziglang package"
)


def exported(model: CompiledModel, folder: Path | None = None, threads: int = 0) -> Artifact:
    """The artifact of a model, loaded. ``folder``: where it is written, else nowhere that stays."""
    if folder is not None:
        model.export(folder / "model.so")
        return Artifact(folder / "model.so", threads)
    with tempfile.TemporaryDirectory() as name:
        return exported(model, Path(name), threads)


def assert_same(model: CompiledModel, artifact: Artifact, feed: Mapping[str, np.ndarray]) -> None:
    """Both give the same bytes."""
    ours, theirs = model.run(feed), artifact.run(feed)
    assert list(ours) == list(theirs)
    for name, a in ours.items():
        b = theirs[name]
        assert (a.shape, a.dtype) == (b.shape, b.dtype), name
        assert a.tobytes() == b.tobytes(), name
