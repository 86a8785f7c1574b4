"""``graph rename MODEL --values OLD=NEW -o RENAMED``."""

from __future__ import annotations

import argparse

from tilewright.commands.graph.output import add_output_options, renaming, require_output, write
from tilewright.core.errors import InputError
from tilewright.edit.loading import load_graph


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    for option, text in (
        ("values", "values, inputs and outputs among them"),
        ("nodes", "nodes"),
        ("dims", "dimensions"),
    ):
        parser.add_argument(f"--{option}", nargs="+", type=renaming, default=[], metavar="OLD=NEW", help=text)
    parser.add_argument("--name", help="of the graph")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    if not (args.values or args.nodes or args.dims or args.name):
        raise InputError("graph rename: expected --values, --nodes, --dims or --name, got none")
    require_output(args)
    graph = load_graph(args.model)
    graph.rename(dict(args.values))
    graph.rename_nodes(dict(args.nodes))
    for old, new in args.dims:
        graph.rename_dim(old, new)
    if args.name:
        graph.rename_graph(args.name)
    return write(args, graph)
