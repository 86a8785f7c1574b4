"""A part of a graph as a model of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import onnx

from tilewright.core.arith.expr import IntExpr, as_var, var
from tilewright.core.errors import InputError
from tilewright.edit.operations.lookup import readers_text, require_value
from tilewright.edit.operations.rewiring import readers_of
from tilewright.edit.operations.shapes import identifier_for
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, node_reads
from tilewright.graph_ir.symbols import symbols_in_all


def extract(model: OnnxModel, inputs: Sequence[str] | None, outputs: Sequence[str]) -> OnnxModel:
    """The model that computes ``outputs`` from ``inputs``, values anywhere in the graph. ``inputs`` None: those inputs
    of the model that it takes.

    Sizes of the new inputs that are formulas become dimensions of their own. Raises InputError for a cut that leaves
    inputs undefined, with their names.
    """
    graph = model.graph
    if not outputs:
        raise InputError("extract: expected at least one output, got none")
    for name in (*(inputs or ()), *outputs):
        require_value(graph, name, "extract")
    if len(set(outputs)) != len(outputs) or len(set(inputs or ())) != len(inputs or ()):
        raise InputError("extract: expected each name once")
    nodes, needed = _cone(graph, outputs, set(inputs or ()))
    missing = [i for i in graph.inputs if i in needed and inputs is not None and i not in inputs]
    if missing:
        kept = graph.replace(nodes=tuple(nodes))
        listed = "; ".join(f"'{i}', read by {readers_text(readers_of(kept, i)) or 'the outputs'}" for i in missing[:5])
        raise InputError(f"extract: the cut leaves inputs undefined: {listed}")
    taken = tuple(i for i in graph.inputs if i in needed) if inputs is None else tuple(inputs)
    constants = {k: c for k, c in graph.constants.items() if k in needed and k not in taken}
    assumed = tuple(a for a in graph.assumptions if a.node in {n.name for n in nodes})
    model, values = _readable(model, [graph.values[i] for i in taken])
    new = graph.replace(
        inputs=taken, outputs=tuple(outputs), nodes=tuple(nodes), constants=constants, assumptions=assumed,
        values={**graph.values, **{v.name: v for v in values}},
    )  # fmt: skip
    return dataclasses.replace(
        model, graph=new, shell=_shell(model.shell, {*taken, *outputs}),
        overridable=model.overridable & constants.keys(),
    )  # fmt: skip


def _cone(graph: Graph, outputs: Sequence[str], inputs: set[str]) -> tuple[list[Node], set[str]]:
    """The nodes that compute ``outputs``, without those that only ``inputs`` need, and all names that they read."""
    needed = {o for o in outputs if o not in inputs}
    nodes = []
    for n in reversed(graph.nodes):
        if any(o in needed for o in n.outputs):
            if both := [o for o in n.outputs if o in inputs]:
                raise InputError(f"extract: input '{both[0]}' is a result of '{n.name}', another of which the cut "
                                 "needs; take all of them as inputs")  # fmt: skip
            nodes.append(n)
            needed.update(i for i in node_reads(n) if i not in inputs)
    return nodes[::-1], needed | {o for o in outputs if o in inputs}


def _readable(model: OnnxModel, values: Sequence[Value]) -> tuple[OnnxModel, list[Value]]:
    """The values with a symbol for each size that is a formula: what is fed says what it is."""
    dims, taken = dict(model.dims), symbols_in_all(model.graph)
    own: dict[IntExpr, IntExpr] = {}
    out = []
    for v in values:
        t = v.type
        if isinstance(t, TensorType) and t.shape is not None:
            shape = []
            for axis, d in enumerate(t.shape):
                if not d.is_const and as_var(d) is None and d not in own:
                    symbol = identifier_for(f"{v.name}_d{axis}", taken)
                    taken.add(symbol)
                    dims[symbol] = ""
                    own[d] = var(symbol)
                shape.append(own.get(d, d))
            t = TensorType(t.dtype, tuple(shape))
        out.append(Value(v.name, t))
    return dataclasses.replace(model, dims=dims), out


def _shell(shell: onnx.ModelProto, interface: set[str]) -> onnx.ModelProto:
    """What the file says, without what it says of inputs and outputs that are none any more."""
    new = onnx.ModelProto()
    new.CopyFrom(shell)
    for side, theirs in ((new.graph.input, shell.graph.input), (new.graph.output, shell.graph.output)):
        del side[:]
        side.extend(v for v in theirs if v.name in interface)
    return new
