"""Types in ONNX's words: ``tensor(float)``, ``seq(tensor(int64))``, ``optional(tensor(string))``."""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, OptionalType, SequenceType, TensorType, Type


def onnx_type_text(t: Type | None) -> str:
    """The words for a type; ``unknown`` for what inference does not know."""
    match t:
        case TensorType():
            return t.dtype.onnx_text
        case SequenceType():
            return f"seq({onnx_type_text(t.element)})"
        case OptionalType():
            return f"optional({onnx_type_text(t.element)})"
    return "unknown"


def types_of_others(graph: Graph) -> dict[str, str]:
    """The words for inputs and outputs of a graph that are no tensors."""
    types = {n: graph.values[n].type for n in (*graph.inputs, *graph.outputs)}
    return {n: onnx_type_text(t) for n, t in types.items() if not isinstance(t, TensorType)}
