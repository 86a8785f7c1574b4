"""``coverage MODEL --log FILE``: which kernels have a record, which do not and why, and their shares of the time."""

from __future__ import annotations

import argparse

from tilewright.commands.common import add_input_options, add_model_options, compile_with, count, feed_for_model
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_coverage, of_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "With --require-tuned 95 the exit status is 1 where fewer than 95 % of the run time are tuned."
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--measure", action="store_true", help="measure the shares (default: they are estimated)")
    parser.add_argument("--runs", type=count, default=5, help="with --measure: inferences over which medians are taken")
    add_json_option(parser)
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    model = compile_with(args)
    found = model.coverage(feed_for_model(args, model), args.runs) if args.measure else model.coverage()
    if args.json:
        print_json("coverage", {**of_model(args.model, model), "coverage": of_coverage(found)})
    else:
        print(found)
    return 0
