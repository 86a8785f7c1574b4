"""Data flows one way, and imports show it: the table of allowed edges between rooms."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, dotted, parsed, rooms, source_files

ALLOWED: dict[str, set[str]] = {
    "machine": set(),
    "core": {"machine"},
    "reference": {"core"},
    "graph_ir": {"core", "machine", "reference"},
    "tensor_ir": {"core", "machine"},
    "frontend": {"graph_ir", "core"},
    "rules": {"graph_ir"},
    "operators": {"graph_ir", "lowering", "tensor_ir"},
    "writer": {"frontend", "graph_ir", "reference", "core"},
    "edit": {"frontend", "writer", "graph_ir", "core"},
    "lowering": {"graph_ir", "tensor_ir", "machine", "core"},
    "schedule": {"tensor_ir", "machine", "core"},
    "runtime.resources": {"core", "machine"},
    "runtime.host_ops": {"core"},
    "runtime": {"core", "machine", "runtime.host_ops", "runtime.resources"},
    "codegen": {"core", "machine", "runtime.resources", "tensor_ir"},
    "kernels": {"codegen", "core", "lowering", "machine", "runtime", "schedule", "tensor_ir"},
    "deploy.files": {"core", "machine"},
    "deploy.source": {"core", "machine", "runtime.resources"},
    "deploy": {"codegen", "core", "deploy.files", "deploy.source", "kernels", "machine", "runtime"},
    "autotune.base": {"core", "machine", "schedule", "tensor_ir"},
    "autotune.cost_model": {"autotune.base", "core", "machine", "schedule", "tensor_ir"},
    "autotune.records": {"autotune.base", "autotune.cost_model", "core", "machine", "schedule", "tensor_ir"},
    "autotune.measure": {
        "autotune.base", "codegen", "core", "machine", "runtime", "runtime.resources", "schedule", "tensor_ir",
    },
    "autotune.lookup": {
        "autotune.base", "autotune.measure", "autotune.records", "codegen", "core", "graph_ir", "lowering", "machine",
        "runtime", "schedule", "tensor_ir",
    },
    "autotune.search": {
        "autotune.base", "autotune.cost_model", "autotune.measure", "autotune.records", "core", "machine",
        "schedule", "tensor_ir",
    },
    "autotune.review": {
        "autotune.base", "autotune.measure", "autotune.records", "core", "machine", "schedule",
    },
    "autotune.exchange": {"autotune.records", "core"},
    "inspect": {
        "autotune.base", "autotune.cost_model", "autotune.lookup", "autotune.records", "codegen", "core",
        "graph_ir", "kernels", "lowering", "machine", "runtime", "runtime.resources", "schedule", "tensor_ir",
    },
    # the pipeline and what stands on it
    "options": {"autotune.lookup", "autotune.records", "core", "graph_ir", "lowering", "machine", "schedule"},
    "progress": {"core"},
    "compile": {
        "autotune.lookup", "autotune.measure", "autotune.records", "codegen", "core", "deploy", "frontend",
        "graph_ir", "inspect", "kernels", "lowering", "machine", "options", "progress", "runtime", "runtime.resources",
        "schedule", "tensor_ir", "writer",
    },
    "autotune.network": {
        "autotune.base", "autotune.cost_model", "autotune.lookup", "autotune.measure",
        "autotune.records", "autotune.search", "codegen", "compile", "core", "graph_ir", "kernels", "lowering",
        "machine", "options", "runtime", "runtime.resources", "schedule",
    },
    "api": {
        "autotune.base", "autotune.cost_model", "autotune.measure", "autotune.records", "codegen", "compile", "core",
        "frontend", "machine", "runtime", "schedule", "tensor_ir",
    },
    "quantization": {"autotune.measure", "compile", "core", "graph_ir", "inspect"},
    "simplification": {"compile", "core", "frontend", "graph_ir", "inspect", "writer"},
    "cli": {"core", ""},
    "__main__": {"cli"},
    # for types; see DYNAMIC
    "__init__": {
        "api", "autotune.network", "autotune.records", "compile", "core", "deploy", "edit", "lowering",
        "options", "quantization", "runtime", "schedule", "simplification",
    },
}  # fmt: skip
ANYTHING = {"commands"}
"""Rooms that may use every other one."""
PARTED = {"autotune"}
"""Rooms that have no entry, since each room inside has its own."""

DYNAMIC = {"__init__.py", "cli.py", "runtime/host_ops/host_step.py"}
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
    return named_room(module.partition(".")[2])


def named_room(name: str) -> str:
    """The longest beginning of a dotted name that has an entry in the table; else its first word."""
    words = name.split(".")
    parts = [".".join(words[:n]) for n in range(len(words), 0, -1)]
    return next((p for p in parts if p in ALLOWED), words[0])


def _where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", source_files(), ids=_where)
def test_edges(path: Path) -> None:
    room = named_room(dotted(path))
    if room in ANYTHING:
        return
    for node, module in own_imports(parsed(path)):
        target = _room(module)
        line = getattr(node, "lineno", 0)
        if target != room:
            assert target in ALLOWED[room], f"{_where(path)}:{line}: {room} must not import {module}"


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
    known = {named_room(dotted(p)) for p in source_files()} - ANYTHING
    assert known - PARTED == set(ALLOWED)
    assert {t for edges in ALLOWED.values() for t in edges if t} <= known
    assert set(rooms()) <= known | ANYTHING


def test_the_table_has_no_cycle() -> None:
    done: set[str] = set()
    edges = {k: v - {"", k} for k, v in ALLOWED.items() if k != "__init__"}
    while len(done) < len(edges):
        ready = {k for k, v in edges.items() if k not in done and v <= done}
        assert ready, f"a cycle among {sorted(set(edges) - done)}"
        done |= ready
