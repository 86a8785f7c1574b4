"""A model for one batch size as one for any: what it has for that size as constants follows the batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InputError
from tilewright.edit.operations.lookup import node_text
from tilewright.edit.operations.shapes import set_shape
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import Constant, Graph, Node, Shape, Value, make_attrs, node_reads
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.rules.base import fixed_shape, tensor_shape

STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Operands of recurrent layers whose axis 1 is that of the batch."""


def free_batch(model: OnnxModel, name: str, inputs: Sequence[str]) -> OnnxModel:
    """Axis 0 of ``inputs``, one number, becomes the dimension ``name``.

    So do the sizes of the batch in the constant shapes of Reshape and Expand. Where that size is 1, operands of Concat
    and first states of recurrent layers that are for one element of the batch are repeated for all. Bodies of
    subgraphs stay as they are.

    Raises InputError if these axes are not one number, for a node that takes the batch to be of that size in another
    way, and for an output that would not follow the batch.
    """
    size = _size_of_batch(model, inputs)
    before = model.graph.values
    for i in inputs:
        model = set_shape(model, i, (name, *before[i].shape[1:]))
    graph = model.graph
    batch = graph.values[inputs[0]].shape[0]
    work = _Freeing(graph, size, batch, inputs[0], NameSupply(graph))
    for n in graph.nodes:
        work.add(n)
    for o in graph.outputs:
        old = tensor_shape(before[o])
        if old and old[0].value() == size and o in work.lost and not work.follows(o):
            raise InputError(f"free_batch: expected output '{o}' to follow the batch, got {work.values[o].type}: node "
                             f"{node_text(work.lost[o])} gives a result that does not")  # fmt: skip
    return model.with_graph(graph.replace(nodes=tuple(work.nodes), constants=work.constants))


def _size_of_batch(model: OnnxModel, inputs: Sequence[str]) -> int:
    found: dict[str, IntExpr] = {}
    for i in inputs:
        shape = tensor_shape(model.graph.values[i])
        if not shape:
            raise InputError(f"free_batch: input '{i}': expected an axis 0, got {model.graph.values[i].type}")
        found[i] = shape[0]
    sizes = {d.value() for d in found.values()}
    size = next(iter(sizes), None)
    if len(sizes) != 1 or size is None:
        listed = ", ".join(f"{d} of '{i}'" for i, d in found.items()) or "no input"
        raise InputError(f"free_batch: expected one number as axis 0 of all inputs, got {listed}; inputs= says which")
    return size


@dataclass(slots=True)
class _Freeing:
    """A graph that is made anew, node by node; the values that ``graph`` has of its nodes are those of the batch of
    ``size``. ``lost``: values that do not follow the batch though what they are computed from does, and the node that
    is to blame."""

    graph: Graph
    size: int
    batch: IntExpr
    source: str
    names: NameSupply
    values: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    lost: dict[str, Node] = field(default_factory=dict)
    _length: str = ""

    def __post_init__(self) -> None:
        self.values.update((i, self.graph.values[i]) for i in self.graph.inputs)
        for name, c in self.graph.constants.items():
            self.constants[name] = c
            self.values[name] = constant_value(name, c)

    def follows(self, name: str) -> bool:
        """True if a size or known element of the value is made from the batch, or might be."""
        v = self.values[name]
        shape = tensor_shape(v)
        sizes = (*(shape or ()), *(v.data or ()))
        return shape is None or any(d.free_vars() & self.batch.free_vars() for d in sizes)

    def add(self, n: Node) -> None:
        """The node, changed if it has to be. Raises InputError if it cannot follow the batch."""
        if not n.domain:
            n = self._reshaped(n) if n.op == "Reshape" else self._expanded(n) if n.op == "Expand" else n
            n = self._repeated(n)
        assumed = set(self.names.symbols.assumed)
        results = infer_node(n, self.values, self.constants, self.names.symbols)
        self.values.update((v.name, v) for v in results)
        self.nodes.append(n)
        reads = [i for i in node_reads(n) if i in self.values]
        follows = any(self.follows(v.name) for v in results)
        forced = [a for a in self.names.symbols.assumed if a not in assumed and a.symbols() == self.batch.free_vars()]
        if forced or (n.op == "Reshape" and not n.domain and self.follows(n.inputs[0]) and not follows):
            given = ", ".join(str(self.values[i].type) for i in n.inputs if i)
            raise InputError(f"free_batch: node {node_text(n)} takes the batch to be {self.size}, got {given}")
        if not follows and any(self.follows(i) for i in reads):
            self.lost.update((v.name, n) for v in results)
        elif found := next((self.lost[i] for i in reads if i in self.lost), None):
            self.lost.update((v.name, found) for v in results if not self.follows(v.name))

    # -- shapes --------------------------------------------------------------------------------------------------
    def _reshaped(self, n: Node) -> Node:
        """A Reshape whose constant shape is right for any batch: 0 for the batch where that is an axis of the operand,
        else -1 for the outermost axis."""
        shape, target = tensor_shape(self.values[n.inputs[0]]), self.constants.get(n.inputs[1])
        if shape is None or target is None or not self.follows(n.inputs[0]):
            return n
        wanted: np.ndarray = target.array.copy()
        if n.attr("allowzero", 0) and not wanted.all():
            return n
        axes = [k for k, d in enumerate(shape) if d == self.batch and k < len(wanted) and wanted[k] == self.size]
        inner = [d for d in shape[1:] if d.free_vars() & self.batch.free_vars()]
        if axes:
            wanted[axes[0]] = 0
        elif inner or (numbers := self._numbers(n.outputs[0])) is None or wanted[0] == -1:
            return n
        else:
            wanted = np.array([-1, *numbers[1:]], np.int64)
        n = self._with_shape(n, wanted)
        return n if n.attr("allowzero") is None else n.with_attrs(allowzero=0)

    def _numbers(self, name: str) -> tuple[int, ...] | None:
        """The shape that the value had, if its outermost size was a multiple of the batch."""
        found = fixed_shape(tensor_shape(self.graph.values[name]))
        return found if found and self.size and found[0] % self.size == 0 else None

    def _expanded(self, n: Node) -> Node:
        """An Expand that takes the batch from its operand."""
        shape, target = tensor_shape(self.values[n.inputs[0]]), self.constants.get(n.inputs[1])
        if shape is None or target is None:
            return n
        wanted: np.ndarray = target.array.copy()
        offset = len(wanted) - len(shape)
        axes = [k for k, d in enumerate(shape, offset) if d == self.batch and k >= 0 and wanted[k] == self.size]
        wanted[axes] = 1
        return self._with_shape(n, wanted) if axes else n

    def _with_shape(self, n: Node, shape: np.ndarray) -> Node:
        return dataclasses.replace(n, inputs=(n.inputs[0], self._constant(shape, n.inputs[1]), *n.inputs[2:]))

    def _constant(self, array: np.ndarray, hint: str) -> str:
        name = self.names.fresh(f"{hint}_any_batch")
        self.constants[name] = Constant(array)
        self.values[name] = constant_value(name, self.constants[name])
        return name

    # -- operands ------------------------------------------------------------------------------------------------
    def _repeated(self, n: Node) -> Node:
        """The node with operands of one element of the batch repeated for all, where it needs them so."""
        places = {i: axis for i, axis in self._of_one(n) if self.size == 1}
        return dataclasses.replace(
            n, inputs=tuple(self._for_all(x, places[i]) if i in places else x for i, x in enumerate(n.inputs))
        )

    def _of_one(self, n: Node) -> list[tuple[int, int]]:
        """Operands of one element where others have the batch: number and axis."""
        shapes = [tensor_shape(self.values[i]) if i else None for i in n.inputs]
        if n.op in STATES:
            x = shapes[0]
            given = [k for k in STATES[n.op] if k < len(shapes) and x and x[1] == self.batch]
            return [(k, 1) for k in given if _size(shapes[k], 1) == 1]
        if n.op != "Concat":
            return []
        rank = max((len(s) for s in shapes if s), default=0)
        joined = n.attr("axis", 0)
        axes = [
            a for a in range(rank) if a != (joined if not isinstance(joined, int) or joined >= 0 else joined + rank)
        ]
        return [
            (k, a) for a in axes if any(s and s[a] == self.batch for s in shapes)
            for k, s in enumerate(shapes) if _size(s, a) == 1
        ]  # fmt: skip

    def _for_all(self, name: str, axis: int) -> str:
        """The value repeated along ``axis`` for the whole batch."""
        rank = len(tensor_shape(self.values[name]) or ())
        if not self._length:
            self._length = self._new("Shape", (self.source,), "batch_length", start=0, end=1)
        ones = [self._constant(np.ones(k, np.int64), "ones") for k in (axis, rank - axis - 1) if k]
        parts = [*ones[: bool(axis)], self._length, *ones[bool(axis) :]]
        shape = self._new("Concat", tuple(parts), f"{name}_shape", axis=0) if len(parts) > 1 else self._length
        return self._new("Expand", (name, shape), f"{name}_for_all")

    def _new(self, op: str, inputs: tuple[str, ...], hint: str, **attrs: int) -> str:
        out = self.names.fresh(hint)
        self.add(Node(op, inputs, (out,), make_attrs(attrs), self.names.fresh(f"{hint}/{op}")))
        return out


def _size(shape: Shape | None, axis: int) -> int | None:
    return shape[axis].value() if shape is not None and axis < len(shape) else None
