"""``quantize MODEL --calibration X.npz -o MODEL.int8.onnx``: a model of integers, and how far it is off."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import onnx

from tilewright.commands.common import add_sample_options, amount, count, milliseconds
from tilewright.core.console import table
from tilewright.core.errors import InputError
from tilewright.core.io.files import ends_with, replacing, require_replaceable
from tilewright.quantization.accuracy.budget import CHOSEN, FLOAT32, Budgeted
from tilewright.quantization.accuracy.compare import Difference, compare_models
from tilewright.quantization.accuracy.sensitivity import Sensitivity
from tilewright.quantization.options import Calibrator, QuantizeOptions, WeightOnly
from tilewright.quantization.quantize import Quantized, quantize_model

_MARK = onnx.ModelProto(
    metadata_props=[onnx.StringStringEntryProto(key="tilewright", value="quantized")]
).SerializeToString()
"""Metadata at the end of the files that we write; a message that follows another one is part of it."""

_LARGEST = (1 << 31) - 1
"""Bytes of a protobuf message."""

MODEL = ends_with("a model that tilewright quantized", bytes(_MARK))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("-o", "--output", required=True, metavar="Y.onnx", help="write the quantized model there")
    add_sample_options(parser, "samples")
    parser.add_argument("--skip", action="append", default=[], metavar="NODE", help="a node that stays in float32")
    parser.add_argument("--threads", type=count, help="threads of the runs (default: what the machine allows)")
    group = parser.add_argument_group("activations and weights")
    group.add_argument("--calibrator", choices=get_args(Calibrator), default="minmax", help="default: minmax")
    group.add_argument("--percentile", type=amount, default=99.99, help="of the elements inside (default: 99.99)")
    group.add_argument("--per-tensor", action="store_true", help="one scale a weight instead of one a channel")
    group.add_argument("--smooth", type=amount, metavar="ALPHA", help="SmoothQuant of norms, 0 to 1")
    group.add_argument("--equalize", action="store_true", help="equalize the channels of pairs of convolutions")
    group.add_argument("--bias-correction", action="store_true", help="biases make up for rounded weights")
    group.add_argument("--sensitivity", action="store_true", help="quantize each layer alone, and show what it costs")
    group.add_argument(
        "--skip-worse-than", type=amount, metavar="DB", help="leave layers below that sensitivity in float32"
    )
    group.add_argument(
        "--budget", type=amount, metavar="ERROR",
        help="leave layers in float32 until results are off by at most that share of their root mean square, those "
        "that gain least time for their error (default: quantize all)",
    )  # fmt: skip
    group = parser.add_argument_group("weights only")
    group.add_argument("--weight-only", choices=get_args(WeightOnly), help="arithmetic stays in float32")
    group.add_argument("--block", type=count, default=32, metavar="N", help="elements that share a scale (default: 32)")
    group.add_argument("--gptq", action="store_true", help="later weights make up for the rounding of earlier ones")


def run(args: argparse.Namespace) -> int:
    require_replaceable(args.output, MODEL)
    options = QuantizeOptions(
        calibrator=args.calibrator,
        percentile=args.percentile,
        per_tensor=args.per_tensor,
        smooth=args.smooth,
        equalize=args.equalize,
        bias_correction=args.bias_correction,
        skip=args.skip,
        skip_worse_than=args.skip_worse_than,
        budget=args.budget,
        weight_only=args.weight_only,
        block=args.block,
        gptq=args.gptq,
        threads=args.threads,
    )
    start = time.perf_counter()
    done = quantize_model(args.model, args.calibration or None, options, args.sensitivity)
    _write(args.output, done.model)
    seconds = time.perf_counter() - start
    if args.sensitivity or args.skip_worse_than is not None:
        print(f"{sensitivity_table(done.sensitivity, done.skipped)}\n")
    if done.budgeted is not None:
        print(f"{budget_account(done.budgeted, args.budget)}\n")
    if done.samples:
        print(f"{difference_table(compare_models(done.original, done.model, done.samples, args.threads))}\n")
    else:
        print("not compared with the original: no calibration data\n")
    print(summary(args, done, seconds))
    return 0


def _write(path: str, model: onnx.ModelProto) -> None:
    if model.ByteSize() + len(_MARK) > _LARGEST:
        raise InputError(f"{path}: expected a quantized model of at most 2 GB, got {model.ByteSize()} bytes")
    with replacing(path, MODEL) as f:
        f.write(model.SerializeToString())
        f.write(_MARK)


def sensitivity_table(rows: Sequence[Sensitivity], skipped: Sequence[str]) -> str:
    """The layers, the most sensitive first."""
    head = ("layer", "operator", " SQNR dB", " relative RMS", "")
    ranked = sorted(rows, key=lambda r: r.noise.decibels)
    return table(
        head,
        [(r.layer.name[-60:], r.layer.op, f"{r.noise.decibels:.1f}", f"{r.noise.relative:.1e}",
          "skipped" if r.layer.name in skipped else "") for r in ranked],
    )  # fmt: skip


def budget_account(found: Budgeted, budget: float) -> str:
    """The layers that stay in float32, and why; the error and the time of the model."""
    head = ("layer in float32", "operator", " alone off by", " us float32", " us integers", "why")
    left = [r for r in found.rows if r.why]
    rows = [
        (r.layer.name[-60:], r.layer.op, f"{r.alone:.1e}", *(f"{s * 1e6:.1f}" for s in r.seconds), r.why) for r in left
    ]
    others = "no sample was held back" if found.held_back is None else f"{found.held_back:.2e} on samples held back"
    lines = [table(head, rows)] if rows else []
    stay = f"{len(left)} of {len(found.rows)} layers stay in float32"
    lines.append(f"budget {budget:g}: off by {found.error:.2e}, {others}; {stay}")
    lines.append(", ".join(f"{name} {milliseconds(s)} ms" for name, s in found.seconds.items()))
    if found.seconds[CHOSEN] > found.seconds[FLOAT32]:
        lines.append("on this machine the model is not faster than in float32")
    return "\n".join(lines)


def difference_table(rows: Sequence[Difference]) -> str:
    """A row a result and runtime."""
    head = ("output", "run by", " relative RMS", " SQNR dB")
    return table(
        head, [(d.output[-60:], d.runtime, f"{d.noise.relative:.2e}", f"{d.noise.decibels:.1f}") for d in rows]
    )


def summary(args: argparse.Namespace, done: Quantized, seconds: float) -> str:
    """What was done, and the sizes of both models."""
    before, after = done.original.ByteSize(), Path(args.output).stat().st_size
    what = f"weights of {args.weight_only}" if args.weight_only else "on integers"
    lines = [f"{len(done.layers)} layers {what}, {len(done.samples)} samples, {seconds:.1f} s", *done.notes]
    if done.skipped and args.skip_worse_than is not None:
        lines.append(f"{len(done.skipped)} layers skipped as worse than {args.skip_worse_than:g} dB")
    lines.append(
        f"{args.model} {before / 1e6:.2f} MB, {args.output} {after / 1e6:.2f} MB ({before / after:.2f} times smaller)"
    )
    return "\n".join(lines)
