"""``graph extract MODEL --outputs Y -o PART``."""

from __future__ import annotations

import argparse

from tilewright.commands.graph.output import add_output_options, require_output, write
from tilewright.edit.loading import load_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument(
        "--inputs",
        nargs="+",
        metavar="NAME",
        help="values that are fed (default: the inputs of the model that it takes)",
    )
    parser.add_argument("--outputs", nargs="+", required=True, metavar="NAME", help="values that are computed")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    require_output(args)
    return write(args, load_graph(args.model).extract(args.inputs, args.outputs))
