"""``explain MODEL``: the account of a build."""

from __future__ import annotations

import argparse
import logging

from tilewright.commands.common import add_model_options, add_shape_options, compile_with
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_coverage, of_model

LOGGER = logging.getLogger("tilewright")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--dump", metavar="DIR", help="also write every stage as text files there")
    add_json_option(parser)
    add_shape_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    model = compile_with(args)
    if args.json:
        coverage = of_coverage(model.coverage())
        found = {"build": model.account(), "coverage": coverage, "memory": model.memory().to_json()}
        print_json("explain", {**of_model(args.model, model), **found})
    else:
        if args.verbose:
            print(f"target in full: {model.account()['target']}")
        print(model.explain())
    if args.dump:
        LOGGER.warning("%d files written to %s", len(model.dump(args.dump)), args.dump)
    return 0
