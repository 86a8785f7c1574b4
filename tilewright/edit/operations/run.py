"""A model, or a part of it, computed by the interpreter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import require_mapping
from tilewright.edit.operations.cut import extract
from tilewright.edit.operations.lookup import node_text, require_value
from tilewright.edit.operations.nodes import fits
from tilewright.edit.operations.settle import settled
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Node, TensorType, Value, walk_graphs
from tilewright.writer import to_onnx


def run(model: OnnxModel, feed: Mapping[str, object], outputs: Sequence[str] | None) -> dict[str, object]:
    """Values of ``outputs`` (default: those of the model) for the values in ``feed``, which may be any of the graph:
    then only what lies in between is computed.

    Functions of the model, and operators of other domains that the importer knows, are expanded first. Raises
    InputError for what does not fit, UnsupportedError for operators that nobody knows.
    """
    graph = model.graph
    given = require_mapping("run", feed)
    wanted = tuple(graph.outputs if outputs is None else outputs)
    for name in (*given, *wanted):
        require_value(graph, name, "run")
    arrays = {name: _fed(graph.values[name], x) for name, x in given.items()}
    inputs = tuple(given)
    part = extract(model, inputs, tuple(dict.fromkeys(wanted)))
    if any(n.domain for g in walk_graphs(part.graph) for n in g.nodes):
        part = part.with_graph(from_onnx(to_onnx(settled(part))))
        arrays = {k: x for k, x in arrays.items() if k in part.graph.inputs}
    out = interpret(part.graph, arrays)  # type: ignore[arg-type]  # sequences may be fed, too
    return {name: out[name] for name in wanted}


def run_node(model: OnnxModel, node: Node, arrays: Sequence[object]) -> list[object]:
    """Results of one node for its inputs that are not constants, in order."""
    graph = model.graph
    names = list(dict.fromkeys(i for i in node.inputs if i and i not in graph.constants))
    if len(arrays) != len(names):
        raise InputError(
            f"run_node {node_text(node)}: expected {len(names)} arrays ({', '.join(names)}), got {len(arrays)}"
        )
    wanted = [o for o in node.outputs if o]
    results = run(model, dict(zip(names, arrays, strict=True)), wanted)
    return [results[o] for o in wanted]


def _fed(value: Value, x: object) -> object:
    """What is fed, an array of the value's type. Raises InputError."""
    t = value.type
    if not isinstance(t, TensorType):
        return x
    array = x if isinstance(x, np.ndarray) else np.asarray(x, t.dtype.numpy)
    if array.dtype != t.dtype.numpy or not fits(t, array.shape):
        raise InputError(f"run: '{value.name}': expected {t}, got {array.dtype}{list(array.shape)}")
    return array
