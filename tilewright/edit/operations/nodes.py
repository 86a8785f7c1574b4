"""New nodes, constants, inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError
from tilewright.core.options import shown
from tilewright.core.suggestions import did_you_mean
from tilewright.edit.operations.lookup import node_text, require_new, require_node, require_one_of, require_value
from tilewright.edit.operations.rename import everywhere, own_values
from tilewright.frontend.build import ELEMENT_TYPE_ATTRS
from tilewright.frontend.keep import OnnxModel
from tilewright.frontend.schemas import NEWEST_OPSET, Signature, signature
from tilewright.graph_ir.inference import constant_value
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, TensorType, Value, make_attrs, walk_graphs
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.ops import OPS

_FLOAT, _FLOATS = onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS


def new_node(
    model: OnnxModel, op: str, inputs: Sequence[str], outputs: Sequence[str], name: str, domain: str,
    attrs: Mapping[str, object],
) -> OnnxModel:  # fmt: skip
    """The model with a node more, which stands at the end until nodes are put in order.

    An operator of ONNX's own is meant in its newest version, as all are in the graph. Raises InputError for an operator
    or attribute that nobody knows, and for names that are taken.
    """
    graph = model.graph
    if any(n.name == name for n in graph.nodes):
        raise InputError(f"add {op}: expected a new name, got '{name}', which a node of graph '{graph.name}' has")
    who = f"node '{name}' ({op})"
    for i in inputs:
        if i:
            require_value(graph, i, who)
    for o in outputs:
        if o:
            require_new(graph, o, who)
    domain = known_domain(model, op, domain, who)
    made = attributes(op, domain, attrs, who)
    node = Node(op, trimmed(inputs), tuple(outputs), make_attrs(apart(graph, made)), name, domain)
    return declared_domain(model.with_graph(graph.replace(nodes=(*graph.nodes, node))), domain)


def trimmed(inputs: Sequence[str]) -> tuple[str, ...]:
    """The inputs without absent ones at the end."""
    kept = list(inputs)
    while kept and not kept[-1]:
        kept.pop()
    return tuple(kept)


def known_domain(model: OnnxModel, op: str, domain: str, who: str) -> str:
    """The domain under which the graph has the operator: ``ai.onnx`` for those that ONNX makes of others."""
    if domain not in ("", "ai.onnx"):
        return domain
    if not isinstance(op, str) or (op not in OPS and signature(op, "", NEWEST_OPSET) is None):
        near = did_you_mean(op, OPS) if isinstance(op, str) else ""
        raise InputError(f"{who}: expected an operator of ONNX, or domain=, got {op!r}{near}")
    if op in OPS:
        return ""
    if model.opset != NEWEST_OPSET and signature(op, "", model.opset) is None:
        raise InputError(f"{who}: opset {model.opset} of the file has no such operator; change it by set_opset")
    return "ai.onnx"


def declared_domain(model: OnnxModel, domain: str, version: int = 1) -> OnnxModel:
    """The model with an import of the operators of ``domain``, if it has none."""
    if domain in ("", "ai.onnx") or any(o.domain == domain for o in model.shell.opset_import):
        return model
    shell = onnx.ModelProto()
    shell.CopyFrom(model.shell)
    shell.opset_import.add(domain=domain, version=version)
    return dataclasses.replace(model, shell=shell)


def declared_domains(model: OnnxModel) -> OnnxModel:
    """The model with an import of each domain that its nodes have."""
    for domain in dict.fromkeys(n.domain for g in walk_graphs(model.graph) for n in g.nodes):
        model = declared_domain(model, domain)
    return model


def apart(graph: Graph, attrs: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """Attributes whose graphs have no name that ``graph`` has: those of their own values and nodes get numbers."""
    names = NameSupply(graph)
    out = dict(attrs)
    for key, body in attrs.items():
        if isinstance(body, Graph):
            values = {v: names.fresh(v) for g in walk_graphs(body) for v in sorted(own_values(g))}
            labels = {n.name: names.fresh(n.name) for g in walk_graphs(body) for n in g.nodes}
            out[key] = everywhere(body, values, labels)
    return out


def attributes(op: str, domain: str, attrs: Mapping[str, object], who: str) -> dict[str, Attribute]:
    """Attributes as the graph has them; those that are None are left out. Raises InputError."""
    sig = signature(op, "", NEWEST_OPSET) if domain in ("", "ai.onnx") else None
    given = {k: v for k, v in attrs.items() if v is not None}
    if sig is not None:
        for key in given:
            if key not in sig.attrs:
                known = ", ".join(sorted(sig.attrs)) or "none"
                raise InputError(
                    f"{who}: expected attributes of {op} ({known}), got {key}{did_you_mean(key, sig.attrs)}"
                )
        missing = [k for k, spec in sig.attrs.items() if spec.required and k not in given]
        if missing:
            raise InputError(f"{who}: expected attribute {missing[0]}, got none")
    return {k: _attribute(k, v, sig, who) for k, v in given.items()}


def _attribute(key: str, value: object, sig: Signature | None, who: str) -> Attribute:
    kind = None if sig is None else sig.attrs[key].type
    if key in ELEMENT_TYPE_ATTRS and kind in (None, onnx.AttributeProto.INT) and not isinstance(value, int):
        return as_dtype(value, f"{who}: {key}")
    match value:
        case bool() | np.bool_():
            return int(value)
        case int() | np.integer() | float() | np.floating():
            return float(value) if kind == _FLOAT or isinstance(value, float | np.floating) else int(value)
        case str() | DType() | Constant() | Graph():
            return value
        case np.ndarray():
            return Constant(value)
        case list() | tuple():
            whole = all(isinstance(x, int | np.integer) for x in value)
            if whole and kind != _FLOATS:
                return tuple(int(x) for x in value)
            if all(isinstance(x, str) for x in value):
                return tuple(map(str, value))
            if whole or all(isinstance(x, int | float | np.integer | np.floating) for x in value):
                return tuple(float(x) for x in value)
    raise InputError(f"{who}: {key}: expected a number, text, array, element type, graph or list, got {shown(value)}")


def as_dtype(value: object, who: str) -> DType:
    """An element type from its name, numpy's or ours. Raises InputError."""
    if isinstance(value, DType):
        return value
    names = {t.name: t for t in dtypes.ALL}
    if isinstance(value, str):
        if value in names:
            return names[value]
        raise InputError(f"{who}: expected an element type, got {value!r}{did_you_mean(value, names)}")
    if isinstance(value, type | np.dtype):
        found = np.dtype(value)
        return dtypes.string if found.kind in "OSU" else dtypes.from_numpy(found)
    raise InputError(f"{who}: expected an element type, got {shown(value)}")


def set_attributes(model: OnnxModel, node: Node, changes: Mapping[str, object]) -> OnnxModel:
    """Some attributes of a node set; those given as None are dropped."""
    who = f"node {node_text(node)}"
    kept = {k: v for k, v in node.attrs if k not in changes}
    merged = attributes(node.op, node.domain, {**kept, **changes}, who)
    bare = dataclasses.replace(node, attrs=make_attrs(kept))
    rest = replace_in_place(model, node, bare).graph
    made = apart(rest, {k: v for k, v in merged.items() if k in changes})
    return replace_in_place(model, node, dataclasses.replace(node, attrs=make_attrs({**merged, **made})))


def replace_in_place(model: OnnxModel, old: Node, new: Node) -> OnnxModel:
    """``new`` where ``old`` was."""
    return model.with_graph(model.graph.replace(nodes=tuple(new if n is old else n for n in model.graph.nodes)))


def set_input(model: OnnxModel, name: str, index: int, value: str) -> OnnxModel:
    """Node ``name`` reads ``value`` as its input number ``index``; "" for none."""
    node = require_node(model.graph, name, "set_input")
    who = f"set_input: node {node_text(node)}"
    if value:
        require_value(model.graph, value, who)
    inputs = [*node.inputs, *[""] * (index + 1 - len(node.inputs))]
    if not 0 <= index < max(len(node.inputs) + 1, len(inputs)):
        raise InputError(f"{who}: expected the number of an input, got {index}")
    inputs[index] = value
    return replace_in_place(model, node, dataclasses.replace(node, inputs=trimmed(inputs)))


# -- constants, inputs, outputs ------------------------------------------------------------------------------------
def as_array(value: object, who: str) -> np.ndarray:
    """An array from numbers: whole ones as int64, others as float32. Raises InputError."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    else:
        try:
            array = np.asarray(value)
        except ValueError as e:
            raise InputError(f"{who}: expected numbers, got {shown(value)}") from e
        if array.dtype == np.float64:
            array = array.astype(np.float32)
    if array.dtype.kind in "SU":
        array = array.astype(object)
    if array.dtype.kind == "O" and not all(isinstance(x, str | bytes) for x in array.reshape(-1)):
        raise InputError(f"{who}: expected an array of numbers or texts, got {shown(value)}")
    return array


def add_constant(model: OnnxModel, constant: Constant, name: str) -> OnnxModel:
    """A constant more."""
    graph = model.graph
    require_new(graph, name, "add_constant")
    return model.with_graph(
        graph.replace(
            constants={**graph.constants, name: constant}, values={**graph.values, name: constant_value(name, constant)}
        )
    )


def set_constant(model: OnnxModel, name: str, constant: Constant) -> OnnxModel:
    """Other elements, perhaps of another type and shape, for a constant."""
    require_one_of(name, model.graph.constants, "the name of a constant", "set_constant")
    constants = {**model.graph.constants, name: constant}
    values = {**model.graph.values, name: constant_value(name, constant)}
    return model.with_graph(model.graph.replace(constants=constants, values=values))


def add_input(model: OnnxModel, value: Value) -> OnnxModel:
    """An input more."""
    graph = model.graph
    require_new(graph, value.name, "add_input")
    return model.with_graph(
        graph.replace(inputs=(*graph.inputs, value.name), values={**graph.values, value.name: value})
    )


def set_outputs(model: OnnxModel, names: Sequence[str]) -> OnnxModel:
    """The outputs of the model, any of its values."""
    if not names:
        raise InputError("set_outputs: expected at least one output, got none")
    for name in names:
        require_value(model.graph, name, "set_outputs")
    if len(set(names)) != len(names):
        raise InputError(f"set_outputs: expected different outputs, got {list(names)[:10]}")
    return model.with_graph(model.graph.replace(outputs=tuple(names)))


def input_to_constant(model: OnnxModel, name: str, array: np.ndarray) -> OnnxModel:
    """An input becomes a constant of the same name."""
    require_one_of(name, model.graph.inputs, "an input", "fix_input")
    t = model.graph.values[name].type
    constant = Constant(array)
    got = constant_value(name, constant)
    if not isinstance(t, TensorType) or t.dtype != got.dtype or not fits(t, array.shape):
        raise InputError(f"fix_input '{name}': expected {t}, got {got.type}")
    graph = model.graph
    return model.with_graph(
        graph.replace(
            inputs=tuple(i for i in graph.inputs if i != name), constants={**graph.constants, name: constant},
            values={**graph.values, name: got},
        )
    )  # fmt: skip


def constant_to_input(model: OnnxModel, name: str) -> OnnxModel:
    """A constant becomes an input of the same name, type and shape."""
    require_one_of(name, model.graph.constants, "the name of a constant", "free_constant")
    graph = model.graph
    value = dataclasses.replace(graph.values[name], data=None, known=None)
    model = dataclasses.replace(model, overridable=model.overridable - {name})
    return model.with_graph(
        graph.replace(
            inputs=(*graph.inputs, name), constants={k: c for k, c in graph.constants.items() if k != name},
            values={**graph.values, name: value},
        )
    )  # fmt: skip


def fits(t: TensorType, shape: tuple[int, ...]) -> bool:
    """True if an array of ``shape`` has the rank and the fixed sizes of the type."""
    dims = t.shape
    return dims is None or (
        len(dims) == len(shape) and all(d.value() in (None, n) for d, n in zip(dims, shape, strict=True))
    )


def set_overridable(model: OnnxModel, names: Sequence[str]) -> OnnxModel:
    """The constants that are inputs of the file as well."""
    for name in names:
        require_one_of(name, model.graph.constants, "the name of a constant", "set_overridable")
    return dataclasses.replace(model, overridable=frozenset(names))
