"""``build MODEL -o FILE``: an artifact, which runs without Python."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from tilewright.commands.common import add_fixed_shapes, add_model_options, compile_with
from tilewright.core.errors import InputError
from tilewright.deploy.opener import export_loader
from tilewright.deploy.pack import SUFFIX, export_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", nargs="?", help="an .onnx file; none with --loader")
    parser.add_argument("--loader", action="store_true", help="write libtilewright, which opens artifacts by path")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE",
        help="model.so: a shared library; model.twa: a package, of one or several targets",
    )  # fmt: skip
    parser.add_argument(
        "--weights", choices=("inside", "beside"), default="inside", help="of a library: where they are"
    )
    add_fixed_shapes(parser)
    add_model_options(parser, several_targets=True)


def run(args: argparse.Namespace) -> int:
    if args.loader == (args.model is not None):
        raise InputError("build: expected a model, or --loader and none")
    if args.loader:
        path = export_loader(args.output)
        print(f"{path}: {path.stat().st_size:,} bytes")
        return 0
    targets = args.target or [None]
    is_package = Path(args.output).suffix == SUFFIX
    if len(targets) > 1 and not is_package:
        raise InputError(f"{args.output}: expected a package ({SUFFIX}) for {len(targets)} targets")
    models = []
    start = time.perf_counter()
    for target in targets:
        args.target = target
        models.append(compile_with(args))
    paths = [export_package(args.output, models)] if is_package else models[0].export(args.output, weights=args.weights)
    for path in paths:
        print(f"{path}: {path.stat().st_size:,} bytes")
    print(f"built in {time.perf_counter() - start:.1f} s for {len(targets)} target(s)")
    return 0
