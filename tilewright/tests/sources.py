"""The package's own source files, for tests about its structure."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import tilewright

PACKAGE = Path(tilewright.__file__).parent
ROOT = PACKAGE.parent


def source_files() -> list[Path]:
    """Every Python file of the package except its tests."""
    return [p for p in sorted(PACKAGE.rglob("*.py")) if "tests" not in p.relative_to(PACKAGE).parts]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def room_of(path: Path) -> str:
    """The sub-package of a file; the module's own name at the top level."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def rooms() -> list[str]:
    """The sub-packages."""
    return sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py") if p.parent.name != "tests")
