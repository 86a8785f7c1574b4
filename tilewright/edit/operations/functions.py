"""Functions of a model: defined by graphs, called as nodes of their domain."""

from __future__ import annotations

import dataclasses

import onnx

from tilewright.core.errors import InputError
from tilewright.edit.operations.nodes import declared_domain
from tilewright.edit.operations.settle import settled
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Node, TensorType, Value, node_reads
from tilewright.writer import to_onnx


def define_function(model: OnnxModel, name: str, domain: str, body: OnnxModel) -> OnnxModel:
    """The model with a function more, whose inputs and outputs are those of ``body``. Raises InputError for a name that
    is taken."""
    if not domain or domain == "ai.onnx":
        raise InputError(f"define_function '{name}': expected a domain of your own, got {domain!r}")
    if any((f.domain, f.name) == (domain, name) for f in model.shell.functions):
        raise InputError(f"define_function '{name}': expected a new name, got one that domain {domain!r} has")
    message = to_onnx(settled(body), opset=model.opset)
    f = onnx.FunctionProto(name=name, domain=domain, input=body.graph.inputs, output=body.graph.outputs)
    for t in message.graph.initializer:
        constant = onnx.helper.make_node("Constant", [], [t.name], value=t)
        f.node.append(constant)
    f.node.extend(message.graph.node)
    f.opset_import.extend(message.opset_import)
    shell = onnx.ModelProto()
    shell.CopyFrom(model.shell)
    shell.functions.append(f)
    shell.ir_version = max(shell.ir_version, _FIRST_WITH_FUNCTIONS)
    return declared_domain(dataclasses.replace(model, shell=shell), domain)


_FIRST_WITH_FUNCTIONS = 8


def has_function(model: OnnxModel, node: Node) -> bool:
    """True for a call of one of the model's functions."""
    return any((f.domain, f.name) == (node.domain, node.op) for f in model.shell.functions)


def results_of_call(model: OnnxModel, node: Node) -> tuple[Value, ...]:
    """The types of what a call of a function gives, by the function's body."""
    graph = model.graph
    reads = dict.fromkeys(node_reads(node))
    constants = {k: c for k, c in graph.constants.items() if k in reads}
    inputs = tuple(i for i in reads if i not in constants)
    outputs = tuple(o for o in node.outputs if o)
    call = graph.replace(inputs=inputs, outputs=outputs, nodes=(node,), constants=constants, assumptions=())
    known = from_onnx(to_onnx(dataclasses.replace(model, graph=call, notes={}), value_infos=False))
    found = [known.values[o] for o in known.outputs]
    return tuple(Value(o, v.type) for o, v in zip(outputs, found, strict=True) if isinstance(v.type, TensorType))
