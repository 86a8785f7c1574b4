"""Nodes in the terms of an opset: operators of our own are expanded, newer forms of ONNX's own become older ones.

An expansion or a downgrade is a function of a :class:`Site`, which knows the node and adds what stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend.schemas import NEWEST_OPSET, Signature, require_types, signature
from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, TensorType, Value, make_attrs
from tilewright.graph_ir.names import NameSupply


@dataclass(slots=True)
class Body:
    """A graph that is being written: what is known of its values and of those around it, and what was added."""

    names: NameSupply
    values: dict[str, Value]
    constants: dict[str, Constant]
    added: dict[str, Constant] = field(default_factory=dict)

    def constant(self, array: np.ndarray, hint: str) -> str:
        """A new constant; its name."""
        name = self.names.fresh(hint)
        self.added[name] = self.constants[name] = Constant(array)
        self.values[name] = constant_value(name, self.constants[name])
        return name


@dataclass(slots=True)
class Site:
    """A node that another form takes the place of, at ``opset``."""

    node: Node
    opset: int
    body: Body
    nodes: list[Node] = field(default_factory=list)

    # -- questions
    def input(self, i: int) -> str:
        """Name of input ``i``, "" if absent."""
        return self.node.inputs[i] if i < len(self.node.inputs) else ""

    def value(self, name: str) -> Value:
        return self.body.values[name]

    def dtype(self, name: str) -> DType:
        return self.body.values[name].dtype

    def rank(self, name: str) -> int:
        """Raises UnsupportedError where it is unknown."""
        t = self.body.values[name].type
        if not isinstance(t, TensorType) or t.shape is None:
            raise self.refusal(f"the rank of '{name}' is not known")
        return len(t.shape)

    def ints(self, name: str) -> tuple[int, ...] | None:
        """The elements of an integer value if all are known numbers."""
        c = self.body.constants.get(name)
        if c is not None:
            return tuple(int(x) for x in c.array.reshape(-1))
        data = self.body.values[name].data
        return None if data is None or any(not d.is_const for d in data) else tuple(d.const for d in data)

    def refusal(self, why: str) -> UnsupportedError:
        """The error for a node that the opset cannot say."""
        return UnsupportedError(f"node '{self.node.name}' ({self.node.op}): opset {self.opset} cannot say it: {why}")

    # -- building
    def op(self, op: str, *inputs: str, hint: str = "", **attrs: Attribute) -> str:
        """A new node with one output; the output's name."""
        out = self.body.names.fresh(hint or f"{self.node.outputs[0] or self.node.name}_{op.lower()}")
        self.to((out,), op, *inputs, **attrs)
        return out

    def to(self, outputs: tuple[str, ...], op: str, *inputs: str, **attrs: Attribute) -> None:
        """A new node that defines ``outputs``; it has the name of the old one if that is the first it has."""
        taken = any(n.name == self.node.name for n in self.nodes)
        name = self.body.names.fresh(f"{self.node.name}/{op}") if taken else self.node.name
        ins = list(inputs)
        while ins and not ins[-1]:
            ins.pop()
        kept = make_attrs({k: v for k, v in attrs.items() if v is not None})
        node = Node(op, tuple(ins), outputs, kept, name)
        scope = {i: self.body.values[i] for i in node.inputs if i}
        known = {i: c for i in node.inputs if (c := self.body.constants.get(i)) is not None}
        for v in infer_node(node, scope, known, self.body.names.symbols):
            self.body.values.setdefault(v.name, v)
        self.nodes.append(node)

    def instead(self, op: str, *inputs: str, **attrs: Attribute) -> None:
        """A new node that defines what the old one does."""
        self.to(self.node.outputs, op, *inputs, **attrs)

    def raw(self, *inputs: str, drop: tuple[str, ...] = (), **attrs: Attribute) -> None:
        """The old operator in the form of the old version: other inputs and attributes, which nothing infers."""
        kept = {k: v for k, v in (*self.node.attrs, *attrs.items()) if k not in drop and v is not None}
        self.nodes.append(replace(self.node, inputs=tuple(inputs), attrs=make_attrs(kept)))

    def const(self, array: np.ndarray, hint: str = "const") -> str:
        """A new constant; its name."""
        return self.body.constant(array, f"{self.node.outputs[0] or self.node.name}_{hint}")


Form = Callable[[Site], None]


@dataclass(frozen=True, slots=True)
class Downgrade:
    """The form of an operator in opsets before ``below``. ``lowest``: the first that has it."""

    below: int
    form: Form
    lowest: int = 1


def said_in(node: Node, opset: int, body: Body, own: Mapping[str, Form], older: Mapping[str, tuple[Downgrade, ...]],
            file_opset: int) -> Iterator[Node]:  # fmt: skip
    """The nodes that say ``node`` in ``opset``. Raises UnsupportedError that names the lowest opset that can.

    ``own``: how operators of our own are said with ONNX's; ``older``: forms in older opsets; ``file_opset``: the
    version in whose terms foreign nodes of ONNX's own operators are written.
    """
    try:
        yield from _said_in(node, opset, body, own, older, file_opset)
    except UnsupportedError as e:
        for higher in range(opset + 1, NEWEST_OPSET + 1):
            scratch = Body(body.names, dict(body.values), dict(body.constants))
            try:
                list(_said_in(node, higher, scratch, own, older, file_opset))
            except UnsupportedError:
                continue
            raise UnsupportedError(f"{e}; the lowest opset that can is {higher}") from None
        raise


def _said_in(node: Node, opset: int, body: Body, own: Mapping[str, Form], older: Mapping[str, tuple[Downgrade, ...]],
             file_opset: int) -> Iterator[Node]:  # fmt: skip
    site = Site(node, opset, body)
    if node.domain == "ai.onnx":
        _require_same(site, signature(node.op, "", file_opset), signature(node.op, "", opset))
    if node.domain:
        yield node
        return
    newest, there = signature(node.op, "", NEWEST_OPSET), signature(node.op, "", opset)
    form = own.get(node.op)
    if form is None and (there is None or newest is None or there.since != newest.since):
        rule = next((d for d in older.get(node.op, ()) if d.lowest <= opset < d.below), None)
        form = None if rule is None else rule.form
    if form is None:
        _require_fits(site, there)
        yield node
        return
    form(site)
    for n in site.nodes:
        if n.op == node.op and own.get(n.op) is None:
            _require_fits(Site(n, opset, body), there)
            yield n
        else:
            yield from _said_in(n, opset, body, own, older, file_opset)


def _require_same(site: Site, theirs: Signature | None, there: Signature | None) -> None:
    if theirs is None or there is None or theirs.since != there.since:
        raise site.refusal("the file has it in another version")


def _require_fits(site: Site, there: Signature | None) -> None:
    """Raises UnsupportedError if the node is none of the operator's form with this signature."""
    node = site.node
    if there is None or there.deprecated:
        raise site.refusal("it has no such operator")
    given = len(node.inputs)
    if not there.min_inputs <= given <= there.max_inputs or len(node.outputs) > there.max_outputs:
        raise site.refusal(f"expected {there.min_inputs} to {there.max_inputs} inputs there, got {given}")
    unknown = [k for k, v in node.attrs if v is not None and k not in there.attrs]
    if unknown:
        raise site.refusal(f"it knows no attribute {unknown[0]}")
    types = []
    for i in node.inputs:
        t = site.body.values[i].type if i in site.body.values else None
        types.append(t.dtype if isinstance(t, TensorType) else None)
    try:
        require_types(there, types, f"node '{node.name}' ({node.op})")
    except ModelError as e:
        raise site.refusal(str(e).partition("): ")[2]) from e


def body_of(graph: Graph, names: NameSupply, outer: Body | None = None) -> Body:
    """What is known in ``graph``."""
    around = ({}, {}) if outer is None else (outer.values, outer.constants)
    return Body(names, {**around[0], **graph.values}, {**around[1], **graph.constants})
