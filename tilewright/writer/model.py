"""A graph as an ONNX model message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf import text_format  # type: ignore[import-untyped]
from onnx import AttributeProto

from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError, InternalError, UnsupportedError
from tilewright.core.options import as_whole
from tilewright.frontend.keep import OnnxModel
from tilewright.frontend.schemas import NEWEST_OPSET, Signature, signature
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, node_reads
from tilewright.graph_ir.names import NameSupply
from tilewright.writer.forms import Body, Terms, body_of, said_in
from tilewright.writer.functions import Kept, Unit, called, require_opset_of, units_of
from tilewright.writer.older import OLDER
from tilewright.writer.older.standard import by_definition
from tilewright.writer.older.wider import WIDER
from tilewright.writer.own import OWN, OWN_ATTRIBUTES, SAID
from tilewright.writer.tensors import tensor_message
from tilewright.writer.types import TypeWriter

TensorMessage = Callable[[Constant, str], onnx.TensorProto]


def to_onnx(
    model: OnnxModel | Graph, opset: int | None = None, value_infos: bool = True, as_functions: bool = False
) -> onnx.ModelProto:
    """The model message of a graph.

    ``model``: a graph of any level of the passes, alone or with what its file said beside it. ``opset``: the version
    of ONNX's operators to say it in; None: that of the file, or the lowest above it that can; for a graph alone, the
    lowest from 17 on that can. ``value_infos``: with the types of values between nodes. ``as_functions``: operators of
    our own, and the groups of a fused graph, are calls of functions of the model, which do what they stand for.

    Raises UnsupportedError for what ``opset`` cannot say, with the lowest that can.
    """
    return write(model, opset, value_infos, tensor_message, as_functions)


def write(
    model: OnnxModel | Graph, opset: int | None, value_infos: bool, tensor: TensorMessage, as_functions: bool = False
) -> onnx.ModelProto:
    """:func:`to_onnx` with constants of the graph as ``tensor`` says."""
    file_opset = NEWEST_OPSET if isinstance(model, Graph) else model.opset
    if isinstance(model, Graph):
        model = OnnxModel(model, onnx.ModelProto(producer_name="tilewright"))
        model.shell.opset_import.add(version=DEFAULT_OPSET)
    versions = range(max(model.opset, _LOWEST), NEWEST_OPSET + 1) if opset is None else (require_opset(opset),)
    for version in versions:
        terms = Terms(version, SAID, OWN_ATTRIBUTES, OLDER, WIDER, by_definition, file_opset)
        try:
            return _write(model, terms, value_infos, Kept(version) if as_functions else None, tensor)
        except UnsupportedError:
            if version == versions[-1]:
                raise
    raise InternalError(f"no version of {versions}")


DEFAULT_OPSET = 17
_LOWEST = 7
_CONSTANTS_ARE_NO_INPUTS = 4
"""The version of the format since which a constant need not be an input as well."""
_FUNCTIONS = 8
"""The version of the format since which a model has functions."""
_LONGEST_NAME = 60
MARK_KEY, MARK = "tilewright", "written"
"""Metadata of files that we wrote; see :mod:`tilewright.writer.file`."""


def require_opset(opset: object) -> int:
    """``opset`` as a version that can be written. Raises InputError."""
    version = as_whole(opset)
    if version is None or not _LOWEST <= version <= NEWEST_OPSET:
        raise InputError(f"opset: expected a version from {_LOWEST} to {NEWEST_OPSET}, got {opset!r}")
    return version


def _write(
    model: OnnxModel, terms: Terms, value_infos: bool, kept: Kept | None, tensor: TensorMessage
) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model.shell)
    out.ClearField("graph")
    out.ClearField("metadata_props")
    out.metadata_props.extend(p for p in model.shell.metadata_props if (p.key, p.value) != (MARK_KEY, MARK))
    writer = _Writer(model, terms, TypeWriter(model.dims), value_infos, tensor, NameSupply(model.graph), kept)
    graph = writer.graph(model.graph, out.graph, None)
    functions = called(out)
    require_opset_of(functions, terms.opset)
    out.ClearField("functions")
    out.functions.extend(functions if kept is None else (*functions, *kept.functions))
    domains = {o.domain: o.version for o in model.shell.opset_import if o.domain not in ("", "ai.onnx")}
    domains |= {n.domain: 1 for n in _nodes(graph) if n.domain and n.domain not in domains}
    out.ClearField("opset_import")
    out.opset_import.add(domain="", version=terms.opset)
    for domain, version in domains.items():
        out.opset_import.add(domain=domain, version=version)
    least = onnx.helper.find_min_ir_version_for([o for o in out.opset_import if not o.domain], ignore_unknown=True)
    with_functions = _FUNCTIONS if out.functions else 0
    out.ir_version = max(out.ir_version, least, _CONSTANTS_ARE_NO_INPUTS, with_functions)
    theirs = model.shell.graph
    graph.doc_string = theirs.doc_string
    graph.metadata_props.extend(theirs.metadata_props)
    known = {v.name for v in (*graph.input, *graph.initializer)}
    known |= {o for n in graph.node for o in n.output}
    graph.quantization_annotation.extend(
        q for q in theirs.quantization_annotation
        if {q.tensor_name, *(p.value for p in q.quant_parameter_tensor_names)} <= known
    )  # fmt: skip
    if overridable := model.overridable & {t.name for t in graph.initializer}:
        infos = {i.name: i for i in graph.input}
        infos |= {n: i for n in overridable if (i := writer.types.value_info(model.graph.values[n])) is not None}
        order = {i.name: k for k, i in enumerate(theirs.input)}
        graph.ClearField("input")
        graph.input.extend(sorted(infos.values(), key=lambda i: order.get(i.name, len(order))))
    _keep_notes(graph.input, theirs.input)
    _keep_notes(graph.output, theirs.output)
    return out


_FEW = 64
"""Elements of a constant that the body of a function may be made for."""


@dataclass(slots=True)
class _Writer:
    model: OnnxModel
    terms: Terms
    types: TypeWriter
    value_infos: bool
    tensor: TensorMessage
    names: NameSupply
    kept: Kept | None

    def graph(self, graph: Graph, out: onnx.GraphProto, outer: Body | None) -> onnx.GraphProto:
        out.name = graph.name
        body = body_of(graph, self.names, outer)
        for name in graph.inputs:
            self._declare(out.input, graph, name)
        if self.kept is None:
            out.node.extend(self._said(graph.nodes, body))
        else:
            for unit in units_of(graph):
                out.node.extend(self._unit(unit, graph, body, self.kept))
        read, before = {*_reads(out), *graph.outputs}, {i for n in graph.nodes for i in node_reads(n)}
        for name, c in graph.constants.items():
            if name in read or name not in before:  # else an attribute has its elements now
                out.initializer.append(self.tensor(c, name))
        out.initializer.extend(tensor_message(c, name) for name, c in body.added.items() if name in read)
        for name in graph.outputs:
            self._declare(out.output, graph, name)
        if self.value_infos:
            made = {o for n in out.node for o in n.output} - {*graph.outputs}
            infos = (self.types.value_info(v) for name, v in graph.values.items() if name in made)
            out.value_info.extend(i for i in infos if i is not None)
        return out

    def _said(self, nodes: Iterable[Node], body: Body) -> list[onnx.NodeProto]:
        return [self._node(said, body) for node in nodes for said in said_in(node, self.terms, body)]

    def _unit(self, unit: Unit, graph: Graph, body: Body, kept: Kept) -> list[onnx.NodeProto]:
        """A call of a function for a group or an operator of our own."""
        first, *more = unit.nodes
        if not more and first.op not in OWN:
            return self._said(unit.nodes, body)
        small = {n: c for n, c in body.constants.items() if c.size <= _FEW}
        inside = Body(self.names, dict(body.values), small)
        said = self._said(unit.nodes, inside)
        reads = {i for n in said for i in n.input}
        constants = [tensor_message(c, name) for name, c in inside.added.items() if name in reads]
        members = {n.name for n in unit.nodes}
        wanted = {*graph.outputs, *(i for n in graph.nodes if n.name not in members for i in node_reads(n))}
        outputs = [o for n in unit.nodes for o in n.outputs if o in wanted]
        hint = "_".join(n.op for n in unit.nodes)[:_LONGEST_NAME]
        return [kept.call(hint, unit.nodes[-1].name, said, constants, outputs)]

    def _declare(self, to: Any, graph: Graph, name: str) -> None:
        v = graph.values.get(name)
        info = None if v is None else self.types.value_info(v)
        to.append(onnx.ValueInfoProto(name=name) if info is None else info)

    def _node(self, node: Node, body: Body) -> onnx.NodeProto:
        domain = "" if node.domain == "ai.onnx" else node.domain
        out = onnx.NodeProto(op_type=node.op, domain=domain, name=node.name, input=node.inputs, output=node.outputs)
        note = self.model.notes.get(node.name)
        if note is not None:
            out.MergeFrom(note)
            if not node.domain:
                out.ClearField("attribute")
        sig = signature(node.op, domain, self.terms.opset)
        for key, value in node.attrs:
            if value is not None:
                out.attribute.append(self._attribute(key, value, sig, body))
        return out

    def _attribute(self, key: str, value: Attribute, sig: Signature | None, body: Body) -> AttributeProto:
        spec = None if sig is None else sig.attrs.get(key)
        out = AttributeProto(name=key)
        kind = _kind(value) if spec is None else spec.type
        out.type = kind  # type: ignore[assignment]
        match value:
            case Graph():
                self.graph(value, out.g, body)
            case Constant():
                out.type = AttributeProto.TENSOR
                out.t.CopyFrom(tensor_message(value))
            case DType():
                out.i = value.onnx
            case str() if kind == AttributeProto.TYPE_PROTO:
                text_format.Parse(value, out.tp)
            case str():
                out.s = value.encode()
            case tuple():
                field_ = _LISTS[kind]
                getattr(out, field_).extend(v.encode() if isinstance(v, str) else v for v in value)
            case int() | float() if kind == AttributeProto.FLOAT:
                out.f = float(value)
            case int() | float():
                out.i = int(value)
        return out


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and its subgraphs."""
    for n in graph.node:
        yield n
        for a in n.attribute:
            if a.type == AttributeProto.GRAPH:
                yield from _nodes(a.g)


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    """Names that nodes and subgraphs read, their own among them."""
    for n in graph.node:
        yield from n.input
        for a in n.attribute:
            if a.type == AttributeProto.GRAPH:
                yield from _reads(a.g)
                yield from (o.name for o in a.g.output)


_LISTS: dict[int, str] = {
    AttributeProto.INTS: "ints",
    AttributeProto.FLOATS: "floats",
    AttributeProto.STRINGS: "strings",
}


def _kind(value: Attribute) -> int:
    """The type of an attribute that no signature describes."""
    match value:
        case Graph():
            return AttributeProto.GRAPH
        case Constant():
            return AttributeProto.TENSOR
        case str():
            return AttributeProto.STRING
        case float():
            return AttributeProto.FLOAT
        case tuple():
            if any(isinstance(v, str) for v in value):
                return AttributeProto.STRINGS
            return AttributeProto.FLOATS if any(isinstance(v, float) for v in value) else AttributeProto.INTS
    return AttributeProto.INT


def _keep_notes(mine: Sequence[onnx.ValueInfoProto], theirs: Sequence[onnx.ValueInfoProto]) -> None:
    """Texts, metadata and names of sizes that the file has for inputs and outputs of the same name and rank."""
    given = {v.name: v for v in theirs}
    for v in mine:
        old = given.get(v.name)
        if old is None:
            continue
        v.doc_string = old.doc_string
        v.type.denotation = old.type.denotation
        v.metadata_props.extend(old.metadata_props)
        kind = old.type.WhichOneof("value")
        if kind not in (None, v.type.WhichOneof("value")):
            v.type.CopyFrom(old.type)
        tensor, before = v.type.tensor_type, old.type.tensor_type
        if kind == "tensor_type" and before.elem_type == tensor.elem_type and not tensor.HasField("shape"):
            tensor.CopyFrom(before)
        sizes, named = v.type.tensor_type.shape.dim, old.type.tensor_type.shape.dim
        for a, b in zip(sizes, named, strict=False) if len(sizes) == len(named) else ():
            if b.denotation:
                a.denotation = b.denotation
            if not a.HasField("dim_value") and b.dim_param:
                a.dim_param = b.dim_param
