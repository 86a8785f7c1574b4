"""``graph stats MODEL``."""

from __future__ import annotations

import argparse
import json

from tilewright.commands.common import parse_shapes
from tilewright.edit.stats import graph_stats
from tilewright.frontend.keep import read_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument(
        "--shapes", type=parse_shapes, default={}, metavar="batch=1,x=1x3x8x8",
        help="sizes of symbolic dimensions, or shapes of inputs (default: formulas of them)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    found = graph_stats(read_model(args.model, args.shapes or None).graph)
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0
