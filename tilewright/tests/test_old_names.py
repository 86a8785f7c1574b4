"""Names that were replaced by the field's own: gone from code and docs, and what replaces them is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, ROOT

MODULES = {
    "core.intexpr": "core.arith.expr",
    "core.intbounds": "core.arith.bounds",
    "core.intbroadcast": "core.arith.broadcast",
    "core.intextrema": "core.arith.minmax",
    "core.intnamed": "core.arith.named",
    "core.intparse": "core.arith.parse",
    "core.intsamples": "core.arith.samples",
    "core.intsum": "core.arith.polynomial",
    "core.target": "machine.target",
    "codegen.joined": "codegen.emit.slp_calls",
    "codegen.interleaved": "codegen.emit.interleaved_stores",
    "codegen.private": "codegen.emit.privatize",
    "codegen.register_use": "codegen.emit.register_pressure",
    "codegen.math_functions": "codegen.math.functions",
    "codegen.math_float64": "codegen.math.float64",
    "codegen.llvm_types": "codegen.llvm.types",
    "codegen.llvm_names": "codegen.llvm.names",
    "codegen.llvm_child": "codegen.llvm.child",
}
"""Modules by what they were called, without the package's own name."""

WORDS: set[str] = {name.rpartition(".")[2] for name in MODULES if name.startswith("core.int")} | {
    "joined_nest", "joined_values", "register_use",
}  # fmt: skip
"""Words that were nothing but our own: nobody says them any more."""


def place(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


@cache
def texts() -> dict[str, str]:
    """All that people read: code, tests, examples, docs. Logs of old versions keep their names."""
    files = [p for f in ("tilewright", "benchmarks", "docs", "examples", "tools") for p in (ROOT / f).rglob("*.*")]
    files += ROOT.glob("*.md")
    read = {p.relative_to(ROOT).as_posix(): p for p in files if p.suffix in (".py", ".md", ".sh")}
    return {k: p.read_text(encoding="utf-8") for k, p in read.items() if p != Path(__file__)}


def test_what_replaces_them_is_there() -> None:
    assert not [new for new in MODULES.values() if not place(new).exists()]


@pytest.mark.parametrize("old", MODULES)
def test_module_is_gone(old: str) -> None:
    assert not PACKAGE.joinpath(*old.split(".")).with_suffix(".py").exists()
    names = rf"tilewright\.{re.escape(old)}\b(?!\.)|(?<![\w/]){re.escape(old.replace('.', '/'))}\.py\b"
    if not place(old).is_dir():
        assert not _where(names), f"read {MODULES[old]} there"


@pytest.mark.parametrize("word", sorted(WORDS))
def test_word_is_gone(word: str) -> None:
    assert not _where(rf"\b{word}\b")


def _where(pattern: str) -> list[str]:
    found = re.compile(pattern)
    return [f"{k}:{t.count(chr(10), 0, m.start()) + 1}" for k, t in texts().items() for m in found.finditer(t)]
