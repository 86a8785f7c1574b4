"""Patterns and rules. A rule is one value; see any file of this package for how short one is.

Grammar of patterns::

    Operand ::= "x"                   any value; the same name twice: the same value
              | C("c")                a constant;  C("c", 2.0): one whose elements all equal 2.0
              | None                  an absent optional input
              | P(op, Operand, ...)   the first output of a node; op may be a tuple of names
              | Either(Operand, ...)  one of several, the first that fits before the others
              | Past(ops, Operand)    the operand, or what nodes of ``ops``, at most LAYERS one behind the other, make
                                      of it as their first input: a Cast
    P(..., at="n")                    the node is called n in the match;  attrs={"k": v} must be equal
    P(..., rest=True)                 further inputs may follow
    P(..., domain="com.acme")         the node is a foreign one, of that domain

A rule's pattern is a ``P`` or an ``Either`` of them. Operands of a commutative operator with two inputs match in
either order. The outermost ``P`` is the root: its outputs are what the rule replaces. Which of the alternatives
fitted, a guard tells by the names that are bound. ``Past`` looks at no attribute: that a Cast keeps enough is for the
guard to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_expr
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError, InternalError
from tilewright.graph_ir.ir import Attribute, Constant, Node, Shape, TensorType, Value
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS, op_def
from tilewright.graph_ir.ops.base import OpDef
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.user_operators import qualified

NOT_HERE = ""
"""A guard's answer for "this is not the rule's business": nothing is recorded."""


@dataclass(frozen=True, slots=True)
class C:
    """A constant operand of a pattern.

    ``name``: what the match calls it. ``value``: the number that each of its elements has to be; None for any constant.
    ``tolerance``: by how much elements may differ from that number.

    >>> from tilewright.rules import C, P
    >>> half = P("Mul", "x", C("half", 0.5))
    >>> any_constant = P("Add", "x", C("c"))
    """

    name: str
    value: float | None = None
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, init=False)
class P:
    """A node of a pattern: ``P(op, operand, ..., at=, attrs=, rest=, domain=)``. It stands for the node's first result.

    ``ops``: the operators that fit, from a name or a tuple of names. ``operands``: what its inputs have to be: a name
    for any value (the same name twice: the same value), None for an absent one, or a pattern. Those of a commutative
    operator with two inputs fit in either order. ``at``: what the match calls the node. ``attrs``: attributes that it
    must have. ``rest``: further inputs may follow. ``domain``: that of a foreign node.

    >>> from tilewright.rules import C, P
    >>> pattern = P("Relu", P(("Add", "Sub"), "x", C("bias"), at="sum"))
    >>> pattern.operands[0].ops
    ('Add', 'Sub')
    """

    ops: tuple[str, ...]
    operands: tuple[Operand, ...]
    at: str
    attrs: tuple[tuple[str, Attribute], ...]
    rest: bool
    domain: str

    def __init__(
        self,
        op: str | tuple[str, ...],
        *operands: Operand,
        at: str = "",
        attrs: Mapping[str, Attribute] | None = None,
        rest: bool = False,
        domain: str = "",
    ) -> None:
        set_ = object.__setattr__
        set_(self, "ops", (op,) if isinstance(op, str) else op)
        set_(self, "operands", operands)
        set_(self, "at", at)
        set_(self, "attrs", tuple(sorted((attrs or {}).items())))
        set_(self, "rest", rest)
        set_(self, "domain", domain)


@dataclass(frozen=True, slots=True, init=False)
class Either:
    """Alternatives in a pattern; the first that fits counts. Which it was, a guard tells by the names that are bound.

    ``options``: the patterns.

    >>> from tilewright.rules import Either, P
    >>> pattern = Either(P("Relu", "x"), P("Clip", "x", None, None))
    >>> len(pattern.options)
    2
    """

    options: tuple[Operand, ...]

    def __init__(self, *options: Operand) -> None:
        object.__setattr__(self, "options", options)


@dataclass(frozen=True, slots=True)
class Past:
    """An operand of a pattern, perhaps behind up to three nodes of some operators, such as a Cast, which it looks
    through. Their attributes are not looked at: that a Cast keeps enough is for the guard to say.

    ``ops``: the operators. ``operand``: what has to be there.

    >>> from tilewright.rules import P, Past
    >>> pattern = P("Relu", Past(("Cast",), "x"))
    """

    ops: tuple[str, ...]
    operand: Operand


Operand: TypeAlias = "str | C | P | Either | Past | None"
LAYERS = 3
"""As many nodes as ``Past`` goes through, one behind the other."""
_COMPARED = 1 << 14
"""Elements of a constant that are compared with the number that a pattern asks for."""


@dataclass(slots=True)
class Match:
    """What a pattern found: values and nodes by name, and the means to build the replacement. ``m["x"]`` is the name of
    a value; the methods tell what is known of it, and make nodes and constants.

    ``root``: the node whose results are replaced. ``names``: the names of values in the graph, by those in the pattern.
    ``nodes``: the nodes that the pattern names by ``at``. ``inner``: the other nodes that it covers. ``editor``: the
    graph that is being rewritten.

    >>> from tilewright.rules import P, Rule
    >>> def halved(m):
    ...     return m.op("Mul", m["x"], m.const(np.float32(0.5)))
    >>> rule = Rule("half", "Relu(x) --> x * 0.5", P("Relu", "x"), halved)
    >>> graph = tilewright.load_graph("model.onnx")
    >>> report = graph.apply_rules([rule])
    >>> report.fired("half"), [node.op for node in graph.nodes]
    (1, ['MatMul', 'Add', 'Mul', 'MatMul'])
    """

    editor: GraphEditor
    root: Node
    names: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    inner: tuple[Node, ...] = ()
    _arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def __getitem__(self, key: str) -> str:
        """The name of the value bound to ``key``."""
        return self.names[key]

    @property
    def output(self) -> str:
        """The name of the first result of the root."""
        return self.root.outputs[0]

    def node(self, key: str) -> Node:
        """The node that the pattern calls ``key`` (``P(..., at=key)``)."""
        return self.nodes[key]

    def value(self, key: str) -> Value:
        """The type, and what else is known, of the value bound to ``key``."""
        return self.editor.value(self.names[key])

    def dtype(self, key: str) -> DType:
        """The element type of the value bound to ``key``."""
        return self.value(key).dtype

    def shape(self, key: str) -> Shape | None:
        """The shape of the value bound to ``key``; None if its rank is unknown."""
        return tensor_shape(self.value(key))

    @property
    def out_shape(self) -> Shape | None:
        """The shape of the root's first result; None if its rank is unknown."""
        return tensor_shape(self.editor.value(self.output))

    def constant(self, key: str) -> Constant:
        """What a constant stands for. Raises InternalError if the pattern did not ask for a constant."""
        c = self.editor.constant(self.names[key])
        if c is None:
            raise InternalError(f"rule at '{self.root.name}': '{key}' is not bound to a constant")
        return c

    def array(self, key: str) -> np.ndarray:
        """The array of a constant: a weight of a file is read once for the condition and the replacement."""
        if key not in self._arrays:
            self._arrays[key] = self.constant(key).array
        return self._arrays[key]

    def ints(self, name: str) -> tuple[int, ...] | None:
        """Elements of the integer value called ``name`` in the graph, if all are known numbers."""
        return known_ints(self.editor, name)

    def op(self, op: str, *inputs: str, **attrs: Attribute) -> str:
        """A new node with one output; its name."""
        return self.editor.add(op, inputs, attrs, hint=self.output, stands_for=self._predecessor(op))[0]

    def foreign(self, domain: str, op: str, *inputs: str, **attrs: Attribute) -> str:
        """A new node of another domain with one output; its name."""
        return self.editor.add(op, inputs, attrs, hint=self.output, domain=domain)[0]

    def own(self, definition: OpDef, *inputs: str, **attrs: Attribute) -> str:
        """A new node with one output, of an operator of the user's (``Operator.definition``); its name."""
        return self.editor.add(
            definition.name, inputs, attrs, hint=self.output, stands_for=self.root, definition=definition
        )[0]

    def _predecessor(self, op: str) -> Node | None:
        """The matched node in whose place one of ``op`` stands: of the same operator, or both products."""
        product = op in OPS and OPS[op].kind is PatternKind.OUT_FUSABLE
        return next(
            (n for n in (self.root, *self.inner)
             if n.op == op or (product and op_def(n).kind is PatternKind.OUT_FUSABLE)), None,
        )  # fmt: skip

    def const(self, array: np.ndarray | float | list[int], like: str | None = None) -> str:
        """A new constant, of the element type of the value bound to ``like`` if given, else int64 for lists."""
        if like is not None:
            with np.errstate(over="ignore"):
                array = np.asarray(array).astype(self.dtype(like).numpy)
        elif isinstance(array, list):
            array = np.asarray(array, dtype=np.int64)
        return self.editor.add_constant(np.asarray(array), f"{self.output}.const")


Guard: TypeAlias = Callable[[Match], str | None]
Build: TypeAlias = Callable[[Match], "str | tuple[str, ...] | Node | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rewrite of a graph.

    ``name``: what logs call it, and ``disabled_pass``. ``equation``: what it does, for people: ``x * 1 --> x``.
    ``pattern``: what it looks for. ``build``: a function of the match that gives the name of the value that replaces
    the root's first result, a tuple with one for each result, a Node that takes the root's place, or None after all.
    ``guard``: a function of the match that gives None to go ahead, the reason not to, which is recorded, or NOT_HERE,
    which is not; by default it goes ahead. ``exactness``: how close results stay. ``exclusive``: refuse where a matched
    node below the root has readers outside of the match.

    >>> from tilewright.rules import C, P, Rule
    >>> pattern = P("Mul", "x", C("two", 2.0))
    >>> twice = Rule("twice", "x * 2 --> x + x", pattern, lambda m: m.op("Add", m["x"], m["x"]))
    >>> model = tilewright.compile("model.onnx", rules=[twice])
    """

    name: str
    equation: str
    pattern: P | Either
    build: Build
    guard: Guard | None = None
    exactness: Exactness = Exactness.BIT_EXACT
    exclusive: bool = False

    def __post_init__(self) -> None:
        if not self.roots:
            raise InputError(f"rule '{self.name}': expected a P or an Either of P as pattern, got {self.pattern!r}")

    @property
    def roots(self) -> tuple[P, ...]:
        """The patterns of the root, one of which has to fit; () if the pattern is no pattern of nodes."""
        options = self.pattern.options if isinstance(self.pattern, Either) else (self.pattern,)
        nodes = tuple(o for o in options if isinstance(o, P))
        return nodes if len(nodes) == len(options) else ()

    @property
    def root_ops(self) -> tuple[str, ...]:
        """The operators that the root may have."""
        return tuple(dict.fromkeys(name for p in self.roots for op in p.ops for name in _names(p, op)))


def _names(p: P, op: str) -> tuple[str, ...]:
    """What nodes of an operator in the pattern are called: where they are foreign, and where a build knows them."""
    return (op, qualified(p.domain, op)) if p.domain else (op,)


def matches(rule: Rule, editor: GraphEditor, root: Node) -> Iterator[Match]:
    """Every way in which the pattern fits at ``root``."""
    for pattern in rule.roots:
        for names, nodes, inner in _match_node(pattern, root, editor, {}, {}, ()):
            yield Match(editor, root, names, nodes, inner)


_State: TypeAlias = "tuple[dict[str, str], dict[str, Node], tuple[Node, ...]]"


def _match_node(
    p: P, node: Node, ed: GraphEditor, names: dict[str, str], nodes: dict[str, Node], inner: tuple[Node, ...]
) -> Iterator[_State]:
    if node.op not in p.ops and not (p.domain and any(node.op in _names(p, op) for op in p.ops)):
        return
    if node.domain != p.domain and node.definition is None:
        return
    if any(node.attr(k) != v for k, v in p.attrs):
        return
    inputs = node.inputs
    n = len(p.operands)
    if len(inputs) < n:
        inputs = inputs + ("",) * (n - len(inputs))
    if len(inputs) > n and not p.rest and any(inputs[n:]):
        return
    if p.at:
        nodes = {**nodes, p.at: node}
    orders = [inputs[:n]]
    if n == 2 and op_def(node).commutative and len(node.inputs) == 2:
        orders.append((inputs[1], inputs[0]))
    for order in orders:
        yield from _match_operands(p.operands, order, ed, names, nodes, inner)


def _match_operands(
    operands: tuple[Operand, ...],
    inputs: tuple[str, ...],
    ed: GraphEditor,
    names: dict[str, str],
    nodes: dict[str, Node],
    inner: tuple[Node, ...],
) -> Iterator[_State]:
    if not operands:
        yield names, nodes, inner
        return
    for a, b, c in _match_operand(operands[0], inputs[0], ed, names, nodes, inner):
        yield from _match_operands(operands[1:], inputs[1:], ed, a, b, c)


def _match_operand(
    o: Operand, name: str, ed: GraphEditor, names: dict[str, str], nodes: dict[str, Node], inner: tuple[Node, ...]
) -> Iterator[_State]:
    if o is None:
        if not name:
            yield names, nodes, inner
        return
    if isinstance(o, Either):
        for option in o.options:
            yield from _match_operand(option, name, ed, names, nodes, inner)
        return
    if not name:
        return
    if isinstance(o, Past):
        yield from _match_operand(o.operand, name, ed, names, nodes, inner)
        layers = inner
        for _ in range(LAYERS):
            layer = ed.producer(name)
            if layer is None or layer.op not in o.ops or layer.domain or layer.outputs[0] != name:
                return
            name, layers = layer.inputs[0], (*layers, layer)
            yield from _match_operand(o.operand, name, ed, names, nodes, layers)
        return
    if isinstance(o, P):
        producer = ed.producer(name)
        if producer is not None and producer.outputs[0] == name:
            yield from _match_node(o, producer, ed, names, nodes, (*inner, producer))
        return
    if isinstance(o, C):
        c = ed.constant(name)
        if c is None or not _all_equal(c, o):
            return
        o = o.name
    if o in names:
        if names[o] == name:
            yield names, nodes, inner
        return
    yield {**names, o: name}, nodes, inner


def _all_equal(constant: Constant, c: C) -> bool:
    if c.value is None:
        return True
    if constant.size == 0 or constant.size > _COMPARED or constant.dtype.kind in "OSU":
        return False
    array = constant.array
    if array.size > 1:
        flat = array.reshape(-1)
        if flat[0] != flat[-1] or not bool(np.all(flat == flat[0])):
            return False
    x = float(array.reshape(-1)[0].real)
    return x == c.value if not c.tolerance else abs(x - c.value) <= c.tolerance * max(1.0, abs(c.value))


def tensor_shape(v: Value) -> Shape | None:
    """The shape of a value; None if it is not a tensor or its rank is unknown."""
    return v.type.shape if isinstance(v.type, TensorType) else None


def fixed_shape(shape: Shape | None) -> tuple[int, ...] | None:
    """The shape as integers; None if some dim is not a number."""
    if shape is None or any(not d.is_const for d in shape):
        return None
    return tuple(d.const for d in shape)


def known_ints(editor: GraphEditor, name: str) -> tuple[int, ...] | None:
    """Elements of an integer value if all are known numbers."""
    array = editor.array(name)
    if array is not None:
        return tuple(int(x) for x in array.reshape(-1))
    data = editor.value(name).data
    if data is None or any(not d.is_const for d in data):
        return None
    return tuple(d.const for d in data)


def known_elements(editor: GraphEditor, name: str) -> tuple[IntExpr, ...] | None:
    """Elements of an integer value as far as they are numbers or sizes; None if one is neither."""
    ints = known_ints(editor, name)
    return editor.value(name).data if ints is None else tuple(as_expr(i) for i in ints)


def int_attr(node: Node, key: str, default: int) -> int:
    """An integer attribute of ``node``."""
    v = node.attr(key)
    return v if isinstance(v, int) else default


def ints_attr(node: Node, key: str) -> tuple[int, ...] | None:
    """An attribute that is a tuple of integers; None if absent."""
    v = node.attr(key)
    return tuple(int(x) for x in v) if isinstance(v, tuple) else None
