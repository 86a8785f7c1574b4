"""Another element type for the floats of a graph, with Casts where an operator does not take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError
from tilewright.core.io.stored import StoredArray
from tilewright.edit.operations.lookup import reading
from tilewright.frontend.build import ELEMENT_TYPE_ATTRS
from tilewright.frontend.keep import OnnxModel
from tilewright.frontend.schemas import NEWEST_OPSET, signature
from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import Attribute, Constant, Node, TensorType, UnknownType, Value, node_reads
from tilewright.graph_ir.names import NameSupply


def convert(model: OnnxModel, old: DType, new: DType, interface: bool, skip: Collection[str]) -> OnnxModel:
    """Constants and values of type ``old`` in type ``new``.

    ``interface``: inputs and outputs too, else they stay as they are behind Casts. ``skip``: names of nodes that stay
    in ``old``. So do nodes with subgraphs, foreign nodes, what reads values of unknown type, and operands for which the
    standard does not allow ``new``. Raises InputError for types that are no floats.
    """
    for t in (old, new):
        if not t.is_float:
            raise InputError(f"convert: expected float types, got {t}")
    graph = model.graph
    work = _Work(old, new, NameSupply(graph), dict(graph.values), {})
    for name in graph.inputs:
        value = work.values[name]
        if interface and _is(value, old):
            work.values[name] = dataclasses.replace(value, type=TensorType(new, value.shape))
    inputs = [work.values[i] for i in graph.inputs]
    fixed = {n.inputs[k] for n in graph.nodes for k in range(len(n.inputs)) if not _takes(n, k, new)}
    for name, c in graph.constants.items():
        value = work.values[name]
        stays = name in graph.outputs and not interface
        if _is(value, old) and not stays and _read_as_new(graph.nodes, name, skip, fixed):
            c = converted(c, new)
        work.constants[name] = c
        work.values[name] = constant_value(name, c)
    outputs = {o for o in graph.outputs if _is(graph.values[o], old)}
    for n in graph.nodes:
        unknown = any(isinstance(work.values[i].type, UnknownType) for i in n.inputs if i)
        work.node(n, unknown or n.name in skip or bool(n.domain) or any(True for _ in n.subgraphs()))
    nodes = _with_outputs(work, [*graph.outputs], set() if interface else outputs)
    used = {i for n in nodes for i in node_reads(n)} | {*graph.outputs}
    return model.with_graph(
        graph.replace(
            nodes=tuple(nodes), constants={k: c for k, c in work.constants.items() if k in used},
            values={**graph.values, **{v.name: v for v in inputs}},
        )
    )  # fmt: skip


def converted(c: Constant, new: DType) -> Constant:
    """The constant in another float type; elements out of its range become its largest, infinities stay."""
    if isinstance(c.content, StoredArray):
        c = Constant(c.array)
    array = c.array
    largest = float(np.finfo(new.numpy).max) if new.bits > 8 and new.name != "bfloat16" else None
    if new.bits < 32 and largest is not None:
        wide = array.astype(np.float64)
        inside = np.where(np.isfinite(wide), np.clip(wide, -largest, largest), wide)
        return Constant(inside.astype(new.numpy))
    with np.errstate(over="ignore"):
        return Constant(array.astype(new.numpy))


def _is(value: Value | None, dtype: DType) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype == dtype


def _takes(node: Node, k: int, new: DType) -> bool:
    """True if the standard allows ``new`` as input number ``k`` of the node."""
    sig = signature(node.op, "", NEWEST_OPSET) if not node.domain else None
    if sig is None or not sig.inputs:
        return not node.domain
    allowed = sig.allowed.get(sig.inputs[min(k, len(sig.inputs) - 1)])
    return allowed is None or new in allowed


def _read_as_new(nodes: tuple[Node, ...], name: str, skip: Collection[str], fixed: Collection[str]) -> bool:
    """True if some node reads the constant in the new type."""
    readers = [n for n in nodes if name in n.inputs]
    return not readers or (any(n.name not in skip and not n.domain for n in readers) and name not in fixed)


@dataclass(slots=True)
class _Work:
    """A graph that is made anew, node by node; ``values`` have the types that they have by now."""

    old: DType
    new: DType
    names: NameSupply
    values: dict[str, Value]
    constants: dict[str, Constant]
    nodes: list[Node] = field(default_factory=list)
    casts: dict[tuple[str, DType], str] = field(default_factory=dict)

    def node(self, n: Node, stays: bool) -> None:
        """The node as it is in the new graph, behind Casts of what it reads in another type than there is."""
        renames: dict[str, str] = {}
        inputs = []
        for k, i in enumerate(n.inputs):
            wanted = self.old if stays or not _takes(n, k, self.new) else self.new
            inputs.append(self._as(i, wanted) if i and self._is_float(i) else i)
        if stays:
            renames = {i: self._as(i, self.old) for i in node_reads(n) if i not in n.inputs and self._is_float(i)}
            n = reading(n, renames)
        else:
            n = n.with_attrs(**self._attributes(n))
        n = dataclasses.replace(n, inputs=tuple(inputs))
        self.append(n)

    def append(self, n: Node) -> None:
        """A node more, inferred."""
        for v in infer_node(n, self.values, self.constants, self.names.symbols):
            known = self.values.get(v.name)
            unknown = not isinstance(v.type, TensorType)
            self.values[v.name] = known if unknown and known is not None else v
        self.nodes.append(n)

    def _is_float(self, name: str) -> bool:
        return _is(self.values.get(name), self.old) or _is(self.values.get(name), self.new)

    def _as(self, name: str, dtype: DType) -> str:
        """The value in ``dtype``: itself, or a Cast of it."""
        if _is(self.values[name], dtype):
            return name
        if (name, dtype) not in self.casts:
            out = self.names.fresh(f"{name}_{dtype}")
            self.append(Node("Cast", (name,), (out,), (("to", dtype),), self.names.fresh(f"{name}_to_{dtype}")))
            self.casts[name, dtype] = out
        return self.casts[name, dtype]

    def _attributes(self, n: Node) -> Mapping[str, Attribute]:
        """Attributes that say ``old``, or have elements of it."""
        changes: dict[str, Attribute] = {}
        for key, value in n.attrs:
            if key in ELEMENT_TYPE_ATTRS and value == self.old and key != "stash_type":
                changes[key] = self.new
            elif isinstance(value, Constant) and value.dtype == self.old.numpy:
                changes[key] = converted(value, self.new)
        return changes


def _with_outputs(work: _Work, outputs: list[str], old: set[str]) -> list[Node]:
    """The nodes with Casts before outputs that stay in the old type."""
    renames = {}
    for o in outputs:
        if o in old and _is(work.values[o], work.new):
            renames[o] = work.names.fresh(f"{o}_{work.new}")
    nodes = []
    for n in work.nodes:
        n = reading(n, renames)
        nodes.append(dataclasses.replace(n, outputs=tuple(renames.get(x, x) for x in n.outputs)))
    for o, inner in renames.items():
        nodes.append(Node("Cast", (inner,), (o,), (("to", work.old),), work.names.fresh(f"{o}_to_{work.old}")))
    return nodes
