"""``run MODEL``: one inference."""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Mapping
from typing import IO

import numpy as np

from tilewright.commands.common import add_input_options, add_model_options, compile_with, feed_for_model, milliseconds
from tilewright.core.console import table
from tilewright.core.io.files import Kind, replacing, require_replaceable

_COMMENT = b"outputs of tilewright run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--output", metavar="Y.npz", help="write the outputs there")
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if args.output:
        require_replaceable(args.output, OUTPUTS)
    start = time.perf_counter()
    model = compile_with(args)
    built = time.perf_counter() - start
    feed = feed_for_model(args, model)
    model.run(feed)
    start = time.perf_counter()
    results = model.run(feed)
    seconds = time.perf_counter() - start
    rows = [("in", name, _type(x), *_numbers(x)) for name, x in feed.items()]
    rows += [("out", name, _type(x), *_numbers(x)) for name, x in results.items()]
    print(table(("", "name", "type", " min", " mean", " max"), rows))
    print(f"\ncompiled in {built:.2f} s, second run {milliseconds(seconds)} ms on {model.threads} thread(s)")
    if args.records:
        print(f"{args.records}: {model.coverage().summary()}")
    if args.output:
        _write(args.output, results)
        print(f"outputs written to {args.output}")
    return 0


def _write(path: str, results: Mapping[str, object]) -> None:
    """An ``.npz`` with the comment that says whose it is."""
    with replacing(path, OUTPUTS) as f, zipfile.ZipFile(f, "w") as archive:
        archive.comment = _COMMENT
        for name, value in results.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(value), allow_pickle=True)


def _is_ours(f: IO[bytes]) -> bool:
    try:
        with zipfile.ZipFile(f) as archive:
            return archive.comment == _COMMENT
    except zipfile.BadZipFile:
        return False


OUTPUTS = Kind("outputs that tilewright run wrote", _is_ours)


def _type(x: object) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__


def _numbers(x: object) -> tuple[str, str, str]:
    if not isinstance(x, np.ndarray) or x.size == 0 or x.dtype.kind in "OSUM":
        return "", "", ""
    values = x.astype(np.float64)
    return f"{values.min():.5g}", f"{values.mean():.5g}", f"{values.max():.5g}"
