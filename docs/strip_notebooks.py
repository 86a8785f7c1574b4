#!/usr/bin/env python3
"""Puts docs/notebooks into the form in which changes of them can be read: no results, no counts, no facts of a machine.

python docs/strip_notebooks.py            write them
python docs/strip_notebooks.py --check    exit status 1 if one is in another form
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"


def stripped(text: str) -> str:
    """The text of a notebook in that form: a line of JSON for each line of a cell."""
    cells = [_cell(n, c) for n, c in enumerate(json.loads(text)["cells"])]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, cell: dict[str, Any]) -> dict[str, Any]:
    source = "".join(cell["source"]).rstrip("\n").splitlines(keepends=True)
    out: dict[str, Any] = {"cell_type": cell["cell_type"], "id": f"cell-{number}", "metadata": {}, "source": source}
    if cell["cell_type"] == "code":
        out |= {"execution_count": None, "outputs": []}
    return dict(sorted(out.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    only_check = parser.parse_args().check
    status = 0
    for path in sorted(FOLDER.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        if (wanted := stripped(text)) == text:
            continue
        if only_check:
            print(f"{path}: not stripped; python docs/strip_notebooks.py")
            status = 1
        else:
            path.write_text(wanted, encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(main())
