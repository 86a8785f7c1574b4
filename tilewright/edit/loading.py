"""Graphs to be edited: of a file, of nothing, of two others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tilewright.edit.model_graph import ModelGraph, Pairs
from tilewright.edit.operations.merge import merge
from tilewright.edit.operations.settle import settled
from tilewright.edit.reading import GraphReading
from tilewright.frontend.keep import OnnxModel, read_model
from tilewright.frontend.model_file.source import ModelLike
from tilewright.graph_ir.ir import Graph
from tilewright.writer.model import DEFAULT_OPSET, require_opset


def load_graph(
    model: ModelLike | OnnxModel | Graph, input_shapes: Mapping[str, Sequence[int | str] | int] | None = None
) -> ModelGraph:
    """A model to be edited: a path, bytes, a message, or a graph of the graph IR.

    ``input_shapes``: as :func:`tilewright.compile` takes them. Raises ModelError for a malformed model.

    >>> graph = tilewright.load_graph("model.onnx", {"batch": 4})
    >>> print(graph.inputs[0])
    x: float32[4, 32]
    >>> graph.rename({"x": "features"})
    >>> graph.save("renamed.onnx")
    """
    if isinstance(model, Graph):
        return ModelGraph(_alone(model, None))
    return ModelGraph(read_model(model, input_shapes))


def new_graph(name: str = "graph", opset: int | None = None) -> ModelGraph:
    """An empty graph, to be written in ``opset`` (default: 17, or the lowest above it that can).

    >>> graph = tilewright.new_graph("twice", opset=18)
    >>> x = graph.add_input("x", "float32", ["n", 4])
    >>> graph.set_outputs([graph.add("Add", x, x, outputs=["y"])])
    >>> graph.run({"x": np.ones((2, 4), np.float32)})["y"][0]
    array([2., 2., 2., 2.], dtype=float32)
    """
    return ModelGraph(_alone(Graph(name, (), (), (), {}), opset))


def _alone(graph: Graph, opset: int | None) -> OnnxModel:
    shell = onnx.ModelProto(producer_name="tilewright", ir_version=8)
    shell.opset_import.add(version=DEFAULT_OPSET if opset is None else require_opset(opset))
    return OnnxModel(graph, shell)


def merge_graphs(
    first: GraphReading, second: GraphReading, connections: Pairs = None, prefix: str = "second_",
    keep: Sequence[str] = (),
) -> ModelGraph:  # fmt: skip
    """One graph of two. ``connections``: outputs, or other values, of the first to the inputs of the second that they
    are, one or several (default: one to one in order). Inputs and outputs that are not connected are those of the
    result; ``keep``: outputs of the first that stay outputs though they are connected.

    Names of the second that the first has too get ``prefix``. Dimensions of one name are one size, and those of
    connected inputs are what they are connected to. The opset is the higher one. Raises InputError for what does not
    fit: who, expected and got.

    >>> net = tilewright.load_graph("model.onnx")
    >>> softmax = tilewright.new_graph("softmax")
    >>> scores = softmax.add_input("scores", "float32", ["batch", 10])
    >>> softmax.set_outputs([softmax.add("Softmax", scores, axis=-1, outputs=["p"])])
    >>> whole = tilewright.merge_graphs(net, softmax, {"y": "scores"})
    >>> whole.run({"x": np.ones((4, 32), np.float32)})["p"].shape
    (4, 10)
    """
    return ModelGraph(settled(merge(first.model, second.model, connections, prefix, keep)))
