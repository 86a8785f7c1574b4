"""``graph merge FIRST SECOND --connect Y=X -o BOTH``."""

from __future__ import annotations

import argparse

from tilewright.commands.graph.output import add_output_options, renaming, require_output, write
from tilewright.edit.loading import load_graph, merge_graphs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", help="an .onnx file")
    parser.add_argument("second", help="an .onnx file")
    parser.add_argument(
        "--connect", nargs="+", type=renaming, metavar="OUTPUT=INPUT",
        help="outputs of the first and the inputs of the second that they are (default: one to one in order)",
    )  # fmt: skip
    parser.add_argument("--prefix", default="second_", help="of names of the second that the first has too")
    parser.add_argument("--keep", nargs="+", default=[], metavar="OUTPUT", help="connected outputs that stay outputs")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    require_output(args)
    first, second = load_graph(args.first), load_graph(args.second)
    connections: dict[str, list[str]] = {}
    for source, target in args.connect or ():
        connections.setdefault(source, []).append(target)
    return write(args, merge_graphs(first, second, connections or None, args.prefix, args.keep))
