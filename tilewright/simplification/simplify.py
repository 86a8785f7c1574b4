"""The simplifier from a model to a model: read :func:`simplify_model` from top to bottom."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias, Unpack

import onnx

from tilewright.core.errors import MismatchError
from tilewright.frontend.keep import OnnxModel, read_model
from tilewright.frontend.model_file.source import ModelLike, open_source
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Refused
from tilewright.graph_ir.pipeline import PassReport
from tilewright.simplification.blame import find_blame
from tilewright.simplification.check import Checked, Judge
from tilewright.simplification.interface import unread_inputs, with_outputs, without_inputs
from tilewright.simplification.options import SimplifyKeywords, SimplifyOptions
from tilewright.simplification.passes import Rewriting
from tilewright.writer import save_onnx, to_onnx
from tilewright.writer.model import write
from tilewright.writer.tensors import raw_size, tensor_header

Operators: TypeAlias = "Mapping[str, int]"


@dataclass(frozen=True, slots=True, eq=False)
class Simplified:
    """What was made, and of what. ``before``, ``after``: nodes by operator, those of subgraphs too. ``bytes``: of the
    file, before and after. ``report``: what each pass did and refused. ``checked``: None if it was not asked for.
    ``unread``: inputs that nothing reads, which are gone if that was asked for. ``value_infos``: whether the file says
    the types of values between nodes."""

    model: OnnxModel
    opset: int
    value_infos: bool
    before: Operators
    after: Operators
    bytes: tuple[int, int]
    report: PassReport
    checked: Checked | None
    unread: tuple[str, ...]
    seconds: float

    def to_onnx(self) -> onnx.ModelProto:
        """The model as a message, which may be too large to be serialized."""
        return to_onnx(self.model, self.opset, self.value_infos)

    def save(self, path: str | Path, external_data: bool | None = None) -> None:
        """Write the model. ``external_data``: weights in a file beside it; None: where one file cannot hold them.

        Raises InputError where something else than a model is at ``path``.
        """
        save_onnx(self.model, path, self.opset, external_data, self.value_infos)

    def refusals(self) -> tuple[Refused, ...]:
        """What was not done, and why: each once."""
        return tuple(dict.fromkeys(r for record in self.report.records for r in record.log.refused))


def simplify(
    model: ModelLike, options: SimplifyOptions | None = None, **more: Unpack[SimplifyKeywords]
) -> onnx.ModelProto:
    """Make an ONNX model of fewer nodes that gives the same results. The model given is not changed.

    ``model``: a path, the bytes of a file, or a ModelProto. ``options`` and keywords: see
    :class:`tilewright.SimplifyOptions`; a keyword counts before what ``options`` says. Gives a ModelProto.

    Raises ModelError for what is no model; InputError for options that do not fit it; UnsupportedError for a node that
    the opset asked for cannot say; MismatchError, naming the pass to blame, if the result does not give what the
    original gives.

    >>> small = tilewright.simplify("model.onnx", input_shapes={"batch": 4})
    >>> [node.op_type for node in small.graph.node]
    ['Gemm', 'Relu', 'MatMul']
    """
    return simplify_model(model, SimplifyOptions.of("simplify", options, more)).to_onnx()


def simplify_model(model: ModelLike, options: SimplifyOptions) -> Simplified:
    """:func:`simplify` with an account of what was done; the result need not fit into memory."""
    start = time.perf_counter()
    source = open_source(model)
    first = _as_constants(read_model(model, options.input_shapes))
    graph = with_outputs(first.graph, options.outputs, options.drop_outputs)
    first = first.with_graph(_for_all_sizes(graph))
    rewriting = Rewriting.of(options, options.opset or first.opset, _weights(first))
    graph, report, steps = rewriting.run(first.graph)
    unread = unread_inputs(graph)
    if options.drop_inputs:
        graph = without_inputs(graph, unread)
    last = first.with_graph(graph)
    value_infos = bool(source.model.graph.value_info) if options.value_infos is None else options.value_infos
    header = write(last, options.opset, value_infos, tensor_header)
    checked = None
    if options.check:
        judge = Judge.of(_runnable(model, source.model), first, options)
        if (wrong := judge.mismatch(last)) is not None:
            raise MismatchError(f"{wrong}; {find_blame(first, steps, rewriting, judge)}")
        checked = judge.checked()
    return Simplified(
        last, next(o.version for o in header.opset_import if not o.domain), value_infos,
        operators(source.model.graph), operators(header.graph),
        (_size(model, source.model, first), header.ByteSize() + _weights(last)), report, checked, unread,
        time.perf_counter() - start,
    )  # fmt: skip


def _for_all_sizes(graph: Graph) -> Graph:
    """The graph with types that hold whatever sizes a call has: no check of sizes goes into the file, so that none may
    be taken to be equal that could broadcast."""
    return infer_graph(graph.replace(broadcasts=True, assumptions=()))


def _as_constants(model: OnnxModel) -> OnnxModel:
    """Initializers that are inputs as well are constants, as nearly every such model means it."""
    shell = onnx.ModelProto()
    shell.CopyFrom(model.shell)
    shell.ir_version = max(shell.ir_version, 4)  # before, an initializer had to be an input
    return replace(model, shell=shell, overridable=frozenset())


def _runnable(model: ModelLike, message: onnx.ModelProto) -> Path | onnx.ModelProto:
    """What runtimes take."""
    if isinstance(model, str | Path):
        return Path(model)
    return model if isinstance(model, onnx.ModelProto) else onnx.ModelProto.FromString(bytes(model))


def operators(graph: onnx.GraphProto) -> dict[str, int]:
    """Nodes by operator, with its domain unless it is ONNX's, the most frequent first; those of subgraphs too."""
    counts = Counter(f"{n.domain}.{n.op_type}".removeprefix("ai.onnx.").lstrip(".") for n in _nodes(graph))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for n in graph.node:
        yield n
        for a in n.attribute:
            for g in (a.g, *a.graphs) if a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) else ():
                yield from _nodes(g)


def _weights(model: OnnxModel) -> int:
    return sum(raw_size(c) for c in model.graph.constants.values())


def _size(model: ModelLike, message: onnx.ModelProto, first: OnnxModel) -> int:
    """Bytes of the model as it was given, with what lies in other files."""
    if isinstance(model, onnx.ModelProto):
        return int(model.ByteSize())
    external = sum(
        raw_size(first.graph.constants[t.name])
        for t in message.graph.initializer
        if t.data_location == onnx.TensorProto.EXTERNAL and t.name in first.graph.constants
    )
    return (Path(model).stat().st_size if isinstance(model, str | Path) else len(model)) + external
