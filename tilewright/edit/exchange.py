"""Models of the package ``onnx-ir``, there and back: by messages of ONNX, which both can read and write."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from tilewright.core.errors import InputError
from tilewright.edit.loading import load_graph
from tilewright.edit.model_graph import ModelGraph
from tilewright.edit.reading import GraphReading


def from_ir(model: Any) -> ModelGraph:
    """The graph of an ``onnx_ir.Model`` of the package onnx-ir, to be edited here. The model is not changed.

    Raises InputError for anything else, or if the package is missing.

    >>> graph = tilewright.from_ir(tilewright.to_ir(tilewright.load_graph("model.onnx")))
    >>> len(graph.nodes)
    4
    """
    ir = _package()
    if not isinstance(model, ir.Model):
        raise InputError(f"from_ir: expected an onnx_ir.Model, got {type(model).__name__}")
    return load_graph(ir.to_proto(model))


def to_ir(graph: GraphReading, opset: int | None = None) -> Any:
    """The graph as an ``onnx_ir.Model`` of the package onnx-ir. ``opset``: the version of ONNX's operators (default:
    that of its file).

    Raises InputError if the package is missing, UnsupportedError for what the opset cannot say.

    >>> model = tilewright.to_ir(tilewright.load_graph("model.onnx"), opset=19)
    >>> model.opset_imports
    {'': 19}
    """
    return _package().from_proto(graph.to_onnx(opset))


def _package() -> ModuleType:
    try:
        return import_module("onnx_ir")
    except ModuleNotFoundError as e:
        raise InputError("expected the package onnx-ir, which is not installed: pip install 'tilewright[ir]'") from e
