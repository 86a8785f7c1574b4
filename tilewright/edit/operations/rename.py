"""Other names: of values, nodes, dimensions, the graph. Interfaces are values of the same names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx

from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.edit.operations.shapes import identifier_for, require_dim, with_dim_texts
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Graph, Node, Value, walk_graphs
from tilewright.graph_ir.symbols import graph_with, symbols_in_all


def renamed(model: OnnxModel, values: Mapping[str, str], nodes: Mapping[str, str]) -> OnnxModel:
    """The model with other names for values and nodes, in its subgraphs too. Raises InputError for a name that is none,
    and for a new one that is taken or given twice."""
    graphs = [*walk_graphs(model.graph)]
    _require_free("value", values, {v for g in graphs for v in own_values(g)}, model.graph.name)
    _require_free("node", nodes, {n.name for g in graphs for n in g.nodes}, model.graph.name)
    return dataclasses.replace(
        model,
        graph=everywhere(model.graph, values, nodes),
        shell=_shell(model.shell, values),
        notes={nodes.get(k, k): v for k, v in model.notes.items()},
        overridable=frozenset(values.get(k, k) for k in model.overridable),
    )


def _require_free(what: str, renames: Mapping[str, str], known: set[str], graph: str) -> None:
    after = known - renames.keys()
    for old, new in renames.items():
        if old not in known:
            near = did_you_mean(old, known)
            raise InputError(f"rename: expected the name of a {what} of graph '{graph}', got {old!r}{near}")
        if not isinstance(new, str) or not new:
            raise InputError(f"rename {what} '{old}': expected a name, got {new!r}")
        if new in after:
            raise InputError(f"rename {what} '{old}': expected a name that no {what} has, got '{new}'")
        after.add(new)


def own_values(graph: Graph) -> set[str]:
    """Names that are defined in the graph, not in those inside of it."""
    return {*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs if o)}


def everywhere(graph: Graph, values: Mapping[str, str], nodes: Mapping[str, str]) -> Graph:
    """The graph under other names. As names are unique in a graph and its subgraphs, one mapping is right for all."""

    def node(n: Node) -> Node:
        bodies = {k: everywhere(g, values, nodes) for k, g in n.subgraphs()}
        n = n.with_attrs(**bodies) if bodies else n
        inputs, outputs = (tuple(values.get(x, x) for x in side) for side in (n.inputs, n.outputs))
        name = nodes.get(n.name, n.name)
        if (inputs, outputs, name) == (n.inputs, n.outputs, n.name):
            return n
        return dataclasses.replace(n, inputs=inputs, outputs=outputs, name=name)

    def value(v: Value) -> Value:
        return dataclasses.replace(v, name=values[v.name]) if v.name in values else v

    return graph.replace(
        inputs=tuple(values.get(x, x) for x in graph.inputs),
        outputs=tuple(values.get(x, x) for x in graph.outputs),
        nodes=tuple(map(node, graph.nodes)),
        values={values.get(k, k): value(v) for k, v in graph.values.items()},
        constants={values.get(k, k): c for k, c in graph.constants.items()},
    )


def _shell(shell: onnx.ModelProto, values: Mapping[str, str]) -> onnx.ModelProto:
    """What the file says of values, under their new names."""
    theirs = shell.graph
    if not any(v.name in values for v in (*theirs.input, *theirs.output)) and not theirs.quantization_annotation:
        return shell
    new = onnx.ModelProto()
    new.CopyFrom(shell)
    for v in (*new.graph.input, *new.graph.output):
        v.name = values.get(v.name, v.name)
    for q in new.graph.quantization_annotation:
        q.tensor_name = values.get(q.tensor_name, q.tensor_name)
        for p in q.quant_parameter_tensor_names:
            p.value = values.get(p.value, p.value)
    return new


def rename_dim(model: OnnxModel, old: str, new: str) -> OnnxModel:
    """Another name for a dimension of the inputs. Raises InputError if there is none of the old name, or one of the
    new."""
    symbol = require_dim(model, old, "rename_dim")
    if not isinstance(new, str) or not new:
        raise InputError(f"rename_dim '{old}': expected a name, got {new!r}")
    in_use = symbols_in_all(model.graph)
    if any(model.dims.get(s, s) == new for s in in_use):
        raise InputError(f"rename_dim '{old}': expected a name that no dimension has, got '{new}'; set_dim makes "
                         "two dimensions one")  # fmt: skip
    fresh = identifier_for(new, in_use)
    shell = with_dim_texts(model.shell, {model.dims.get(symbol, symbol): new})
    dims = {k: t for k, t in model.dims.items() if k != symbol} | {fresh: new}
    graph = graph_with(model.graph, {symbol: var(fresh)})
    return dataclasses.replace(model, graph=graph, shell=shell, dims=dims)
