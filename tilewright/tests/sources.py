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


def dotted(path: Path) -> str:
    """The name of a file's module in the package; of an ``__init__``, that of its room (at the top, its own)."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def rooms() -> list[str]:
    """The sub-packages."""
    return sorted(p.parent.name for p in PACKAGE.glob("*/__init__.py") if p.parent.name != "tests")
