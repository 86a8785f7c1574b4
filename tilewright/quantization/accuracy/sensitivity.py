"""Which layers a model suffers from when they are quantized: each one alone, the others in float32.

A layer's result with its operands rounded is computed by a model of that one node. The whole model has, behind each
layer, a choice between what it computed and such a result: it is loaded once, and run once a layer and sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.quantization.accuracy.compare import Noise
from tilewright.quantization.calibration.calibrators import Scale
from tilewright.quantization.calibration.data import Feed
from tilewright.quantization.calibration.runner import Run, open_runner, open_watch
from tilewright.quantization.integers import IntegerWeight
from tilewright.quantization.layers import Layer
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.options import Runtime

SAMPLES = 2
"""How many of the calibration samples are run for each layer."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """``noise``: of the model's result that suffers most, with this layer alone quantized."""

    layer: Layer
    noise: Noise


def measure_sensitivity(
    model: onnx.ModelProto, layers: Sequence[Layer], scales: Mapping[str, Scale], weights: Mapping[str, IntegerWeight],
    samples: Sequence[Feed], runtime: Runtime, threads: int | None,
) -> list[Sensitivity]:  # fmt: skip
    """A row for each layer in the model's order, over the first samples."""
    names = [o.name for o in model.graph.output]
    editor = OnnxEditor(model)
    operands = {x.y: _operands(editor, x) for x in layers}
    values = list(dict.fromkeys(n for x in layers for n in (*operands[x.y], x.y)))
    watch = open_watch(model, values, runtime, threads)
    noise: list[dict[str, Noise]] = [{} for _ in layers]
    shapes: dict[str, tuple[int, ...]] = {}
    alone: list[Run] = []
    few = samples[:SAMPLES]
    for feed, value in zip(few, watch(few), strict=True):
        if shapes != (shapes := {n: v.shape for n, v in value.items()}):
            run = open_runner(_with_choices(model, layers, value), runtime, threads)
            ones = (_one_layer(editor, x, weights[x.y], {n: value[n] for n in operands[x.y]}) for x in layers)
            alone = [open_runner(m, runtime, threads) for m in ones]
        off = {n: a for k, x in enumerate(layers) for n, a in _choice(k, False, value[x.y])}
        expected = run({**feed, **off})
        for k, x in enumerate(layers):
            fed = {n: value[n] for n in operands[x.y]} | {x.x: scales[x.x].rounded(value[x.x])}
            (given,) = alone[k](fed).values()
            got = run({**feed, **off, **dict(_choice(k, True, given))})
            for n in names:
                if expected[n].dtype.kind == "f":
                    noise[k].setdefault(n, Noise()).add(expected[n], got[n])
    worst = (max(n.values(), key=lambda x: x.relative, default=Noise()) for n in noise)
    return [Sensitivity(x, n) for x, n in zip(layers, worst, strict=True)]


def _operands(editor: OnnxEditor, x: Layer) -> list[str]:
    """What a layer reads that is not constant."""
    return [n for n in dict.fromkeys(editor.producers[x.y].input) if n and n not in editor.constants]


def _choice(k: int, quantized: bool, result: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """The inputs that say which result layer ``k`` has."""
    return [(f"tilewright_choice_{k}", np.asarray(quantized)), (f"tilewright_result_{k}", result)]


def _input(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _with_choices(model: onnx.ModelProto, layers: Sequence[Layer], values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with a choice behind each layer."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    editor = OnnxEditor(copy)
    for k, x in enumerate(layers):
        added = _choice(k, False, values[x.y])
        copy.graph.input.extend(_input(n, a) for n, a in added)
        node = editor.producers[x.y]
        node.output[0] = editor.fresh(f"{x.y}_computed")
        choose = editor.node("Where", (added[0][0], added[1][0], node.output[0]), x.y)
        editor.insert_after(x.y, choose)
    editor.save()
    return copy


def _one_layer(editor: OnnxEditor, x: Layer, w: IntegerWeight, operands: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """A layer with its rounded weight as a model, its operands inputs."""
    node = onnx.NodeProto()
    node.CopyFrom(editor.producers[x.y])
    constants = {n: editor.array(n) for n in node.input[2:] if n in editor.constants} | {x.weight: w.dequantized}
    graph = helper.make_graph(
        [node], "layer", [_input(n, a) for n, a in operands.items()], [onnx.ValueInfoProto(name=x.y)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=editor.model.opset_import, ir_version=editor.model.ir_version)
