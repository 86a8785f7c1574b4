"""Files are written by ``core/io/files.py`` and, logs, by ``autotune/records/logfile.py``: nothing else does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, parsed, source_files

WRITERS = {"core/io/files.py", "autotune/records/logfile.py"}
OTHERS: dict[str, set[str]] = {
    "autotune/measure/hostlock.py": {"open"},  # a lock, always empty
    "autotune/measure/process.py": {"truncate"},  # a temporary file without a name
    "autotune/measure/worker.py": {"tofile"},  # in a temporary directory of the parent's
    "codegen/cache.py": {"touch", "unlink"},  # entries of the cache, by their names
    "deploy/loader.py": {"open"},  # in memory, or in a temporary directory of its own
    "deploy/toolchain.py": {"open"},  # in a temporary directory of its own
    "commands/run.py": {"open"},  # members of an archive
}
"""What else may change files, and by which calls."""

ALWAYS = {
    "write_text", "write_bytes", "touch", "unlink", "rmdir", "savez", "savez_compressed", "savetxt", "tofile",
    "rmtree", "copyfile", "copytree", "removedirs", "symlink_to", "hardlink_to", "truncate", "ftruncate", "mkstemp",
    "NamedTemporaryFile",
}  # fmt: skip


def changes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls that change a file: the line and the function's name."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ALWAYS or (name == "open" and _writes(node)):
            yield node.lineno, name


def _writes(call: ast.Call) -> bool:
    texts = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
    return any(isinstance(t, str) and len(t) <= 3 and set(t) & set("wax+") for t in texts)


@pytest.mark.parametrize("path", source_files(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_nothing_else_writes(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    if name not in WRITERS:
        found = [(line, call) for line, call in changes(parsed(path)) if call not in OTHERS.get(name, set())]
        assert not found, f"{name}: writes files by itself: {found}; use core/io/files.py"


def test_it_sees_writers() -> None:
    calls = ("open(p, 'w')", "p.open('ab')", "open(p, mode='x')", "open(p)", "p.write_text('a')", "np.savez(p, x)")
    text = "\n".join((*calls, "open('a.txt')"))
    assert [line for line, _ in changes(ast.parse(text))] == [1, 2, 3, 5, 6]
    assert {name for name in WRITERS if list(changes(parsed(PACKAGE / name)))} == WRITERS
