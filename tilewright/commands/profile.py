"""``profile MODEL``: where the time goes."""

from __future__ import annotations

import argparse

from tilewright.commands.common import add_input_options, add_model_options, compile_with, count, feed_for_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--runs", type=count, default=10, help="inferences over which medians are taken")
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    model = compile_with(args)
    print(model.profile(feed_for_model(args, model), args.runs))
    return 0
