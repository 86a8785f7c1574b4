"""``explain MODEL``: the account of a build."""

from __future__ import annotations

import argparse

from tilewright.commands.common import (
    add_broadcasting_option,
    add_build_options,
    add_records_option,
    add_shape_options,
    compile_with,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--dump", metavar="DIR", help="also write every stage as text files there")
    add_shape_options(parser)
    add_build_options(parser)
    add_broadcasting_option(parser)
    add_records_option(parser)


def run(args: argparse.Namespace) -> int:
    args.specialize = args.specialize or bool(args.shapes)
    model = compile_with(args)
    print(model.explain())
    if args.dump:
        print(f"\n{len(model.dump(args.dump))} files written to {args.dump}")
    return 0
