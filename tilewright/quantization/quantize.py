"""The quantizer: a model of float32 in, a model of integers out. Read :func:`quantize_model` from top to bottom."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Unpack

import numpy as np
import onnx

from tilewright.core.errors import InputError, ModelError
from tilewright.quantization.accuracy.budget import MEASURED, Budgeted, Clocks, held_back, layers_within
from tilewright.quantization.accuracy.sensitivity import Sensitivity, measure_sensitivity
from tilewright.quantization.bias_correction import correct_biases
from tilewright.quantization.calibration.calibrators import Scale, choose_range, scale_of
from tilewright.quantization.calibration.data import Calibration, Feed, read_samples
from tilewright.quantization.calibration.histogram import Range, collect_histograms, collect_ranges
from tilewright.quantization.calibration.runner import open_watch, runtime_of
from tilewright.quantization.calibration.statistics import collect_channels, collect_hessians
from tilewright.quantization.integers import IntegerWeight
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
from tilewright.quantization.weight_only import quantize_weights, weight_layers


@dataclass(frozen=True, slots=True)
class Quantized:
    """``model``: what was made. ``original``: what it was made from. ``layers``: names of the nodes on integers, or
    with weights of them. ``skipped``: of those left out because of ``skip_worse_than`` or ``budget``. ``notes``: what
    else was done. ``budgeted``: what was measured for the budget.
    """

    model: onnx.ModelProto
    original: onnx.ModelProto
    samples: list[Feed]
    layers: tuple[str, ...]
    skipped: tuple[str, ...] = ()
    sensitivity: list[Sensitivity] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    budgeted: Budgeted | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is to be quantized in the editor's model, with scales by tensor and weights by the layer's result."""

    editor: OnnxEditor
    plan: Plan
    scales: Mapping[str, Scale]
    weights: Mapping[str, IntegerWeight]


def quantize(
    model: ModelLike, calibration: Calibration | None = None, options: QuantizeOptions | None = None,
    **more: Unpack[QuantizeKeywords],
) -> onnx.ModelProto:  # fmt: skip
    """Make a model of integers from an ONNX model of float32, in standard ONNX. The model given is not changed.

    ``model``: a path, the bytes of a file, or a ModelProto. ``calibration``: samples of the inputs, an ``.npz`` file or
    a dict with arrays under the names of the inputs (several samples along axis 0), or a list of them; they may be left
    out for ``weight_only`` without ``gptq``. ``options`` and keywords: see :class:`tilewright.QuantizeOptions`. Gives a
    ModelProto.

    Raises ModelError for a model that is malformed, quantized already, or not finite; InputError for calibration data
    that the model does not take and for options; UnsupportedError for a model that this compiler cannot run.

    >>> rng = np.random.default_rng(0)
    >>> samples = {"x": rng.standard_normal((8, 32)).astype(np.float32)}
    >>> small = tilewright.quantize("model.onnx", samples, per_tensor=True)
    >>> sorted({node.op_type for node in small.graph.node})
    ['Add', 'DequantizeLinear', 'MatMul', 'QuantizeLinear', 'Relu']
    """
    return quantize_model(model, calibration, QuantizeOptions.of("quantize", options, more)).model


def quantize_model(
    model: ModelLike, calibration: Calibration | None, o: QuantizeOptions, sensitivity: bool = False,
    clocks: Clocks = MEASURED,
) -> Quantized:  # fmt: skip
    """:func:`quantize` with its account. ``sensitivity``: measure each layer's. ``clocks``: what times are
    measured with for a budget."""
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

    kept, others = (samples, []) if o.budget is None else held_back(samples)
    q = _Quantizer(work, kept, o, runtime)
    rows: list[Sensitivity] = []
    dropped: tuple[str, ...] = ()
    budgeted: Budgeted | None = None
    if sensitivity or o.skip_worse_than is not None or o.budget is not None:
        rows = q.sensitivity()
    if o.skip_worse_than is not None:
        dropped = tuple(r.layer.name for r in rows if r.noise.decibels < o.skip_worse_than)
        if len(dropped) == len(rows):
            best = max(r.noise.decibels for r in rows)
            raise InputError(f"skip_worse_than: expected at most the best layer's {best:.1f} dB, "
                             f"got {o.skip_worse_than:g}: nothing is left to quantize")  # fmt: skip
    if o.budget is not None:
        budgeted = layers_within(
            o.budget, original, lambda skip: q.quantized(skip)[0], rows, kept, others, o.threads, clocks
        )
        dropped = budgeted.skipped
    made, layers = q.quantized(dropped)
    return Quantized(made, original, samples, layers, dropped, rows, tuple(notes), budgeted)


class _Quantizer:
    """The model to quantize, after what is done to it as a whole, and the ranges that were found in it.

    Raises ModelError where it has no layer."""

    def __init__(
        self, model: onnx.ModelProto, samples: Sequence[Feed], options: QuantizeOptions, runtime: Runtime
    ) -> None:
        self._model, self._samples, self._options, self._runtime = model, samples, options, runtime
        self._ranges: dict[str, Range] = {}
        if not find_layers(OnnxEditor(model), LAYERS, options.skip):
            raise ModelError("model: expected a Conv, Gemm or MatMul with a constant weight of float32, found none"
                             + (" that is not skipped" if options.skip else ""))  # fmt: skip

    def sensitivity(self) -> list[Sensitivity]:
        """That of each layer."""
        p, o = self._planned(self._model, ()), self._options
        return measure_sensitivity(
            self._model, p.plan.layers, p.scales, p.weights, self._samples, self._runtime, o.threads
        )

    def quantized(self, skip: Collection[str]) -> tuple[onnx.ModelProto, tuple[str, ...]]:
        """The model without the layers ``skip`` on integers, and the names of those that are."""
        work, o = onnx.ModelProto(), self._options
        work.CopyFrom(self._model)
        p = self._planned(work, skip)
        names = tuple(x.name for x in p.plan.layers)
        if o.bias_correction:
            layers = p.plan.layers
            watch = open_watch(work, [x.x for x in layers], self._runtime, o.threads)
            means = collect_channels(watch(self._samples), {x.x: x.channel_axis for x in layers})
            correct_biases(p.editor, layers, p.weights, means)
            editor = OnnxEditor(work)
            layers = find_layers(editor, LAYERS, (*o.skip, *skip))
            weights = {x.y: w for x, w in zip(layers, p.weights.values(), strict=True)}
            p = _Planned(editor, make_plan(editor, layers), p.scales, weights)
        insert_qdq(p.editor, p.plan, p.scales, p.weights)
        return work, names

    def _planned(self, model: onnx.ModelProto, skip: Collection[str]) -> _Planned:
        editor = OnnxEditor(model)
        plan = make_plan(editor, find_layers(editor, LAYERS, (*self._options.skip, *skip)))
        scales = self._scales(plan)
        return _Planned(editor, plan, scales, integer_weights(editor, plan.layers, scales, self._options.per_tensor))

    def _scales(self, plan: Plan) -> dict[str, Scale]:
        """The scale of each quantized tensor. Samples are run once for ranges, and again for histograms in them; for
        tensors that another plan did not ask for."""
        o = self._options
        sources = dict.fromkeys(plan.scale_source(t) for t in plan.tensors)
        if new := [s for s in sources if s not in self._ranges]:
            watch = open_watch(self._model, new, self._runtime, o.threads)
            ranges = collect_ranges(watch(self._samples))
            if o.calibrator != "minmax":
                found = collect_histograms(watch(self._samples), ranges)
                ranges = {n: choose_range(h, o.calibrator, o.percentile) for n, h in found.items()}
            self._ranges |= ranges
        return {t: scale_of(self._ranges[plan.scale_source(t)]) for t in plan.tensors}


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
