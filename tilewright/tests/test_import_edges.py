"""Data flows one way, and imports show it: the table of allowed edges between rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, parsed, room_of, rooms, source_files

ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "machine": set(),
    "reference": {"core"},
    "graph_ir": {"core", "reference"},
    "tensor_ir": {"core"},
    "frontend": {"graph_ir", "core"},
    "lowering": {"graph_ir", "tensor_ir", "machine", "core"},
    "schedule": {"tensor_ir", "machine", "core"},
    "runtime": {"core"},
    "codegen": {"tensor_ir", "machine", "core", "runtime"},
    "autotune": {"schedule", "codegen", "runtime", "tensor_ir", "machine", "core"},
    "report": {"autotune", "schedule", "lowering", "tensor_ir", "runtime", "machine", "core"},
    # the pipeline and what stands on it
    "progress": set(),
    "build": {"codegen", "core", "lowering", "machine", "schedule", "tensor_ir"},
    "link": {"build", "codegen", "core", "machine", "runtime"},
    "explain": {"build", "core", "graph_ir", "machine"},
    "algorithms": {"autotune", "core", "graph_ir", "lowering", "machine", "tuned"},
    "tuned": {"autotune", "codegen", "core", "lowering", "machine", "runtime", "schedule", "tensor_ir"},
    "compile": {
        "algorithms", "autotune", "build", "codegen", "core", "explain", "frontend", "graph_ir", "link", "lowering",
        "machine", "progress", "runtime", "schedule", "tensor_ir", "tuned",
    },
    "in_place": {"autotune", "build", "codegen", "core", "link", "lowering", "machine", "runtime", "tuned"},
    "tuning": {
        "algorithms", "autotune", "codegen", "compile", "core", "graph_ir", "in_place", "lowering", "machine",
        "runtime", "tuned",
    },
    "scheduling": {"autotune", "codegen", "core", "machine", "schedule", "tensor_ir"},
    "session": {"compile", "core", "graph_ir", "runtime"},
    "ort": {"core"},
    "verify": {"build", "codegen", "core", "graph_ir", "link", "lowering", "machine", "ort", "runtime"},
    "cli": {"core", ""},
    "__main__": {"cli"},
    # for types; see DYNAMIC
    "__init__": {
        "autotune", "compile", "core", "machine", "runtime", "schedule", "scheduling", "session", "tuning",
    },
}  # fmt: skip
ANYTHING = {"commands"}
"""Rooms that may use every other one."""

NARROW: dict[tuple[str, str], set[str]] = {
    ("codegen", "runtime"): {"tilewright.runtime.arrays", "tilewright.runtime.team", "tilewright.runtime.threads"}
}
"""Edges that stand for a few modules only."""

DYNAMIC = {"__init__.py", "cli.py", "runtime/host.py"}
"""Files that load a room by name when it is first needed: public names, commands, host operators."""


def own_imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Imports of this package: the statement and the module's full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            module = node.module or ""
            if module == "tilewright":
                yield from ((node, f"tilewright.{a.name}" if _is_module(a.name) else "tilewright") for a in node.names)
            elif module.startswith("tilewright."):
                yield node, module
        elif isinstance(node, ast.Import):
            yield from ((node, a.name) for a in node.names if a.name.split(".")[0] == "tilewright")


def _is_module(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", source_files(), ids=_where)
def test_edges(path: Path) -> None:
    room = room_of(path)
    if room in ANYTHING:
        return
    for node, module in own_imports(parsed(path)):
        target = _room(module)
        line = getattr(node, "lineno", 0)
        if target != room:
            assert target in ALLOWED[room], f"{_where(path)}:{line}: {room} must not import {module}"
        narrow = NARROW.get((room, target))
        assert narrow is None or module in narrow, f"{_where(path)}:{line}: {room} may import only {narrow}"


@pytest.mark.parametrize("path", source_files(), ids=_where)
def test_imports_stand_at_the_top(path: Path) -> None:
    """No import of our own package inside a function: it would hide an edge, or a cycle."""
    for function in ast.walk(parsed(path)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node, module in own_imports(function):
                pytest.fail(f"{_where(path)}:{getattr(node, 'lineno', 0)}: import of {module} inside a function")


@pytest.mark.parametrize("path", source_files(), ids=_where)
def test_no_room_is_loaded_by_name(path: Path) -> None:
    if _where(path) in DYNAMIC:
        return
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            text = ast.unparse(node)
            assert "tilewright" not in text, f"{_where(path)}:{node.lineno}: {text}"


def test_every_room_is_in_the_table() -> None:
    known = {room_of(p) for p in source_files()} - ANYTHING
    assert known == set(ALLOWED)
    assert {t for edges in ALLOWED.values() for t in edges if t} <= known
    assert set(rooms()) <= known | ANYTHING


def test_the_table_has_no_cycle() -> None:
    done: set[str] = set()
    edges = {k: v - {"", k} for k, v in ALLOWED.items() if k != "__init__"}
    while len(done) < len(edges):
        ready = {k for k, v in edges.items() if k not in done and v <= done}
        assert ready, f"a cycle among {sorted(set(edges) - done)}"
        done |= ready
