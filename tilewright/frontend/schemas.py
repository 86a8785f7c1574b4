"""What the ONNX standard says of an operator in a version: arity, attributes, element types of outputs, body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
from onnx import defs

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError
from tilewright.graph_ir.ir import OptionalType, SequenceType, TensorType, Type

NEWEST_OPSET = defs.onnx_opset_version()

FunctionKey = tuple[str, str, str]

_STANDARD_DOMAINS = frozenset(("", "ai.onnx"))
# ONNX writes C-like names in type strings
_TYPE_STRINGS: dict[str, DType] = {
    "tensor(float)": dtypes.float32, "tensor(double)": dtypes.float64, "tensor(bool)": dtypes.bool_,
    "tensor(string)": dtypes.string,
    **{f"tensor({t.name})": t for t in dtypes.ALL if t.name not in ("float32", "float64", "bool", "string")},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """An attribute: its AttributeProto type number, whether it must be given, and what it is if it is not."""

    type: int
    required: bool
    default: int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """One operator in one version. ``inputs``/``outputs`` are type variables, the last repeats if variadic.

    ``allowed``: the element types that tensors may have, by type variable. ``mixed``: repeated inputs may differ in
    type.
    """

    op: str
    domain: str
    since: int
    deprecated: bool
    min_inputs: int
    max_inputs: int
    min_outputs: int
    max_outputs: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, AttrSpec]
    fixed: Mapping[str, DType]
    allowed: Mapping[str, frozenset[DType]]
    mixed: bool
    has_body: bool


def normal_domain(domain: str) -> str:
    """The domain with the two spellings of ONNX's own made one."""
    return "" if domain in _STANDARD_DOMAINS else domain


def function_key(domain: str, name: str, overload: str) -> FunctionKey:
    """What a call finds a function by: domain, name and overload."""
    return normal_domain(domain), name, overload


@lru_cache(maxsize=4096)
def signature(op: str, domain: str, version: int) -> Signature | None:
    """The signature in force at opset ``version``, or None if the standard has no such operator."""
    if not 1 <= version <= 2**31 - 1:
        return None
    try:
        s: Any = defs.get_schema(op, version, domain)  # its type stubs lack half of it
    except defs.SchemaError:
        return None
    fixed = {t: d for t, d in _TYPE_STRINGS.items()}
    for c in s.type_constraints:
        if len(c.allowed_type_strs) == 1 and c.allowed_type_strs[0] in _TYPE_STRINGS:
            fixed[c.type_param_str] = _TYPE_STRINGS[c.allowed_type_strs[0]]
    return Signature(
        op, domain, s.since_version, s.deprecated,
        s.min_input, s.max_input, s.min_output, s.max_output,
        tuple(i.type_str for i in s.inputs), tuple(o.type_str for o in s.outputs),
        {k: AttrSpec(int(a.type.value), a.required, _default(a)) for k, a in s.attributes.items()},
        fixed, _allowed_types(s), bool(s.inputs) and not s.inputs[-1].is_homogeneous,
        s.has_function or s.has_context_dependent_function,
    )  # fmt: skip


def _default(attribute: Any) -> Any:
    proto: onnx.AttributeProto = attribute.default_value
    if not proto.type:
        return None
    value = onnx.helper.get_attribute_value(proto)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(v.decode() if isinstance(v, bytes) else v for v in value) if isinstance(value, list) else value


def _allowed_types(schema: Any) -> dict[str, frozenset[DType]]:
    given = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    given |= {i.type_str: [i.type_str] for i in schema.inputs if i.type_str in _TYPE_STRINGS}
    return {k: frozenset(_TYPE_STRINGS[t] for t in types if t in _TYPE_STRINGS) for k, types in given.items()}


def require_types(sig: Signature, inputs: Sequence[DType | None], who: str) -> None:
    """Raises ModelError where the known element types of inputs are not those of the operator."""
    bound: dict[str, tuple[int, DType]] = {}
    for i, dtype in enumerate(inputs):
        if dtype is None:
            continue
        variable = sig.inputs[min(i, len(sig.inputs) - 1)]
        allowed = sig.allowed.get(variable)
        if allowed is not None and dtype not in allowed:
            names = ", ".join(sorted(str(t) for t in allowed))
            raise ModelError(f"{who}: input {i}: expected a tensor of {names}, got {dtype}")
        first, same = bound.setdefault(variable, (i, dtype))
        if dtype != same and not (sig.mixed and i >= len(sig.inputs) - 1):
            raise ModelError(f"{who}: input {i}: expected the type of input {first}, {same}, got {dtype}")


def output_dtypes(sig: Signature, inputs: Sequence[DType | None], count: int) -> list[DType | None]:
    """Element types of the first ``count`` outputs as far as the signature alone decides them."""
    bound: dict[str, DType] = dict(sig.fixed)
    for i, dtype in enumerate(inputs):
        if dtype is not None and sig.inputs:
            variable = sig.inputs[min(i, len(sig.inputs) - 1)]
            if not variable.startswith("tensor("):
                bound.setdefault(variable, dtype)
    if not sig.outputs:
        return [None] * count
    return [bound.get(sig.outputs[min(i, len(sig.outputs) - 1)]) for i in range(count)]


def plain_body(sig: Signature, version: int) -> onnx.FunctionProto | None:
    """The standard's definition of an operator as a function that is the same for all attributes and types."""
    schema: Any = defs.get_schema(sig.op, version, sig.domain)
    usable = [v for v in schema.function_opset_versions if v <= version] if schema.has_function else []
    if not usable:
        return None
    content: bytes = schema.get_function_with_opset_version(max(usable))
    return _function(content)


def function_body(
    sig: Signature, version: int, node: onnx.NodeProto, inputs: Sequence[Type | None]
) -> onnx.FunctionProto | None:
    """The standard's definition of an operator as a function for these attributes and input types, or None.

    Raises ValueError or RuntimeError where the node is not a legal one.
    """
    body = plain_body(sig, version)
    if body is not None:
        return body
    schema: Any = defs.get_schema(sig.op, version, sig.domain)
    if not schema.has_context_dependent_function:
        return None
    usable = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    if not usable:
        return None
    types = [_type_proto(t).SerializeToString() for t in inputs]
    build = schema.get_context_dependent_function_with_opset_version
    content: bytes = build(max(usable), node.SerializeToString(), types)
    return _function(content) if content else None


def _function(content: bytes) -> onnx.FunctionProto:
    proto = onnx.FunctionProto()
    proto.ParseFromString(content)
    return proto


def _type_proto(t: Type | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    match t:
        case TensorType():
            proto.tensor_type.elem_type = t.dtype.onnx
            if t.shape is not None:
                proto.tensor_type.shape.SetInParent()
                for d in t.shape:
                    dim, value = proto.tensor_type.shape.dim.add(), d.value()
                    if value is not None:
                        dim.dim_value = value
        case SequenceType():
            proto.sequence_type.elem_type.CopyFrom(_type_proto(t.element))
        case OptionalType():
            proto.optional_type.elem_type.CopyFrom(_type_proto(t.element))
    return proto
