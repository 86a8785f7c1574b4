"""ONNX models as graphs that can be written again, with all that their files say beside them.

``read_model`` keeps what the table of operators does not know, nodes of other domains and calls of the model's
functions as they are: foreign nodes, which rewrites pass by. ``import_model`` is the importer for compilation, which
expands all of these: its graph is what is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from tilewright.core.errors import InputError
from tilewright.frontend.convert import GraphConverter
from tilewright.frontend.dims import split_overrides
from tilewright.frontend.importer import has_operator, import_source, told_as_model_errors
from tilewright.frontend.model_file.source import ModelLike, open_source
from tilewright.frontend.model_file.texts import require_text
from tilewright.frontend.report import require_known_opsets
from tilewright.frontend.schemas import normal_domain
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph, node_reads
from tilewright.graph_ir.user_operators import NO_OPERATORS, Operators
from tilewright.graph_ir.verifier import verify_graph


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """A graph, and what its file says beside it.

    ``shell``: the message without nodes, constants and types: versions, producer, metadata, functions, texts.
    ``notes``: by the name of a node, what its message says that the graph does not (text, metadata, overload, and
    attributes of foreign nodes for which the graph has no form).
    ``dims``: symbol -> what the file calls that size, "" for one without a name. ``overridable``: constants that are
    inputs of the file as well, whose values a caller may replace.
    """

    graph: Graph
    shell: onnx.ModelProto
    notes: Mapping[str, onnx.NodeProto] = field(default_factory=dict)
    dims: Mapping[str, str] = field(default_factory=dict)
    overridable: frozenset[str] = frozenset()

    @property
    def opset(self) -> int:
        """The version of ONNX's operators that the file asks for."""
        return next((o.version for o in self.shell.opset_import if o.domain in ("", "ai.onnx")), 1)

    def with_graph(self, graph: Graph) -> OnnxModel:
        """The same file with another graph."""
        return replace(self, graph=graph)


def read_model(
    model: ModelLike | OnnxModel, input_shapes: Mapping[str, Sequence[int | str] | int] | None = None
) -> OnnxModel:
    """Read an ONNX model to look at it, change it and write it again.

    ``model``: a path, bytes or a message. ``input_shapes``: as :func:`from_onnx` takes them. Raises ModelError for a
    malformed model, InputError for shapes that do not fit.
    """
    if isinstance(model, OnnxModel):
        return model
    source = open_source(model)
    with told_as_model_errors():
        require_text(source.model)
        require_known_opsets(source.model)
        sized = split_overrides(input_shapes, source.model.graph)
        if sized.ranges:
            raise InputError(
                f"input_shapes: expected sizes, got ranges of {sorted(sized.ranges)}, which no file can say"
            )
        converter = GraphConverter(source, has_operator, dims := sized.dims(), sized.shapes, keeps=True)
        graph = infer_graph(_without_leftovers(converter.convert(), source.model.graph))
        verify_graph(graph, foreign=True)
        proto = source.model.graph
        given = {t.name for t in proto.initializer}
        return OnnxModel(
            graph, _shell(source.model), converter.notes, dims.texts(),
            frozenset(i.name for i in proto.input if i.name in given),
        )  # fmt: skip


def import_model(
    model: ModelLike,
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = None,
    native: Callable[[str], bool] = has_operator,
    operators: Operators = NO_OPERATORS,
) -> OnnxModel:
    """:func:`from_onnx` with what the file says beside the graph. Constants that were inputs as well are constants."""
    source = open_source(model)
    graph, dims = import_source(source, input_shapes, native, operators)
    shell = _shell(source.model)
    shell.ClearField("functions")
    own = [o for o in shell.opset_import if not normal_domain(o.domain)]
    shell.ClearField("opset_import")
    shell.opset_import.extend(own)
    return OnnxModel(graph, shell, {}, dims.texts())


def _without_leftovers(graph: Graph, proto: onnx.GraphProto) -> Graph:
    """Without nodes and constants that the file's form of an operator reads, and nothing in the graph does: the scales
    of all axes, where only those of some count."""
    read = {*_reads(proto)}
    live = {*graph.outputs}
    nodes = []
    for n in reversed(graph.nodes):
        if n.domain or not live.isdisjoint(n.outputs) or read.isdisjoint(n.outputs):
            nodes.append(n)
            live.update(node_reads(n))
    constants = {name: c for name, c in graph.constants.items() if name in live or name not in read}
    return graph.replace(nodes=tuple(reversed(nodes)), constants=constants)


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    for n in graph.node:
        yield from n.input
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from _reads(a.g)
                yield from (o.name for o in a.g.output)


def _shell(model: onnx.ModelProto) -> onnx.ModelProto:
    shell = onnx.ModelProto()
    graph = onnx.GraphProto(name=model.graph.name, doc_string=model.graph.doc_string)
    graph.metadata_props.extend(model.graph.metadata_props)
    graph.quantization_annotation.extend(model.graph.quantization_annotation)
    for mine, theirs in ((graph.input, model.graph.input), (graph.output, model.graph.output)):
        mine.extend(theirs)
    for fd, value in model.ListFields():
        if fd.name != "graph":
            if fd.is_repeated:
                getattr(shell, fd.name).extend(value)
            else:
                setattr(shell, fd.name, value)
    shell.graph.CopyFrom(graph)
    return shell
