"""``graph diff OLD NEW``. Exit status, as of diff(1): 0 no difference, 1 some, 2 a file that cannot be read."""

from __future__ import annotations

import argparse
import json

from tilewright.edit.diff import diff_graphs
from tilewright.frontend.keep import read_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", help="an .onnx file")
    parser.add_argument("new", help="an .onnx file")
    parser.add_argument("--names", action="store_true", help="names count too: list those that differ")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    found = diff_graphs(read_model(args.old).graph, read_model(args.new).graph)
    print(json.dumps(found.to_json(), indent=2) if args.json else found.text(args.names))
    return 1 if found or (args.names and found.all_renamed) else 0
