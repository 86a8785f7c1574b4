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
    """Read a model to look at it, edit it and write it again.

    ``model``: a path, the bytes of a file, a ModelProto, or a graph of the graph IR. ``input_shapes``: shapes by input
    name and sizes by symbolic dimension, as :func:`tilewright.compile` takes them. Raises ModelError for a malformed
    model.

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
    """An empty graph, to which inputs, nodes and outputs are added.

    ``opset``: the version of ONNX's operators to write it in (default: 17, or the lowest above it that can say it).

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
    """Join two graphs: outputs of the first become inputs of the second. Neither is changed.

    ``connections``: which value of the first is which input of the second, or which of several; by default the outputs
    of the first are the inputs of the second, in order. What is not connected stays an input or output of the result.
    ``keep``: outputs of the first that stay outputs though they are connected. ``prefix``: what names of the second
    begin with where the first has the same name.

    Dimensions of one name are one size. The opset is the higher of the two. Raises InputError for values that do not
    fit together, with what was expected and what came.

    >>> net = tilewright.load_graph("model.onnx")
    >>> softmax = tilewright.new_graph("softmax")
    >>> scores = softmax.add_input("scores", "float32", ["batch", 10])
    >>> softmax.set_outputs([softmax.add("Softmax", scores, axis=-1, outputs=["p"])])
    >>> whole = tilewright.merge_graphs(net, softmax, {"y": "scores"})
    >>> whole.run({"x": np.ones((4, 32), np.float32)})["p"].shape
    (4, 10)
    """
    return ModelGraph(settled(merge(first.model, second.model, connections, prefix, keep)))
