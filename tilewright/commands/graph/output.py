"""What the actions that write a model share."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.commands.common import count
from tilewright.core.io.files import require_replaceable
from tilewright.edit.reading import GraphReading
from tilewright.writer.file import ONNX_FILE


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Where the model goes, and in which form."""
    group = parser.add_argument_group("output")
    group.add_argument("-o", "--output", required=True, metavar="Y.onnx", help="write the model there")
    group.add_argument("--opset", type=count, help="of ONNX's operators (default: that of the model)")
    group.add_argument(
        "--external-data", action="store_true", default=None, help="weights in a file beside it, as above 2 GB anyway"
    )


def require_output(args: argparse.Namespace) -> None:
    """Raises InputError, before any work is done, if something else than a model is where the output goes."""
    require_replaceable(args.output, ONNX_FILE)


def write(args: argparse.Namespace, graph: GraphReading) -> int:
    """Writes the model and says what is in it; the exit status."""
    graph.save(args.output, args.opset, args.external_data)
    size = Path(args.output).stat().st_size
    print(f"{args.output}: {len(graph.nodes)} nodes, {size:,} bytes")
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        for v in values:
            print(f"{what} {v}")
    return 0


def renaming(text: str) -> tuple[str, str]:
    """``OLD=NEW`` as a pair: the type of an argument."""
    old, equals, new = text.rpartition("=")
    if not equals or not old or not new:
        raise argparse.ArgumentTypeError(f"expected OLD=NEW, got {text!r}")
    return old, new
