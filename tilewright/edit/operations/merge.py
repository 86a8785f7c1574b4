"""Two models as one: results of the first are inputs of the second."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

import onnx

from tilewright.core.arith.expr import IntExpr, as_var, var
from tilewright.core.errors import InputError
from tilewright.core.options import require_mapping, require_names
from tilewright.edit.operations.lookup import node_text, require_one_of, require_value
from tilewright.edit.operations.rename import everywhere, own_values, renamed
from tilewright.edit.operations.shapes import dims_of, identifier_for, text_of, with_dim_texts
from tilewright.frontend.keep import OnnxModel
from tilewright.frontend.schemas import signature
from tilewright.graph_ir.ir import Graph, TensorType, Type, walk_graphs
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.symbols import graph_with, symbols_in_all


def merge(
    first: OnnxModel,
    second: OnnxModel,
    connections: Mapping[str, str | Sequence[str]] | None,
    prefix: str,
    keep: Collection[str],
    of_first: bool = False,
) -> OnnxModel:
    """The model that computes ``first`` and then ``second``.

    ``connections``: values of the first to the inputs of the second that they are. Outputs of the first that are
    connected are none of the result's, but for those in ``keep``; all other inputs and outputs are the result's.
    Names of the second that the first has too get ``prefix``, or the other way round if ``of_first``; connected inputs
    have no name any more. Dimensions of the same name are the same size, and those of connected inputs are what they
    are connected to.

    Raises InputError for names that are none, for types and shapes that do not fit, for operators or functions of one
    domain in two versions.
    """
    pairs = _pairs(first.graph, second.graph, connections)
    for name in keep:
        require_one_of(name, first.graph.outputs, "an output of the first model", "merge: keep")
    for target, source in pairs.items():
        require_value(first.graph, source, "merge: first model")
        require_one_of(target, second.graph.inputs, "an input of the second model", "merge")
    second = dataclasses.replace(second, shell=_without(second.shell, pairs))
    if of_first:
        first, names = _apart(second, first, prefix, pairs)
        wires = {t: names.get(s, s) for t, s in pairs.items()}
        keep = [names.get(o, o) for o in keep]
    else:
        second, names = _apart(first, second, prefix, ())
        wires = {names.get(t, t): s for t, s in pairs.items()}
    known = _connected(first.graph, second.graph, wires)
    called = {second.dims.get(s, s): text_of(first, d) for s, d in known.items()}
    second = dataclasses.replace(second, shell=with_dim_texts(second.shell, called))
    wired = everywhere(_without_inputs(graph_with(second.graph, known), wires), wires, {})
    kept = tuple(o for o in first.graph.outputs if o in keep or o not in wires.values())
    a = first.graph
    merged = a.replace(
        inputs=(*a.inputs, *wired.inputs),
        outputs=tuple(dict.fromkeys((*kept, *wired.outputs))),
        nodes=(*a.nodes, *wired.nodes),
        values={**wired.values, **a.values},
        constants={**a.constants, **wired.constants},
        assumptions=(),
    )
    return OnnxModel(
        merged, _shells(first, second), {**first.notes, **second.notes}, {**second.dims, **first.dims},
        first.overridable | second.overridable,
    )  # fmt: skip


def _pairs(first: Graph, second: Graph, connections: object) -> dict[str, str]:
    """What each connected input of the second graph is."""
    if connections is None:
        a, b = first.outputs, second.inputs
        if len(a) != len(b):
            raise InputError(f"merge: expected connections, or as many outputs as inputs, got {list(a)} and {list(b)}")
        return dict(zip(b, a, strict=True))
    pairs: dict[str, str] = {}
    for source, given in require_mapping("merge: connections", connections).items():
        for target in require_names(f"merge: connections[{source!r}]", given):
            if target in pairs:
                raise InputError(
                    f"merge: expected each input once, got '{target}' for '{pairs[target]}' and '{source}'"
                )
            pairs[target] = source
    return pairs


def _apart(first: OnnxModel, second: OnnxModel, prefix: str, free: Collection[str]) -> tuple[OnnxModel, dict[str, str]]:
    """The second model with names that the first does not have, and the new names of its values. ``free``: values of
    the first whose names it may have."""
    a, b = [*walk_graphs(first.graph)], [*walk_graphs(second.graph)]
    taken = {v for g in a for v in own_values(g)} - {*free}
    supply = NameSupply(second.graph)
    values = {v: _prefixed(v, prefix, taken, supply) for g in b for v in sorted(own_values(g) & taken)}
    labels = {n.name for g in a for n in g.nodes}
    nodes = {n.name: _prefixed(n.name, prefix, labels, supply) for g in b for n in g.nodes if n.name in labels}
    return renamed(_own_dims(first, second, prefix), values, nodes), values


def _own_dims(first: OnnxModel, second: OnnxModel, prefix: str) -> OnnxModel:
    """The second model with symbols that the first does not have, but for dimensions that are called the same."""
    mine, theirs = dims_of(first), dims_of(second)
    same = {s for text, s in theirs.items() if mine.get(text) == s and first.dims.get(s, s) and second.dims.get(s, s)}
    taken = symbols_in_all(first.graph) | symbols_in_all(second.graph) | first.dims.keys() | second.dims.keys()
    known: dict[str, IntExpr] = {}
    dims, texts = dict(second.dims), dict[str, str]()
    for s in sorted((symbols_in_all(second.graph) & (symbols_in_all(first.graph) | first.dims.keys())) - same):
        new = identifier_for(f"{prefix}{s}", taken)
        taken.add(new)
        known[s] = var(new)
        text = dims.pop(s, s)
        dims[new] = texts[text] = f"{prefix}{text}" if text else ""
    shell = with_dim_texts(second.shell, texts)
    return dataclasses.replace(second, graph=graph_with(second.graph, known), dims=dims, shell=shell)


def _prefixed(name: str, prefix: str, taken: Collection[str], supply: NameSupply) -> str:
    new = supply.fresh(f"{prefix}{name}")
    while new in taken:
        new = supply.fresh(f"{prefix}{name}")
    return new


def _connected(a: Graph, b: Graph, pairs: Mapping[str, str]) -> dict[str, IntExpr]:
    """What the dimensions of the second graph are, by what its inputs are connected to. Raises InputError."""
    known: dict[str, IntExpr] = {}
    for target, source in pairs.items():
        have, want = a.values[source].type, b.values[target].type
        if not _same_kind(have, want):
            raise InputError(f"merge: '{source}' -> '{target}': expected {want}, got {have}")
        if not isinstance(have, TensorType) or not isinstance(want, TensorType):
            continue
        if have.shape is None or want.shape is None:
            continue
        if len(have.shape) != len(want.shape):
            raise InputError(f"merge: '{source}' -> '{target}': expected {want}, got {have}")
        for x, y in zip(have.shape, want.shape, strict=True):
            y = y.substitute(known)
            symbol = as_var(y)
            if symbol is not None and symbol not in x.free_vars():
                known = {s: e.substitute({symbol: x}) for s, e in known.items()} | {symbol: x}
            elif (x - y).value() not in (None, 0):
                raise InputError(f"merge: '{source}' -> '{target}': expected {want}, got {have}")
    return known


def _same_kind(a: Type, b: Type) -> bool:
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype == b.dtype
    return type(a) is type(b) or "unknown" in (str(a), str(b))


def _without_inputs(g: Graph, inputs: Collection[str]) -> Graph:
    values = {k: v for k, v in g.values.items() if k not in inputs}
    return g.replace(inputs=tuple(i for i in g.inputs if i not in inputs), values=values)


def _without(shell: onnx.ModelProto, inputs: Collection[str]) -> onnx.ModelProto:
    """What the file says, but for what it says of some inputs."""
    new = onnx.ModelProto()
    new.CopyFrom(shell)
    del new.graph.input[:]
    new.graph.input.extend(v for v in shell.graph.input if v.name not in inputs)
    return new


def _shells(first: OnnxModel, second: OnnxModel) -> onnx.ModelProto:
    """What the files say: that of the first counts, with the operators and functions of both."""
    shell = onnx.ModelProto()
    shell.CopyFrom(first.shell)
    opset = max(first.opset, second.opset)
    for m in (first, second):
        _require_same_standard(m, opset)
    versions = {o.domain: o for o in shell.opset_import}
    for o in second.shell.opset_import:
        mine = versions.get(o.domain)
        if mine is None:
            shell.opset_import.add(domain=o.domain, version=o.version)
        elif o.domain in ("", "ai.onnx"):
            mine.version = opset
        elif mine.version != o.version:
            raise InputError(f"merge: expected one version of domain {o.domain!r}, got {mine.version} and {o.version}")
    functions = {(f.domain, f.name, f.overload): f for f in shell.functions}
    for f in second.shell.functions:
        mine_f = functions.get((f.domain, f.name, f.overload))
        if mine_f is None:
            shell.functions.append(f)
        elif mine_f != f:
            raise InputError(f"merge: expected one function {f.domain}::{f.name}, got two that differ")
    keys = {p.key for p in shell.metadata_props}
    shell.metadata_props.extend(p for p in second.shell.metadata_props if p.key not in keys)
    shell.ir_version = max(first.shell.ir_version, second.shell.ir_version)
    theirs = second.shell.graph
    shell.graph.input.extend(theirs.input)
    shell.graph.output.extend(theirs.output)
    shell.graph.quantization_annotation.extend(theirs.quantization_annotation)
    return shell


def _require_same_standard(model: OnnxModel, opset: int) -> None:
    """Operators of ONNX's own that the graph keeps as the file has them must mean the same in ``opset``."""
    for g in walk_graphs(model.graph):
        for n in g.nodes:
            if n.domain == "ai.onnx":
                old, new = signature(n.op, "", model.opset), signature(n.op, "", opset)
                if (old is None) != (new is None) or (old is not None and new is not None and old.since != new.since):
                    versions = f"opsets {model.opset} and {opset}"
                    raise InputError(f"node {node_text(n)}: expected an operator that is the same in {versions}")


def set_opset(model: OnnxModel, domain: str, version: int) -> OnnxModel:
    """The version of a domain's operators that the file asks for."""
    shell = onnx.ModelProto()
    shell.CopyFrom(model.shell)
    if domain in ("", "ai.onnx"):
        _require_same_standard(model, version)
    kept = [o for o in model.shell.opset_import if (o.domain or "ai.onnx") != (domain or "ai.onnx")]
    shell.ClearField("opset_import")
    shell.opset_import.extend(kept)
    shell.opset_import.add(domain="" if domain == "ai.onnx" else domain, version=version)
    return dataclasses.replace(model, shell=shell)
