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
from tilewright.graph_ir.ir import (
    Attribute,
    Constant,
    Graph,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    UnknownType,
    Value,
    make_attrs,
    node_reads,
)
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
    """A node that another form takes the place of. ``final``: nodes that have the form of the opset already."""

    node: Node
    terms: Terms
    body: Body
    nodes: list[Node] = field(default_factory=list)
    final: list[Node] = field(default_factory=list)

    # -- questions
    @property
    def opset(self) -> int:
        return self.terms.opset

    def input(self, i: int) -> str:
        """Name of input ``i``, "" if absent."""
        return self.node.inputs[i] if i < len(self.node.inputs) else ""

    def value(self, name: str) -> Value:
        return self.body.values[name]

    def dtype(self, name: str) -> DType:
        """Raises Refused where it is unknown."""
        t = self.body.values[name].type
        if not isinstance(t, TensorType):
            raise self.refusal(f"the element type of '{name}' is not known")
        return t.dtype

    def is_unknown(self, name: str) -> bool:
        """True for a value that a foreign node gives, or that is made of one: its element type is not known."""
        return not isinstance(self.body.values[name].type, TensorType)

    def is_float(self, name: str) -> bool:
        """True for floats, and where the type is unknown: who made the model knew what the operator takes."""
        return self.is_unknown(name) or self.dtype(name).is_float

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

    def is_ranked(self, name: str) -> bool:
        t = self.body.values[name].type
        return isinstance(t, TensorType) and t.shape is not None

    def rank(self, name: str) -> int:
        """Raises Refused where it is unknown."""
        if not self.is_ranked(name):
            raise self.refusal(f"the rank of '{name}' is not known")
        return len(self.value(name).shape)

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
        reads = [*node_reads(node)]
        scope = {i: self.body.values[i] for i in reads}
        known = {i: c for i in reads if (c := self.body.constants.get(i)) is not None}
        for v in infer_node(node, scope, known, self.body.names.symbols):
            self.body.values.setdefault(v.name, v)
        self.nodes.append(node)

    def instead(self, op: str, *inputs: str, **attrs: Attribute) -> None:
        """A new node that defines what the old one does."""
        self.to(self.node.outputs, op, *inputs, **attrs)

    def raw(self, *inputs: str, op: str = "", outputs: tuple[str, ...] = (), drop: tuple[str, ...] = (),
            **attrs: Attribute) -> None:  # fmt: skip
        """The operator in the form of the old version: other inputs and attributes, which nothing infers."""
        ins = list(inputs)
        while ins and not ins[-1]:
            ins.pop()
        kept = make_attrs({k: v for k, v in (*self.node.attrs, *attrs.items()) if k not in drop and v is not None})
        node = Node(op or self.node.op, tuple(ins), outputs or self.node.outputs, kept, self.node.name)
        self.nodes.append(node)
        self.final.append(node)

    def like(self, name: str, hint: str, dtype: DType | None = None) -> str:
        """A new value of the type of ``name``, or that shape and ``dtype``, for a node without inference; its name."""
        new, old = self.body.names.fresh(f"{self.node.outputs[0] or self.node.name}_{hint}"), self.value(name).type
        t = TensorType(dtype, old.shape) if dtype is not None and isinstance(old, TensorType) else old
        self.body.values[new] = Value(new, t)
        return new

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
    """The form of an operator in opsets before ``below``. ``lowest``: the first that has it. ``changed``: the newest
    form says something else there."""

    below: int
    form: Form
    lowest: int = 1
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """In which terms nodes are said.

    ``own``: how operators are said with others in any opset; ``attributes``: how nodes with an attribute of ours are
    said without it; ``older``: forms in older opsets; ``wider``: element types that may stand for one that the opset
    lacks; ``defined``: how a foreign node of ONNX's is said by its definition; ``file_opset``: the version in whose
    terms such nodes are written.
    """

    opset: int
    own: Mapping[str, Form]
    attributes: Mapping[str, Form]
    older: Mapping[str, tuple[Downgrade, ...]]
    wider: Mapping[str, Callable[[DType], tuple[DType, ...]]]
    defined: Form
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
    site = Site(node, terms, body)
    if node.domain and (node.domain != "ai.onnx" or _is_same(node.op, terms.file_opset, terms.opset)):
        yield node
        return
    there, newest = signature(node.op, "", terms.opset), signature(node.op, "", NEWEST_OPSET)
    form = terms.defined if node.domain else _form(node, terms)
    wide = None if node.domain else _wider(site, there)
    if wide is not None:
        _widened(site, wide)
    elif form is not None:
        try:
            form(site)
        except Refused:
            if not _reads_unknown(site) or _is_changed(node, terms):
                raise
            yield _fitted(site, there, newest)
            return
    else:
        yield _fitted(site, there, newest)
        return
    for n in site.nodes:
        if any(n is f for f in site.final):
            old, new = signature(n.op, "", terms.opset), signature(n.op, "", NEWEST_OPSET)
            yield _fitted(Site(n, terms, body), old, new)
        elif n == node:
            raise InternalError(f"node '{node.name}' ({node.op}): its form in opset {terms.opset} is the node itself")
        else:
            yield from _said_in(n, terms, body)


def _reads_unknown(site: Site) -> bool:
    """True for a node that reads what a foreign one gives: where a form asks for its type, the node stays as it is, if
    the opset has it so."""
    values = (site.body.values.get(i) for i in site.node.inputs if i)
    return any(v is not None and isinstance(v.type, UnknownType) for v in values)


def _is_same(op: str, version: int, other: int) -> bool:
    """True for an operator that both versions define alike, or none does: one of somebody else's in ONNX's domain."""
    a, b = signature(op, "", version), signature(op, "", other)
    if a is None and signature(op, "", NEWEST_OPSET) is None:
        return True
    return a is not None and b is not None and a.since == b.since and not b.deprecated


def _form(node: Node, terms: Terms) -> Form | None:
    """What another form of the node makes; None for a node that has the form of the opset."""
    newest, there = signature(node.op, "", NEWEST_OPSET), signature(node.op, "", terms.opset)
    known = newest.attrs if newest is not None else {}
    mine = next((k for k, v in node.attrs if k in terms.attributes and k not in known and v is not None), None)
    if mine is not None:
        return terms.attributes[mine]
    if node.op in terms.own:
        return terms.own[node.op]
    if there is not None and newest is not None and there.since == newest.since:
        return None
    older = _downgrade(node, terms)
    return None if older is None else older.form


def _downgrade(node: Node, terms: Terms) -> Downgrade | None:
    return next((d for d in terms.older.get(node.op, ()) if d.lowest <= terms.opset < d.below), None)


def _is_changed(node: Node, terms: Terms) -> bool:
    """True for a node that the opset would take, and read in another way."""
    older = _downgrade(node, terms)
    return older is not None and older.changed


def _wider(site: Site, there: Signature | None) -> DType | None:
    """The element type that stands for that of the first operand; None where the opset has the operator for it, or
    what stands for the operator has. Operators that stand for one on narrow floats would round after each step."""
    node = site.node
    t = site.body.values[node.inputs[0]].type if node.inputs and node.inputs[0] in site.body.values else None
    candidates = site.terms.wider.get(node.op)
    if candidates is None or not isinstance(t, TensorType):
        return None
    if there is None or there.deprecated:
        return next(iter(candidates(t.dtype)), None) if t.dtype.is_narrow_float else None
    if _wrong_types(site, there) is None:
        return None
    return next((w for w in candidates(t.dtype) if _wrong_types(site, there, {t.dtype: w}) is None), None)


def _widened(site: Site, wide: DType) -> None:
    """The operator between Casts."""
    node = site.node
    dtype = site.dtype(node.inputs[0])
    operands = [site.op("Cast", i, to=wide) if i and site.dtype(i) == dtype else i for i in node.inputs]
    follow = [o for o in node.outputs if o and site.dtype(o) == dtype]
    made = {o: site.body.names.fresh(f"{o}_{wide}") for o in follow}
    site.to(tuple(made.get(o, o) for o in node.outputs), node.op, *operands, **dict(node.attrs))
    for o, name in made.items():
        site.to((o,), "Cast", name, to=dtype)


def _wrong_types(site: Site, there: Signature, instead: Mapping[DType, DType] | None = None) -> str | None:
    """Why the operands have none of the signature's element types, with some types ``instead`` of others. Operands that
    the signature has no place for are attributes there."""
    types = []
    for i in site.node.inputs[: there.max_inputs]:
        t = site.body.values[i].type if i in site.body.values else None
        types.append((instead or {}).get(t.dtype, t.dtype) if isinstance(t, TensorType) else None)
    try:
        require_types(there, types, "")
    except ModelError as e:
        return str(e).removeprefix(": ")
    return None


def _wrong_results(site: Site, there: Signature) -> str | None:
    """Why results have none of the signature's types: an element type that an attribute names, or no tensor."""
    for k, o in enumerate(site.node.outputs):
        t = site.body.values[o].type if o in site.body.values else None
        allowed = there.allowed.get(there.outputs[min(k, len(there.outputs) - 1)]) if there.outputs else None
        if isinstance(t, TensorType) and allowed and t.dtype not in allowed:
            return f"output {k}: expected a tensor of {', '.join(sorted(map(str, allowed)))}, got {t.dtype}"
    sequences, optionals = _KINDS.get(site.node.op, (0, 0))
    for name in (*site.node.inputs, *site.node.outputs):
        t = site.body.values[name].type if name in site.body.values else None
        if (isinstance(t, SequenceType) and site.opset < sequences) or (
            isinstance(t, OptionalType) and site.opset < optionals
        ):
            return f"'{name}' is {t}"
    return None


_KINDS: Mapping[str, tuple[int, int]] = {"If": (13, 16), "Loop": (13, 16), "Identity": (14, 16)}
"""The first opsets in which operators of tensors take sequences, and optional values."""


def _fitted(site: Site, there: Signature | None, newest: Signature | None) -> Node:
    """The node in the operator's form with this signature. Raises Refused if it has none."""
    node = site.node
    if there is None or there.deprecated:
        raise site.refusal("it has no such operator")
    given = len(node.inputs)
    if not there.min_inputs <= given <= there.max_inputs:
        most = there.max_inputs
        wanted = f"at least {there.min_inputs}" if given < there.min_inputs else f"at most {most}"
        raise site.refusal(f"expected {wanted} inputs there, got {given}")
    if len(node.outputs) > there.max_outputs:
        raise site.refusal(f"expected at most {there.max_outputs} outputs there, got {len(node.outputs)}")
    attrs = {}
    for key, value in node.attrs:
        if value is None:
            continue
        if key in there.attrs:
            attrs[key] = _axis_there(site, key, value, there, newest)
        elif newest is None or not _says_nothing(key, value, newest):
            raise site.refusal(f"it knows no attribute {key}")
    if (wrong := _wrong_types(site, there) or _wrong_results(site, there)) is not None:
        raise site.refusal(wrong)
    made = make_attrs(attrs)
    return node if made == node.attrs else replace(node, attrs=made)


def _says_nothing(key: str, value: Attribute, newest: Signature) -> bool:
    """True for an attribute that has its default value, which stands for what older versions did."""
    if key == "dilations":
        return isinstance(value, tuple) and all(d == 1 for d in value)
    default = newest.attrs[key].default if key in newest.attrs else None
    return default is not None and (value.onnx if isinstance(value, DType) else value) == default


NEGATIVE_AXES = 11
"""The opset since which axes may count from the end."""


def _axis_there(site: Site, key: str, value: Attribute, there: Signature, newest: Signature | None) -> Attribute:
    if key != "axis" or not isinstance(value, int) or value >= 0:
        return value
    if there.since >= NEGATIVE_AXES or newest is None or newest.since < NEGATIVE_AXES or site.node.op in _FROM_END:
        return value
    return value + site.rank(site.node.inputs[0])


_FROM_END = ("OneHot", "TopK")
"""Operators whose axes always could."""


def body_of(graph: Graph, names: NameSupply, outer: Body | None = None) -> Body:
    """What is known in ``graph``."""
    around = ({}, {}) if outer is None else (outer.values, outer.constants)
    return Body(names, {**around[0], **graph.values}, {**around[1], **graph.constants})
