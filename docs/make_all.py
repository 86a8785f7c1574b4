#!/usr/bin/env python3
"""Writes every page that is made from the code.

python docs/make_all.py            write them
python docs/make_all.py --check    exit status 1 if one is out of date
"""

from __future__ import annotations

import argparse
import sys

import make_api
import make_cli
import make_environment
import make_from_onnxruntime
import make_json_output
import make_operators
import make_pipeline
import make_primitives
import make_rewrites

PAGES = tuple(
    m.PAGE
    for m in (
        make_api, make_cli, make_environment, make_from_onnxruntime, make_json_output, make_operators, make_pipeline,
        make_primitives, make_rewrites,
    )
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a page is out of date")
    if not parser.parse_args().check:
        for page in PAGES:
            page.write()
        return 0
    reasons = [r for r in (p.out_of_date() for p in PAGES) if r is not None]
    print(*reasons, sep="\n", file=sys.stderr, end="\n" * bool(reasons))
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
