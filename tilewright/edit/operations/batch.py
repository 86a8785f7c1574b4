"""A model for one batch size as one for any: shapes that it has as constants follow the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_var, product, var
from tilewright.core.errors import InputError
from tilewright.edit.operations.lookup import node_text
from tilewright.edit.operations.shapes import set_shape
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import Constant, Node, TensorType, Value, node_reads
from tilewright.graph_ir.names import NameSupply


def free_batch(model: OnnxModel, name: str, inputs: Sequence[str]) -> OnnxModel:
    """Axis 0 of ``inputs``, one number, becomes the dimension ``name``; so do the sizes that Reshape and Expand have
    from constants, where they are those of the batch.

    Raises InputError if these axes are not one number, or an output does not depend on the batch any more as it did,
    with the node where that is lost.
    """
    size = _batch(model, inputs)
    for i in inputs:
        model = set_shape(model, i, (name, *model.graph.values[i].shape[1:]))
    symbol = as_var(model.graph.values[inputs[0]].shape[0])
    graph = model.graph
    names = NameSupply(graph)
    values = {n: graph.values[n] for n in graph.inputs}
    constants = dict(graph.constants)
    values.update((k, constant_value(k, c)) for k, c in constants.items())
    batch = var(symbol or name)
    nodes: list[Node] = []
    lost: dict[str, Node] = {}
    for n in graph.nodes:
        changed = _shaped(n, values, constants, size, batch)
        if changed is not None:
            target = names.fresh(f"{n.inputs[1]}_any_batch")
            constants[target] = Constant(changed)
            values[target] = constant_value(target, constants[target])
            n = dataclasses.replace(n, inputs=(n.inputs[0], target, *n.inputs[2:]))
            if n.attr("allowzero") is not None:
                n = n.with_attrs(allowzero=0)  # a 0 means the size of the operand, and none was meant before
        results = infer_node(n, values, constants, names.symbols)
        values.update((v.name, v) for v in results)
        if _follows(values, node_reads(n), batch) and not any(_has(v, batch) for v in results):
            lost.update((v.name, n) for v in results)
        elif found := next((lost[i] for i in node_reads(n) if i in lost), None):
            lost.update((v.name, found) for v in results if not _has(v, batch))
        nodes.append(n)
    for o in graph.outputs:
        old = graph.values[o].type
        led = isinstance(old, TensorType) and old.shape and old.shape[0].value() == size
        if led and o in lost and not _has(values[o], batch):
            raise InputError(f"free_batch: expected output '{o}' to follow the batch, got {values[o].type}: node "
                             f"{node_text(lost[o])} gives a result that does not")  # fmt: skip
    return model.with_graph(graph.replace(nodes=tuple(nodes), constants=constants))


def _batch(model: OnnxModel, inputs: Sequence[str]) -> int:
    found: dict[str, IntExpr] = {}
    for i in inputs:
        t = model.graph.values[i].type
        if not isinstance(t, TensorType) or not t.shape:
            raise InputError(f"free_batch: input '{i}': expected an axis 0, got {t}")
        found[i] = t.shape[0]
    sizes = {d.value() for d in found.values()}
    size = next(iter(sizes), None)
    if len(sizes) != 1 or size is None:
        listed = ", ".join(f"{d} of '{i}'" for i, d in found.items())
        raise InputError(f"free_batch: expected one number as axis 0 of all inputs, got {listed}; inputs= says which")
    return size


def _has(v: Value, batch: IntExpr) -> bool:
    shape = v.type.shape if isinstance(v.type, TensorType) else None
    return shape is None or any(d.free_vars() & batch.free_vars() for d in shape)


def _follows(values: Mapping[str, Value], names: object, batch: IntExpr) -> bool:
    return any(_has(values[i], batch) for i in names if i in values)  # type: ignore[attr-defined]


def _shaped(
    node: Node, values: Mapping[str, Value], constants: Mapping[str, Constant], size: int, batch: IntExpr
) -> np.ndarray | None:
    """The constant shape of a Reshape or Expand that is right for any batch; None if the node has none, or it is."""
    if node.op not in ("Reshape", "Expand") or node.domain or node.inputs[1] not in constants:
        return None
    t = values[node.inputs[0]].type
    target: np.ndarray = constants[node.inputs[1]].array.copy()
    if not isinstance(t, TensorType) or t.shape is None or not any(d.free_vars() & batch.free_vars() for d in t.shape):
        return None
    if node.op == "Expand":
        offset = len(target) - len(t.shape)
        places = [k for k, d in enumerate(t.shape, offset) if d == batch and k >= 0 and target[k] == size]
        target[places] = 1
        return target if places else None
    if node.attr("allowzero", 0) and not target.all():
        return None
    places = [k for k, d in enumerate(t.shape) if d == batch and k < len(target) and target[k] == size]
    if places:
        target[places[0]] = 0
        return target
    rest = product(tuple(d for d in t.shape if d != batch)).value()
    if t.shape[0] == batch and -1 not in target and rest is not None:
        target[0] = -1
        return target
    return None
