"""Nodes in the terms of an opset: operators of our own are expanded, newer forms of ONNX's own become older ones.

An expansion or a downgrade is a function of a :class:`Site`, which knows the node and adds what stands in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError, ModelError, UnsupportedError
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
    """A node that another form takes the place of, at ``opset``. ``final``: nodes that have the form of the opset."""

    node: Node
    opset: int
    body: Body
    nodes: list[Node] = field(default_factory=list)
    final: list[Node] = field(default_factory=list)

    # -- questions
    def input(self, i: int) -> str:
        """Name of input ``i``, "" if absent."""
        return self.node.inputs[i] if i < len(self.node.inputs) else ""

    def value(self, name: str) -> Value:
        return self.body.values[name]

    def dtype(self, name: str) -> DType:
        return self.body.values[name].dtype

    def number(self, key: str, default: float) -> float:
        """An attribute that is a number."""
        found = self.node.attr(key, default)
        return float(found) if isinstance(found, int | float) else default

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers; None if the node has none."""
        found = self.node.attr(key)
        return tuple(int(x) for x in found) if isinstance(found, tuple) else None

    def text(self, key: str, default: str) -> str:
        """An attribute that is a text."""
        found = self.node.attr(key, default)
        return found if isinstance(found, str) else default

    def rank(self, name: str) -> int:
        """Raises UnsupportedError where it is unknown."""
        t = self.body.values[name].type
        if not isinstance(t, TensorType) or t.shape is None:
            raise self.refusal(f"the rank of '{name}' is not known")
        return len(t.shape)

    def constant(self, name: str) -> np.ndarray | None:
        """The array of a value, if it is a constant."""
        c = self.body.constants.get(name)
        return None if c is None else c.array

    def ints(self, name: str) -> tuple[int, ...] | None:
        """The elements of an integer value if all are known numbers."""
        array = self.constant(name)
        if array is not None:
            return tuple(int(x) for x in array.reshape(-1))
        data = self.body.values[name].data
        return None if data is None or any(not d.is_const for d in data) else tuple(d.const for d in data)

    def refusal(self, why: str) -> Refused:
        """The error for a node that the opset cannot say."""
        return Refused(self.node, why)

    # -- building
    def op(self, op: str, *inputs: str, **attrs: Attribute) -> str:
        """A new node with one output; the output's name."""
        out = self.body.names.fresh(f"{self.node.outputs[0] or self.node.name}_{op.lower()}")
        self.to((out,), op, *inputs, **attrs)
        return out

    def to(self, outputs: tuple[str, ...], op: str, *inputs: str, **attrs: Attribute) -> None:
        """A new node that defines ``outputs``. The first with the old operator or the old outputs has the old name."""
        named = op == self.node.op or outputs == self.node.outputs
        taken = any(n.name == self.node.name for n in self.nodes)
        name = self.node.name if named and not taken else self.body.names.fresh(f"{self.node.name}/{op}")
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
        node = replace(self.node, inputs=tuple(inputs), attrs=make_attrs(kept))
        self.nodes.append(node)
        self.final.append(node)

    def const(self, array: np.ndarray, hint: str = "const") -> str:
        """A new constant; its name."""
        return self.body.constant(array, f"{self.node.outputs[0] or self.node.name}_{hint}")

    def scalar(self, value: float, dtype: DType, hint: str) -> str:
        """A new constant of rank 0; its name."""
        return self.const(np.array(value).astype(dtype.numpy), hint)

    def attrs_without(self, *names: str) -> dict[str, Attribute]:
        """The attributes of the node but for some."""
        return {k: v for k, v in self.node.attrs if k not in names}


Form = Callable[[Site], None]


class Refused(UnsupportedError):
    """A node that the opset cannot say, or one of those that stand for it."""

    def __init__(self, node: Node, why: str) -> None:
        super().__init__(why)
        self.node = node
        self.why = why


@dataclass(frozen=True, slots=True)
class Downgrade:
    """The form of an operator in opsets before ``below``. ``lowest``: the first that has it."""

    below: int
    form: Form
    lowest: int = 1


@dataclass(frozen=True, slots=True)
class Terms:
    """In which terms nodes are said.

    ``own``: how operators of our own are said with ONNX's; ``attributes``: how nodes with an attribute of ours are
    said without it; ``older``: forms in older opsets; ``file_opset``: the version in whose terms foreign nodes of
    ONNX's own operators are written.
    """

    opset: int
    own: Mapping[str, Form]
    attributes: Mapping[str, Form]
    older: Mapping[str, tuple[Downgrade, ...]]
    file_opset: int


def said_in(node: Node, terms: Terms, body: Body) -> Iterator[Node]:
    """The nodes that say ``node``. Raises UnsupportedError that names the lowest opset that can."""
    try:
        yield from _said_in(node, terms, body)
    except Refused as e:
        part = "" if e.node.op == node.op else f"its {e.node.op}: "
        text = f"node '{node.name}' ({node.op}): opset {terms.opset} cannot say it: {part}{e.why}"
        for higher in range(terms.opset + 1, NEWEST_OPSET + 1):
            scratch = Body(body.names, dict(body.values), dict(body.constants))
            try:
                list(_said_in(node, replace(terms, opset=higher), scratch))
            except Refused:
                continue
            raise UnsupportedError(f"{text}; the lowest opset that can is {higher}") from e
        raise UnsupportedError(text) from e


def _said_in(node: Node, terms: Terms, body: Body) -> Iterator[Node]:
    site = Site(node, terms.opset, body)
    if node.domain == "ai.onnx":
        _require_same(site, signature(node.op, "", terms.file_opset), signature(node.op, "", terms.opset))
    if node.domain:
        yield node
        return
    form = _form(node, terms)
    if form is None:
        _require_fits(site, signature(node.op, "", terms.opset))
        yield node
        return
    form(site)
    for n in site.nodes:
        if n == node:
            raise InternalError(f"node '{node.name}' ({node.op}): its form in opset {terms.opset} is the node itself")
        if n in site.final:
            _require_fits(Site(n, terms.opset, body), signature(n.op, "", terms.opset))
            yield n
        else:
            yield from _said_in(n, terms, body)


def _form(node: Node, terms: Terms) -> Form | None:
    """What another form of the node makes; None for a node that has the form of the opset."""
    if node.op in terms.own:
        return terms.own[node.op]
    newest, there = signature(node.op, "", NEWEST_OPSET), signature(node.op, "", terms.opset)
    known = newest.attrs if newest is not None else {}
    mine = next((k for k, v in node.attrs if k in terms.attributes and k not in known and v is not None), None)
    if mine is not None:
        return terms.attributes[mine]
    if there is not None and newest is not None and there.since == newest.since:
        return None
    return next((d.form for d in terms.older.get(node.op, ()) if d.lowest <= terms.opset < d.below), None)


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
