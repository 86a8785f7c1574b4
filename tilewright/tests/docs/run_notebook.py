"""Runs a notebook without Jupyter: ``python -m tilewright.tests.docs.run_notebook notebook.ipynb``.

Cells run in order, in one namespace. What a last expression shows of itself is checked to be HTML that needs nothing
from elsewhere; what has no such view is printed.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

from tilewright.tests.html_checker import checked


def cells(path: Path) -> list[str]:
    """The code of a notebook, a string for each cell."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(c["source"]) for c in found if c["cell_type"] == "code"]


def run(path: Path) -> None:
    """Run all cells. What one of them raises comes with its number."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, source in enumerate(cells(path), 1):
        try:
            _run_cell(source, f"{path.name}, code cell {number}", names)
        except Exception as e:
            e.add_note(f"in code cell {number} of {path.name}:\n{source}")
            raise


def _run_cell(source: str, where: str, names: dict[str, Any]) -> None:
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if last is None:
        return
    value = eval(compile(ast.Expression(last.value), where, "eval"), names)
    if hasattr(value, "_repr_html_"):
        assert checked(value._repr_html_()).strip()
    elif value is not None:
        print(value)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
