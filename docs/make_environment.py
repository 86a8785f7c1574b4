#!/usr/bin/env python3
"""Writes docs/reference/environment.md: the variables of the environment that are read.

python docs/make_environment.py            write the page
python docs/make_environment.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import sys

from generated import GeneratedPage, note

from tilewright.core.config import VARIABLES

HEAD = f"""\
# Environment variables

{note(__file__)}

Options are arguments of the [interface](api.md) and of the [command line](cli.md). What concerns the whole process, or
the machine, comes from the environment. It is read when a model is built and when threads are started; a value that
cannot be meant is an error that names the variable. `tilewright doctor` shows the cache and the number of threads.

| variable | meaning | default |
|---|---|---|
"""

FOOT = """
The number of threads is not among them: `threads=`, `--threads`, or what the machine allows
([containers and threads](../containers.md)). Nor do the variables of OpenMP or BLAS matter: kernels use neither.

Scripts of the repository read `TILEWRIGHT_VENV`: where `./check` makes its virtual environment (default `.venv`).
"""


def render() -> str:
    """The page."""
    rows = (f"| `{v.name}` | {v.meaning} | {v.default} |\n" for v in VARIABLES)
    return HEAD + "".join(rows) + FOOT


PAGE = GeneratedPage(__file__, "reference/environment.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
