"""Operators by the functions that the standard defines them by."""

from __future__ import annotations

from dataclasses import replace

import onnx

from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend.attributes import make_proto
from tilewright.frontend.importer import from_onnx, has_operator
from tilewright.frontend.schemas import NEWEST_OPSET, signature
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Level, rename_captures
from tilewright.graph_ir.pipeline import run_passes
from tilewright.writer.forms import Site
from tilewright.writer.tensors import tensor_message
from tilewright.writer.types import TypeWriter

_FEW = 64
"""Elements of a constant operand that a definition may ask for."""


def by_definition(s: Site) -> None:
    """The nodes of the operator's definition. Raises Refused where there is none."""
    if s.node.subgraphs():
        raise s.refusal("it has no such operator")
    names = {f"i{k}": name for k, name in enumerate(s.node.inputs) if name}
    try:
        body = from_onnx(_model_of(s), native=lambda op: op != s.node.op and has_operator(op))
        body, _ = run_passes(body, Level.BASIC)  # what only computes constants of the definition is done
    except (ModelError, UnsupportedError) as e:
        raise s.refusal(f"it has no such operator, and no other does: {' '.join(str(e).split())}") from e
    results = {f"o{k}": name for k, name in enumerate(s.node.outputs) if name}
    names |= results
    for name, c in body.constants.items():
        if name not in names:
            names[name] = s.const(c.array, "constant")
    for node in body.nodes:
        for o in node.outputs:
            if o and o not in names:
                names[o] = s.body.names.fresh(f"{s.node.outputs[0] or s.node.name}_{node.op.lower()}")
        attrs = {k: rename_captures(v, names) if isinstance(v, Graph) else v for k, v in node.attrs}
        s.to(tuple(names.get(o, "") for o in node.outputs), node.op, *(names.get(i, "") for i in node.inputs), **attrs)
    for o, name in results.items():
        if o in body.constants:
            s.to((name,), "Identity", s.const(body.constants[o].array, "constant"))


def _model_of(s: Site) -> onnx.ModelProto:
    """A model with the node alone; its operands are inputs, small constants constants."""
    node = s.node
    version = s.terms.file_opset if node.domain else NEWEST_OPSET
    sig = signature(node.op, "", version)
    defaults = {} if sig is None else {k: a.default for k, a in sig.attrs.items() if a.default is not None}
    proto = make_proto(node.op, {**defaults, **dict(node.attrs)}, 0, 0)
    proto.name = node.name
    proto.input.extend(f"i{k}" if name else "" for k, name in enumerate(node.inputs))
    proto.output.extend(f"o{k}" if name else "" for k, name in enumerate(node.outputs))
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    model.opset_import.add(version=version)
    graph = model.graph
    graph.name = node.op
    graph.node.append(proto)
    types = TypeWriter({})
    for k, name in enumerate(node.inputs):
        c = s.body.constants.get(name)
        if c is not None and c.size <= _FEW:
            graph.initializer.append(tensor_message(c, f"i{k}"))
        elif name:
            info = types.value_info(replace(s.value(name), name=f"i{k}"))
            if info is None:
                raise s.refusal(f"the type of '{name}' is not known")
            graph.input.append(info)
    graph.output.extend(onnx.ValueInfoProto(name=f"o{k}") for k, name in enumerate(node.outputs) if name)
    return model
