"""``from_onnx``: the way in. Each line is one stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tilewright.core.errors import ModelError, ResourceError
from tilewright.frontend.convert import GraphConverter
from tilewright.frontend.dims import Dims, split_overrides
from tilewright.frontend.expansion import require_expandable
from tilewright.frontend.model_file.source import Source, open_source
from tilewright.frontend.model_file.texts import require_text
from tilewright.frontend.report import require_known_opsets, require_supported
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph, TensorType
from tilewright.graph_ir.ops import OPS
from tilewright.graph_ir.user_operators import NO_OPERATORS, Operators
from tilewright.graph_ir.verifier import verify_graph

BROKEN_ASSUMPTION = "model breaks an assumption of the importer"
_INTERNAL = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError)


def has_operator(op: str) -> bool:
    """True for what the graph IR can express."""
    return op in OPS


def from_onnx(
    model: str | Path | bytes | onnx.ModelProto,
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = None,
    native: Callable[[str], bool] = has_operator,
    operators: Operators = NO_OPERATORS,
) -> Graph:
    """Read an ONNX model (opset 7 to the newest of the installed onnx) into a typed graph.

    ``input_shapes``: shapes by input name, and sizes by dimension name, or the least and the greatest:
    ``{"x": (1, 3, "h", "w"), "batch": 4, "w": (8, 64)}``.
    ``native``: which operators may stay as they are; others are expanded if the standard defines them as functions.
    ``operators``: of domains of the user's own; they come before functions of the model and what is built in.
    An initializer that is also an input is a constant of the graph and not an input of it.

    Raises UnsupportedError with the list of all that is not supported, ModelError for a malformed model, InputError
    for an override that does not fit.
    """
    return import_source(open_source(model), input_shapes, native, operators)[0]


def import_source(
    source: Source, input_shapes: Mapping[str, Sequence[int | str] | int] | None, native: Callable[[str], bool],
    operators: Operators = NO_OPERATORS,
) -> tuple[Graph, Dims]:  # fmt: skip
    """:func:`from_onnx` of a parsed model: the graph, and its names for sizes."""
    with told_as_model_errors():
        require_text(source.model)
        require_known_opsets(source.model)
        require_expandable(source.model)
        require_supported(source.model, native, operators)
        given = split_overrides(input_shapes, source.model.graph)
        dims = given.dims()
        graph = infer_graph(GraphConverter(source, native, dims, given.shapes, operators=operators).convert())
        graph = graph.replace(ranges=dims.ranges())
        _require_declared_types(source.model.graph, graph)
        verify_graph(graph)
    return graph, dims


@contextmanager
def told_as_model_errors() -> Iterator[None]:
    """Errors from inside as errors of the model."""
    try:
        yield
    except DecodeError as e:
        raise ModelError(f"model: malformed message: {e}") from e
    except RecursionError as e:
        raise ModelError("model: nested too deeply") from e
    except MemoryError as e:
        raise ResourceError(f"model: out of memory: {e or 'a number in the file asks for too much'}") from e
    except _INTERNAL as e:  # a malformed model must never show a traceback from inside; the cause stays attached
        raise ModelError(f"{BROKEN_ASSUMPTION}: {type(e).__name__}: {' '.join(str(e).split())}") from e


def _require_declared_types(proto: onnx.GraphProto, graph: Graph) -> None:
    """The element types that the model declares for its outputs must be those that it computes."""
    for o, name in zip(proto.output, graph.outputs, strict=True):
        t = graph.values[name].type
        declared = o.type.tensor_type.elem_type if o.type.WhichOneof("value") == "tensor_type" else 0
        if declared and isinstance(t, TensorType) and t.dtype.onnx != declared:
            raise ModelError(f"output {o.name!r}: declared with element type number {declared}, computed as {t.dtype}")
