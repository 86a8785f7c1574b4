"""The quantizer: a model of float32 in, a model of integers out. Read :func:`quantize_model` from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import onnx

from tilewright.core.errors import InputError, ModelError
from tilewright.quantization.bias_correction import correct_biases
from tilewright.quantization.calibration.calibrators import Scale, choose_range, scale_of
from tilewright.quantization.calibration.data import Calibration, Feed, read_samples
from tilewright.quantization.calibration.histogram import collect_histograms, collect_ranges
from tilewright.quantization.calibration.runner import open_watch, runtime_of
from tilewright.quantization.calibration.statistics import collect_channels, collect_hessians
from tilewright.quantization.layers import find_layers
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.operators import LAYERS
from tilewright.quantization.opset import BLOCKED, PER_CHANNEL, with_opset
from tilewright.quantization.options import QuantizeKeywords, QuantizeOptions, Runtime
from tilewright.quantization.plan import Plan, make_plan
from tilewright.quantization.qdq import insert_qdq, integer_weights
from tilewright.quantization.read_model import ModelLike, read_model
from tilewright.quantization.rewrites.equalize import equalize
from tilewright.quantization.rewrites.fold_batch_norm import fold_batch_norm
from tilewright.quantization.rewrites.smooth_quant import find_sites, smooth_quant
from tilewright.quantization.sensitivity import Sensitivity, measure_sensitivity
from tilewright.quantization.weight_only import quantize_weights, weight_layers


@dataclass(frozen=True, slots=True)
class Quantized:
    """``model``: what was made. ``original``: what it was made from. ``layers``: names of the nodes on integers, or
    with weights of them. ``skipped``: of those left out because of ``skip_worse_than``. ``notes``: what else was done.
    """

    model: onnx.ModelProto
    original: onnx.ModelProto
    samples: list[Feed]
    layers: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    sensitivity: list[Sensitivity] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def quantize(
    model: ModelLike, calibration: Calibration | None = None, options: QuantizeOptions | None = None,
    **more: Unpack[QuantizeKeywords],
) -> onnx.ModelProto:  # fmt: skip
    """Quantize an ONNX model (a path, its bytes or a ModelProto), which stays as it is; the quantized model.

    ``calibration``: an ``.npz`` file or a dict with arrays under the names of the inputs, or a list of them; it may be
    left out for ``weight_only`` without ``gptq``. :class:`tilewright.QuantizeOptions` says what the options mean.

    Raises ModelError for a model that is malformed, quantized already, or not finite; InputError for calibration data
    that the model does not take and for options; UnsupportedError for a model that this compiler cannot run.
    """
    return quantize_model(model, calibration, QuantizeOptions.of("quantize", options, more)).model


def quantize_model(
    model: ModelLike, calibration: Calibration | None, o: QuantizeOptions, sensitivity: bool = False
) -> Quantized:
    """:func:`quantize` with its account. ``sensitivity``: measure each layer's."""
    runtime = runtime_of(o.runtime)
    original, ranks = read_model(model)
    if calibration is None and (o.needs_calibration or sensitivity):
        raise InputError("calibration: expected samples of the model's inputs, got none")
    samples = [] if calibration is None else read_samples(original, calibration)
    if o.weight_only is not None:
        if sensitivity:
            raise InputError("sensitivity: expected without weight_only, which leaves all arithmetic in float32")
        return _weight_only(original, ranks, samples, o, runtime)

    work = onnx.ModelProto()
    work.CopyFrom(original)
    work = with_opset(work, PER_CHANNEL, ranks)
    notes = []
    if folded := fold_batch_norm(work):
        notes.append(f"{folded} batch normalizations folded into convolutions")
    if o.equalize:
        notes.append(f"{equalize(work)} pairs of convolutions equalized")
    if o.smooth is not None:
        notes.append(f"{_smooth(work, o.smooth, samples, runtime, o.threads)} norms smoothed")

    editor = OnnxEditor(work)
    layers = find_layers(editor, LAYERS, o.skip)
    if not layers:
        raise ModelError("model: expected a Conv, Gemm or MatMul with a constant weight of float32, found none"
                         + (" that is not skipped" if o.skip else ""))  # fmt: skip
    plan = make_plan(editor, layers)
    scales = _scales(work, plan, samples, o, runtime)
    weights = integer_weights(editor, layers, scales, o.per_tensor)

    rows: list[Sensitivity] = []
    dropped: tuple[str, ...] = ()
    if sensitivity or o.skip_worse_than is not None:
        rows = measure_sensitivity(work, layers, scales, weights, samples, runtime, o.threads)
    if o.skip_worse_than is not None:
        dropped = tuple(r.layer.name for r in rows if r.noise.decibels < o.skip_worse_than)
        layers = tuple(x for x in layers if x.name not in dropped)
        if not layers:
            best = max(r.noise.decibels for r in rows)
            raise InputError(f"skip_worse_than: expected at most the best layer's {best:.1f} dB, "
                             f"got {o.skip_worse_than:g}: nothing is left to quantize")  # fmt: skip
        plan = make_plan(editor, layers)
        scales = _scales(work, plan, samples, o, runtime)
        weights = integer_weights(editor, layers, scales, o.per_tensor)
    if o.bias_correction:
        means = collect_channels(
            open_watch(work, [x.x for x in layers], runtime, o.threads)(samples), {x.x: x.channel_axis for x in layers}
        )
        correct_biases(editor, layers, weights, means)
        editor = OnnxEditor(work)
        layers = find_layers(editor, LAYERS, (*o.skip, *dropped))
        weights = {x.y: w for x, w in zip(layers, weights.values(), strict=True)}
        plan = make_plan(editor, layers)
    insert_qdq(editor, plan, scales, weights)
    return Quantized(work, original, samples, tuple(x.name for x in layers), dropped, rows, tuple(notes))


def _weight_only(
    original: onnx.ModelProto, ranks: Mapping[str, int], samples: list[Feed], o: QuantizeOptions, runtime: Runtime
) -> Quantized:
    work = onnx.ModelProto()
    work.CopyFrom(original)
    work = with_opset(work, BLOCKED, ranks)
    editor = OnnxEditor(work)
    layers = weight_layers(editor, o)
    if not layers:
        raise ModelError("model: expected a Gemm or MatMul with a constant weight of float32, found none")
    hessians: dict[str, np.ndarray] = {}
    if o.gptq:
        operands = list(dict.fromkeys(x.x for x in layers))
        hessians = collect_hessians(open_watch(work, operands, runtime, o.threads)(samples), operands)
    quantize_weights(editor, layers, o, hessians)
    return Quantized(work, original, samples, tuple(x.name for x in layers))


def _smooth(
    model: onnx.ModelProto, alpha: float, samples: Sequence[Feed], runtime: Runtime, threads: int | None
) -> int:
    operands = [s.x for s in find_sites(OnnxEditor(model))]
    found = collect_channels(open_watch(model, operands, runtime, threads)(samples), dict.fromkeys(operands, -1))
    return smooth_quant(model, alpha, {n: c.largest for n, c in found.items()})


def _scales(
    model: onnx.ModelProto, plan: Plan, samples: Sequence[Feed], o: QuantizeOptions, runtime: Runtime
) -> dict[str, Scale]:
    """The scale of each quantized tensor. Samples are run once for ranges, and again for histograms in them."""
    sources = list(dict.fromkeys(plan.scale_source(t) for t in plan.tensors))
    watch = open_watch(model, sources, runtime, o.threads)
    ranges = collect_ranges(watch(samples))
    if o.calibrator != "minmax":
        found = collect_histograms(watch(samples), ranges)
        ranges = {n: choose_range(h, o.calibrator, o.percentile) for n, h in found.items()}
    return {t: scale_of(ranges[plan.scale_source(t)]) for t in plan.tensors}
