"""``profile MODEL``: where the time goes."""

from __future__ import annotations

import argparse

from tilewright.commands.common import add_input_options, add_model_options, compile_with, count, feed_for_model
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_inputs, of_model, of_profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--runs", type=count, default=10, help="inferences over which medians are taken")
    parser.add_argument(
        "--counters", action="store_true",
        help="also what the CPU counts, on one thread: cycles, instructions, misses; says why where it cannot",
    )  # fmt: skip
    add_json_option(parser)
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    model = compile_with(args)
    feed = feed_for_model(args, model)
    found = model.profile(feed, args.runs, counters=args.counters)
    memory = model.memory(feed)
    if args.json:
        head = {**of_model(args.model, model), "inputs": of_inputs(feed)}
        print_json("profile", {**head, **of_profile(found, args.runs), "memory": memory.to_json()})
    else:
        print(f"{found}\n\n{memory}")
    return 0
