"""``explain MODEL``: the account of a build."""

from __future__ import annotations

import argparse

from tilewright.commands.common import add_model_options, add_shape_options, compile_with


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--dump", metavar="DIR", help="also write every stage as text files there")
    add_shape_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    args.specialize = args.specialize or bool(args.shapes)
    model = compile_with(args)
    print(model.explain())
    if args.dump:
        print(f"\n{len(model.dump(args.dump))} files written to {args.dump}")
    return 0
