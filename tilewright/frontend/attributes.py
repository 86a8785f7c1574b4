"""Attributes of ONNX nodes as values of the graph IR, checked against the operator's signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
from onnx import AttributeProto

from tilewright.core import dtypes
from tilewright.core.errors import ModelError
from tilewright.frontend.build import ELEMENT_TYPE_ATTRS
from tilewright.frontend.model_file.source import Source
from tilewright.frontend.model_file.tensors import read_sparse, read_tensor
from tilewright.frontend.schemas import Signature
from tilewright.frontend.scope import Scope
from tilewright.frontend.words import check_word
from tilewright.graph_ir.ir import Attribute, Constant, Graph

# the field that holds the value, by attribute type
_FIELDS: dict[int, str] = {
    AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s", AttributeProto.TENSOR: "t",
    AttributeProto.GRAPH: "g", AttributeProto.SPARSE_TENSOR: "sparse_tensor", AttributeProto.TYPE_PROTO: "tp",
    AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints", AttributeProto.STRINGS: "strings",
    AttributeProto.TENSORS: "tensors", AttributeProto.GRAPHS: "graphs",
    AttributeProto.SPARSE_TENSORS: "sparse_tensors", AttributeProto.TYPE_PROTOS: "type_protos",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class BoundAttr:
    """An attribute with the place where it was written: the scope and the references of a subgraph in it."""

    proto: AttributeProto
    scope: Scope
    env: AttrEnv


AttrEnv = Mapping[str, BoundAttr]
GraphReader = Callable[[onnx.GraphProto, BoundAttr], Graph]


def type_name(code: int) -> str:
    """ONNX's name of an attribute type."""
    names: dict[int, str] = {v: k for k, v in AttributeProto.AttributeType.items()}
    return names.get(code, str(code))


def bind_attributes(node: onnx.NodeProto, scope: Scope, env: AttrEnv, who: str) -> dict[str, BoundAttr]:
    """A node's attributes with references to function attributes resolved; a reference to an absent one is absent."""
    out: dict[str, BoundAttr] = {}
    for a in node.attribute:
        if a.name in out:
            raise ModelError(f"{who}: attribute {a.name!r} is given twice")
        if a.ref_attr_name:
            target = env.get(a.ref_attr_name)
            if target is None:
                continue
            if a.type and target.proto.type != a.type:
                raise ModelError(f"{who}: attribute {a.name!r} expected {type_name(a.type)}, "
                                 f"got {type_name(target.proto.type)}")  # fmt: skip
            out[a.name] = target
        else:
            out[a.name] = BoundAttr(a, scope, env)
    return out


def check_attributes(sig: Signature, bound: Mapping[str, BoundAttr], who: str) -> None:
    """Raises ModelError where the attributes are not those of the signature."""
    for name, b in bound.items():
        spec = sig.attrs.get(name)
        if spec is None:
            raise ModelError(f"{who}: unknown attribute {name!r}, expected one of {sorted(sig.attrs)}")
        if b.proto.type != spec.type:
            raise ModelError(f"{who}: attribute {name!r} expected {type_name(spec.type)}, "
                             f"got {type_name(b.proto.type)}")  # fmt: skip
        if spec.type == AttributeProto.STRING and not sig.domain:
            check_word(sig.op, name, b.proto.s.decode(errors="replace"), who)
    for name, spec in sig.attrs.items():
        if spec.required and name not in bound:
            raise ModelError(f"{who}: attribute {name!r} expected, got none")


def read_attribute(source: Source, name: str, bound: BoundAttr, who: str, read_graph: GraphReader) -> Attribute:
    """The value of one attribute. Raises ModelError."""
    a, where = bound.proto, f"{who}: attribute {name!r}"
    field = _FIELDS.get(a.type)
    if field is None:
        raise ModelError(f"{where} has no type")
    value = getattr(a, field)
    match a.type:
        case AttributeProto.INT:
            if name in ELEMENT_TYPE_ATTRS:
                return dtypes.from_onnx(value) if value else None
            return int(value)
        case AttributeProto.FLOAT:
            return float(value)
        case AttributeProto.STRING:
            return _text(value, where)
        case AttributeProto.INTS | AttributeProto.FLOATS:
            return tuple(value)
        case AttributeProto.STRINGS:
            return tuple(_text(v, where) for v in value)
        case AttributeProto.TENSOR:
            return Constant(read_tensor(source, value, where))
        case AttributeProto.SPARSE_TENSOR:
            return Constant(read_sparse(source, value, where))
        case AttributeProto.GRAPH:
            return read_graph(value, bound)
        case AttributeProto.TYPE_PROTO:
            return str(value).replace("\n", " ").strip()
    raise ModelError(f"{where}: {type_name(a.type)} attributes are not used by any operator")


def is_without_form(a: AttributeProto) -> bool:
    """True for an attribute of a foreign node of which :func:`read_attribute` would not give all, or nothing."""
    match a.type:
        case AttributeProto.STRING:
            return not _is_utf8(a.s)
        case AttributeProto.INTS | AttributeProto.FLOATS:
            return not getattr(a, _FIELDS[a.type])
        case AttributeProto.STRINGS:
            return not a.strings or not all(map(_is_utf8, a.strings))
    return a.type not in _WITH_FORM


_WITH_FORM = (AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.TENSOR, AttributeProto.GRAPH)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _text(value: bytes, where: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as e:
        raise ModelError(f"{where} is not UTF-8") from e


def make_proto(op: str, attrs: Mapping[str, Attribute], n_inputs: int, n_outputs: int) -> onnx.NodeProto:
    """A node message with these attributes, for the standard's function builders."""
    node = onnx.NodeProto(op_type=op)
    node.input.extend(f"i{k}" for k in range(n_inputs))
    node.output.extend(f"o{k}" for k in range(n_outputs))
    for name, value in attrs.items():
        if isinstance(value, dtypes.DType):
            node.attribute.append(onnx.helper.make_attribute(name, value.onnx))
        elif isinstance(value, Constant):
            node.attribute.append(onnx.helper.make_attribute(name, onnx.numpy_helper.from_array(value.array)))
        elif value is not None and not isinstance(value, Graph) and value != ():
            node.attribute.append(onnx.helper.make_attribute(name, value))
    return node
