"""A model in a newer opset, as onnx converts it, with what the converter would lose or make worse kept aside."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
from onnx import helper, version_converter

from tilewright.core.errors import ModelError
from tilewright.quantization.onnx_editor import attribute

PER_CHANNEL = 13
"""The opset from which on QuantizeLinear and DequantizeLinear have an axis."""
BLOCKED = 21
"""The opset from which on DequantizeLinear takes blocks, and integers of 4 bits."""

_SOFTMAX = 13
"""The opset before which Softmax saw its operand as a matrix."""
_SMALL = 64
"""Elements of a constant that the converter may want to read: axes, scales of a resize."""
_ASIDE = "tilewright.unchanged"
"""A domain that the converter does not know."""


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators."""
    return next((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)


def with_opset(model: onnx.ModelProto, least: int, ranks: Mapping[str, int]) -> onnx.ModelProto:
    """The model in opset ``least`` or a newer one that it is in; ``model`` may be used up. ``ranks``:
    numbers of dimensions of values. Raises ModelError if it cannot be converted."""
    have = opset_of(model)
    if have >= least:
        return model
    weights = [i for i in model.graph.initializer if math.prod(i.dims) > _SMALL]
    _stand_in(model, weights)
    for node in model.graph.node:  # along the last axis it is what it is in newer opsets
        if node.op_type == "Softmax" and not node.domain and have < _SOFTMAX:
            axis = int(attribute(node, "axis", 1))
            if axis in (-1, ranks.get(node.input[0], 0) - 1):
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("axis", -1))
                node.domain = _ASIDE
    model.opset_import.append(helper.make_opsetid(_ASIDE, 1))
    try:
        out = version_converter.convert_version(model, least)
    except (RuntimeError, ValueError, EncodeError) as e:
        reason = " ".join(str(e).split())[:300]
        raise ModelError(
            f"model: expected opset {least} or newer, got {have}, and onnx cannot convert it: {reason}"
        ) from e
    for node in out.graph.node:
        if node.domain == _ASIDE:
            node.domain = ""
    _put_back(out, weights)
    versions = {o.domain: o.version for o in model.opset_import if o.domain not in ("", "ai.onnx", _ASIDE)}
    del out.opset_import[:]
    out.opset_import.extend(helper.make_opsetid(d, v) for d, v in {"": least, **versions}.items())
    for f in ("producer_name", "producer_version", "domain", "model_version", "doc_string"):
        setattr(out, f, getattr(model, f))
    del out.metadata_props[:]
    out.metadata_props.extend(model.metadata_props)
    out.ir_version = max(int(model.ir_version), int(helper.find_min_ir_version_for(out.opset_import)))
    return out


def _stand_in(model: onnx.ModelProto, weights: list[onnx.TensorProto]) -> None:
    """Inputs in the place of large constants, which the converter would copy."""
    names = {w.name for w in weights}
    known = {i.name for i in model.graph.input}
    for k in reversed(range(len(model.graph.initializer))):
        if model.graph.initializer[k].name in names:
            del model.graph.initializer[k]
    model.graph.input.extend(
        helper.make_tensor_value_info(w.name, w.data_type, list(w.dims)) for w in weights if w.name not in known
    )


def _put_back(model: onnx.ModelProto, weights: list[onnx.TensorProto]) -> None:
    names = {w.name for w in weights}
    for k in reversed(range(len(model.graph.input))):
        if model.graph.input[k].name in names:
            del model.graph.input[k]
    model.graph.initializer.extend(weights)
