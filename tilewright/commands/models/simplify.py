"""``simplify MODEL -o OUT.onnx``: fewer nodes, the same results. Exit status 1 if the results are not the same."""

from __future__ import annotations

import argparse
import json
import sys
from typing import get_args

from tilewright.commands.common import amount, count, natural, parse_shapes, read_arrays
from tilewright.core.errors import MismatchError
from tilewright.core.io.files import require_replaceable
from tilewright.simplification.options import Level, SimplifyOptions
from tilewright.simplification.simplify import simplify_model
from tilewright.simplification.summary import summary, to_json
from tilewright.writer.file import ONNX_FILE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    d = SimplifyOptions()
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("-o", "--output", required=True, metavar="Y.onnx", help="write the simplified model there")
    parser.add_argument("--level", choices=get_args(Level), default=d.level, help=f"default: {d.level}")
    parser.add_argument("--opset", type=count, help="of the result (default: that of the model)")
    parser.add_argument("--disable-pass", action="append", default=[], metavar="NAME", help="a graph pass or rule")
    parser.add_argument("--enable-pass", action="append", default=[], metavar="NAME", help="an optional pass or rule")
    parser.add_argument(
        "--growth", type=natural, metavar="BYTES",
        help="how much larger a folded constant may be than what it replaces (default: a thousandth of the model)",
    )  # fmt: skip
    group = parser.add_argument_group("inputs and outputs")
    group.add_argument(
        "--overwrite-input-shape", type=parse_shapes, default={}, metavar="batch=1,x=1x3x8x8",
        help="make the model for these sizes of dimensions or shapes of inputs",
    )  # fmt: skip
    group.add_argument("--outputs", action="append", metavar="NAME", help="an output to keep (default: all)")
    group.add_argument("--drop-output", action="append", default=[], metavar="NAME", help="an output to leave out")
    group.add_argument("--drop-unused-inputs", action="store_true", help="leave out inputs that nothing reads")
    group = parser.add_argument_group("check")
    group.add_argument("--no-check", action="store_true", help="do not run both models and compare")
    group.add_argument(
        "--check-sizes", type=parse_shapes, action="append", default=[], metavar="batch=1,x=1x3x8x8",
        help="sizes of symbolic dimensions, or shapes of inputs, to compare with; may be given several times",
    )  # fmt: skip
    group.add_argument("--inputs", metavar="X.npz", help="arrays by input to compare with (default: random)")
    group.add_argument("--seed", type=natural, default=d.seed, help="of the random inputs")
    group.add_argument("--tolerance", type=amount, help="largest difference (default: by the type of the elements)")
    group.add_argument("--threads", type=count, help="threads of the runs (default: what the machine allows)")
    group = parser.add_argument_group("output")
    group.add_argument("--external-data", action="store_true", help="weights in a file beside Y.onnx, Y.onnx.data")
    group.add_argument(
        "--value-infos", action=argparse.BooleanOptionalAction,
        help="whether Y.onnx says the types of values between nodes (default: if the model does)",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(args: argparse.Namespace) -> int:
    require_replaceable(args.output, ONNX_FILE)
    options = SimplifyOptions(
        level=args.level, opset=args.opset, disabled_pass=args.disable_pass, enabled_pass=args.enable_pass,
        growth_bytes=args.growth, input_shapes=args.overwrite_input_shape or None, outputs=args.outputs,
        drop_outputs=args.drop_output, drop_inputs=args.drop_unused_inputs,
        value_infos=args.value_infos, check=not args.no_check,
        check_sizes=args.check_sizes, check_inputs=read_arrays(args.inputs) if args.inputs else None, seed=args.seed,
        tolerance=args.tolerance, threads=args.threads,
    )  # fmt: skip
    try:
        done = simplify_model(args.model, options)
    except MismatchError as e:
        print(f"tilewright: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
    done.save(args.output, external_data=True if args.external_data else None)
    print(json.dumps(to_json(done), indent=2) if args.json else summary(done, args.verbose))
    return 0
