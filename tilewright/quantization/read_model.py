"""A model as the quantizer edits it: read, checked, its external data inside."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import ModelError
from tilewright.graph_ir.ir import Graph, TensorType
from tilewright.quantization.operators import is_quantized

ModelLike: TypeAlias = "str | Path | bytes | onnx.ModelProto"


def read_model(model: ModelLike) -> tuple[onnx.ModelProto, dict[str, int]]:
    """A copy of the model, its external data inside, and the ranks of its values.

    Raises ModelError for what is no model, is malformed or quantized already, UnsupportedError for what this compiler
    cannot run.
    """
    graph = compile(model, stop_after="import")
    copy = onnx.ModelProto()
    try:
        if isinstance(model, str | Path):
            copy = onnx.load(str(model))
        else:
            copy.ParseFromString(model if isinstance(model, bytes) else model.SerializeToString())
    except (DecodeError, EncodeError, ValueError) as e:
        raise ModelError(f"model: cannot be read: {e}") from e
    found = next((n for n in copy.graph.node if is_quantized(n.op_type)), None)
    if found is not None:
        raise ModelError(f"{found.name or found.output[0]}: expected a model of float32, got {found.op_type}: "
                         "the model is quantized already")  # fmt: skip
    if copy.ir_version < 4:  # where initializers had to be inputs as well
        weights = {i.name for i in copy.graph.initializer}
        for k in reversed(range(len(copy.graph.input))):
            if copy.graph.input[k].name in weights:
                del copy.graph.input[k]
        copy.ir_version = 4
    return copy, _ranks(graph)


def _ranks(graph: Graph) -> dict[str, int]:
    types = ((n, v.type) for n, v in graph.values.items())
    return {n: len(t.shape) for n, t in types if isinstance(t, TensorType) and t.shape is not None}
