"""ONNX messages of fuzzed graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.core import dtypes

DOMAINS = ("", "com.microsoft")
IR_VERSION = 10


def reads(node: onnx.NodeProto) -> list[str]:
    """Names that a node reads, in its subgraphs too (their own names among them)."""
    out = dict.fromkeys(n for n in node.input if n)
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            for n in a.g.node:
                out.update(dict.fromkeys(reads(n)))
            out.update(dict.fromkeys(o.name for o in a.g.output))
    return list(out)


def operators_within(node: onnx.NodeProto) -> set[str]:
    """The operators of a node's bodies."""
    inner = [n for a in node.attribute if a.type == onnx.AttributeProto.GRAPH for n in a.g.node]
    return {n.op_type for n in inner}.union(*map(operators_within, inner))


def model_of(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    opsets = [helper.make_opsetid(d, 1 if d else opset) for d in DOMAINS]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def value_info(name: str, x: object, dims: Sequence[int | str] | None = None) -> onnx.ValueInfoProto:
    """The declared type of an input: of an array, or of a sequence (a list of arrays of one type)."""
    if isinstance(x, list):
        code = dtypes.from_numpy(x[0].dtype).onnx if x else TensorProto.FLOAT
        return helper.make_tensor_sequence_value_info(name, code, None)
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name}: expected an array or a list, got {type(x).__name__}")
    return helper.make_tensor_value_info(name, dtypes.from_numpy(x.dtype).onnx, x.shape if dims is None else dims)
