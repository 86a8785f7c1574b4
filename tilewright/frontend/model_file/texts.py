"""Names in a model message must be text.

The protobuf runtime hands out a string field that is not UTF-8 as ``bytes``; nothing after this check meets one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from tilewright.core.errors import ModelError


def require_text(model: onnx.ModelProto) -> None:
    """Raises ModelError for a name anywhere in the model that is not UTF-8."""
    for text in _texts(model):
        if not isinstance(text, str):
            raise ModelError(f"model: a name is not UTF-8: {str(text)[:40]}")


def _texts(model: onnx.ModelProto) -> Iterator[object]:
    yield from (o.domain for o in model.opset_import)
    yield from _graph(model.graph)
    for f in model.functions:
        yield from (f.name, f.domain, f.overload, *f.input, *f.output, *f.attribute)
        yield from (o.domain for o in f.opset_import)
        yield from _nodes(f.node)
        for a in f.attribute_proto:
            yield from _attribute(a)


def _graph(graph: onnx.GraphProto) -> Iterator[object]:
    yield graph.name
    for v in (*graph.input, *graph.output, *graph.value_info):
        yield v.name
        yield from (d.dim_param for d in v.type.tensor_type.shape.dim)
    for t in graph.initializer:
        yield from _tensor(t)
    for s in graph.sparse_initializer:
        yield from _tensor(s.values)
    yield from _nodes(graph.node)


def _tensor(tensor: onnx.TensorProto) -> Iterator[object]:
    yield tensor.name
    for e in tensor.external_data:
        yield from (e.key, e.value)


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[object]:
    for n in nodes:
        yield from (n.name, n.op_type, n.domain, n.overload)
        yield from n.input
        yield from n.output
        for a in n.attribute:
            yield from _attribute(a)


def _attribute(a: onnx.AttributeProto) -> Iterator[object]:
    yield from (a.name, a.ref_attr_name)
    if a.type == onnx.AttributeProto.TENSOR:
        yield from _tensor(a.t)
    elif a.type == onnx.AttributeProto.GRAPH:
        yield from _graph(a.g)
