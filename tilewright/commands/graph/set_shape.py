"""``graph set-shape MODEL batch=1 x=n,3,224,224 -o FIXED``."""

from __future__ import annotations

import argparse

from tilewright.commands.graph.output import add_output_options, require_output, write
from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.edit.loading import load_graph
from tilewright.edit.model_graph import ModelGraph

Sizes = tuple[int | str | None, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument(
        "changes", nargs="*", type=_change, metavar="NAME=SIZES",
        help="an input and its sizes, x=batch,3,224,224: numbers, names, ? for one without a name; or a dimension and "
        "its number, batch=1",
    )  # fmt: skip
    parser.add_argument(
        "--free-batch", metavar="NAME", help="axis 0 of all inputs, a number, becomes this dimension; reshapes follow"
    )
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    if not args.changes and not args.free_batch:
        raise InputError("graph set-shape: expected NAME=SIZES or --free-batch, got neither")
    require_output(args)
    graph = load_graph(args.model)
    with graph.batch():
        for name, sizes in args.changes:
            _set(graph, name, sizes)
    if args.free_batch:
        graph.free_batch(args.free_batch)
    return write(args, graph)


def _set(graph: ModelGraph, name: str, sizes: Sizes) -> None:
    if name in graph.values:
        graph.set_shape(name, sizes)
        return
    known = [*graph.dims, *graph.inputs.names]
    if name not in graph.dims:
        listed = ", ".join(known)
        raise InputError(f"graph set-shape: expected an input or a dimension ({listed}), got {name!r}"
                         f"{did_you_mean(name, known)}")  # fmt: skip
    if len(sizes) != 1 or sizes[0] is None:
        raise InputError(f"graph set-shape: dimension {name!r}: expected one number, got {len(sizes)} sizes")
    graph.set_dim(name, sizes[0])


def _change(text: str) -> tuple[str, Sizes]:
    name, equals, sizes = text.rpartition("=")
    parts = sizes.split(",") if sizes else []
    if not equals or not name or not all(parts):
        raise argparse.ArgumentTypeError(f"expected name=1 or name=batch,3,224,224, got {text!r}")
    return name, tuple(None if p == "?" else int(p) if p.isdigit() else p for p in parts)
