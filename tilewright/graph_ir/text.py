"""The text of the graph IR: ``print_graph(parse_graph(print_graph(g), constants_of(g))) == print_graph(g)``.

Grammar::

    text    ::= (size NAME = expression;)* graph     names of sizes that have long formulas
    graph   ::= graph NAME [broadcasts] (input, ...) -> (NAME, ...) { line* }
    input   ::= NAME: type
    line    ::= const NAME: type = array
              | assume NODE-NAME: expression AGREE expression;
              | range SYMBOL: INT .. INT;
              | group NAME: RUNS-AS (NAME, ...) -> (NAME, ...) = NODE-NAME, ...;
              | value, ... = OP(NAME, ...) {KEY: attr, ...} NODE-NAME
    AGREE   ::= ==  |  <-  |  <>                      equal; or the right one is 1; or either is 1
    value   ::= NAME: type [<expression, ...>] [at NAME[INT, ...]]
                                                     the elements known of it, where it lies in a larger value; the
                                                     type is left out before inference
    type    ::= DTYPE[dim, ...] | DTYPE[?] | seq(type) | optional(type)
    array   ::= [element, ...]  (small: row-major, in full)  |  #DIGEST  (looked up when parsing)
    attr    ::= INT | FLOAT | STRING | @DTYPE | [attr, ...] | none | const type = array | graph ...

A name that is not letters, digits and ``_ . / : -`` is quoted as in JSON; an absent input or output is ``""``.
An operator outside the default domain is written ``domain::OP``. Lines before the graph that start with ``#`` are
comments.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, of_atom
from tilewright.core.arith.named import Named, definitions
from tilewright.core.arith.parse import parse as parse_expr
from tilewright.core.assumptions import Assumption, Ones
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, ParseError
from tilewright.graph_ir.inference import constant_value
from tilewright.graph_ir.ir import (
    Attribute,
    Constant,
    Graph,
    Group,
    Node,
    OptionalType,
    SequenceType,
    SubView,
    TensorType,
    Type,
    UnknownType,
    Value,
    make_attrs,
    walk_graphs,
)
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.symbols import value_sizes

_INLINE = 16
_PLAIN = re.compile(r"[A-Za-z0-9_./:\-]+")


def digest(array: np.ndarray) -> str:
    """A short content hash of an array: type, shape and elements."""
    h = hashlib.sha256(f"{array.dtype}{array.shape}".encode())
    if array.dtype == object:
        h.update(json.dumps([str(x) for x in array.reshape(-1)]).encode())
    else:
        h.update(np.ascontiguousarray(array).tobytes())
    return h.hexdigest()[:16]


def constants_of(graph: Graph) -> dict[str, Constant]:
    """Digest -> constant, for everything the text of ``graph`` leaves out; what :func:`parse_graph` needs."""
    return {digest(c.array): c for c in _all_constants(graph) if not _is_inline(c)}


def _all_constants(graph: Graph) -> Iterator[Constant]:
    for g in walk_graphs(graph):
        yield from g.constants.values()
        for n in g.nodes:
            yield from (v for _, v in n.attrs if isinstance(v, Constant))


def _is_inline(c: Constant) -> bool:
    return c.size <= _INLINE and c.dtype.kind != "c"


# -- printing ------------------------------------------------------------------------------------------------------
def print_graph(graph: Graph) -> str:
    """The graph as text."""
    sizes = definitions(e for g in walk_graphs(graph) for e in _expressions(g))
    return "\n".join((*(f"size {x} = {x.formula};" for x in sizes), *_graph_lines(graph, "")))


def _expressions(g: Graph) -> Iterator[IntExpr]:
    for v in g.values.values():
        yield from value_sizes(v)
    for a in g.assumptions:
        yield from (a.left, a.right)


def _graph_lines(g: Graph, pad: str) -> list[str]:
    inputs = ", ".join(_value(n, g.values) for n in g.inputs)
    outputs = ", ".join(map(_name, g.outputs))
    broadcasts = "broadcasts " if g.broadcasts else ""
    lines = [f"{pad}graph {_name(g.name)} {broadcasts}({inputs}) -> ({outputs}) {{"]
    for name, c in g.constants.items():
        lines.append(f"{pad}  const {_name(name)}: {_array(c)}")
    for n in g.nodes:
        lines.extend(_node_lines(n, g.values, pad + "  "))
    lines.extend(_group_line(x, pad + "  ") for x in g.groups or ())
    lines.extend(f"{pad}  assume {_name(a.node)}: {a.left} {a.ones.value} {a.right};" for a in g.assumptions)
    lines.extend(f"{pad}  range {symbol}: {low} .. {high};" for symbol, low, high in g.ranges)
    return [*lines, f"{pad}}}"]


def _group_line(g: Group, pad: str) -> str:
    inputs, outputs, nodes = (", ".join(map(_name, x)) for x in (g.inputs, g.outputs, [n.name for n in g.nodes]))
    return f"{pad}group {_name(g.name)}: {g.runs_as.value} ({inputs}) -> ({outputs}) = {nodes};"


def _node_lines(n: Node, values: Mapping[str, Value], pad: str) -> list[str]:
    outputs = ", ".join(_value(o, values) for o in n.outputs)
    op = f"{n.domain}::{n.op}" if n.domain else n.op
    attrs = ", ".join(f"{_name(k)}: {_attr(v, pad)}" for k, v in n.attrs)
    return [f"{pad}{outputs} = {op}({', '.join(map(_name, n.inputs))}) {{{attrs}}} {_name(n.name)}"]


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else json.dumps(name)


def _value(name: str, values: Mapping[str, Value]) -> str:
    v = values.get(name)
    if v is None:
        return _name(name)
    data = "" if v.data is None else f" <{', '.join(map(str, v.data))}>"
    place = "" if v.place is None else f" at {_name(v.place.root)} [{', '.join(map(str, v.place.offsets))}]"
    return f"{_name(name)}: {v.type}{data}{place}"


def _array(c: Constant) -> str:
    head, a = f"{dtypes.from_numpy(c.dtype)}[{', '.join(map(str, c.shape))}]", c.array
    if not _is_inline(c):
        return f"{head} = #{digest(a)}"
    return f"{head} = [{', '.join(_element(x, a.dtype) for x in a.reshape(-1))}]"


def _element(x: object, dtype: np.dtype) -> str:
    if dtype.kind in "OSU":
        return json.dumps(x.decode() if isinstance(x, bytes) else str(x))
    if dtypes.from_numpy(dtype).is_float:
        return repr(float(x))  # type: ignore[arg-type]
    return str(int(x))  # type: ignore[call-overload]


def _attr(v: Attribute, pad: str) -> str:
    if v is None:
        return "none"
    if isinstance(v, DType):
        return f"@{v}"
    if isinstance(v, Graph):
        return "\n".join(_graph_lines(v, pad + "    ")).lstrip()
    if isinstance(v, Constant):
        return f"const {_array(v)}"
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, tuple):
        return f"[{', '.join(_attr(x, pad) for x in v)}]"
    return repr(v) if isinstance(v, float) else str(int(v))


# -- parsing -------------------------------------------------------------------------------------------------------
def parse_graph(text: str, constants: Mapping[str, Constant] | None = None) -> Graph:
    """Read the text form back. ``constants``: digest -> constant (see :func:`constants_of`). Raises ParseError."""
    reader = _Reader(text, constants or {})
    reader.skip_comments()
    while reader.word("size"):
        reader.size()
    graph = reader.graph({})
    reader.skip()
    if reader.at < len(text):
        reader.fail("the end of the text")
    return graph


def parse_type(text: str) -> Type:
    """A type from its text form. Raises ParseError."""
    reader = _Reader(text, {})
    t = reader.type()
    if reader.at < len(text):
        reader.fail("the end of the type")
    return t


_NUMBER = re.compile(r"-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)")


class _Reader:
    """A recursive-descent reader over the text."""

    def __init__(self, text: str, constants: Mapping[str, Constant]) -> None:
        self.text = text
        self.at = 0
        self.constants = constants
        self.sizes: dict[str, IntExpr] = {}

    def fail(self, expected: str) -> NoReturn:
        line = self.text.count("\n", 0, self.at) + 1
        got = self.text[self.at : self.at + 20].split("\n")[0] or "the end"
        raise ParseError(f"line {line}: expected {expected}, got {got!r}")

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def skip_comments(self) -> None:
        while self.peek("#"):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end

    def peek(self, token: str) -> bool:
        self.skip()
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> bool:
        if not self.peek(token):
            return False
        self.at += len(token)
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            self.fail(repr(token))

    def word(self, word: str) -> bool:
        """Take ``word`` if it stands alone."""
        self.skip()
        end = self.at + len(word)
        if self.text.startswith(word, self.at) and (end == len(self.text) or self.text[end].isspace()):
            self.at = end
            return True
        return False

    def string(self) -> str:
        self.skip()
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        except json.JSONDecodeError:
            self.fail("a quoted string")
        if not isinstance(value, str):
            self.fail("a quoted string")
        return value

    def name(self) -> str:
        """A name; a colon that is followed by a space ends it."""
        self.skip()
        if self.peek('"'):
            return self.string()
        m = _PLAIN.match(self.text, self.at)
        if m is None:
            self.fail("a name")
        found = m.group()
        after = self.text[m.end() : m.end() + 1]
        if found.endswith(":") and (after == "" or after.isspace()):
            found = found[:-1]
        if not found:
            self.fail("a name")
        self.at += len(found)
        return found

    def listed(self, close: str) -> Iterator[None]:
        """Positions of the items of a comma-separated list up to ``close``, which is consumed."""
        if self.take(close):
            return
        while True:
            yield None
            if self.take(close):
                return
            self.expect(",")

    def expression(self, stops: str) -> IntExpr:
        """An integer expression up to a character of ``stops`` outside parentheses."""
        self.skip()
        start, depth = self.at, 0
        while self.at < len(self.text):
            c = self.text[self.at]
            if depth == 0 and c in stops:
                break
            depth += (c == "(") - (c == ")")
            self.at += 1
        return parse_expr(self.text[start : self.at].strip(), self.sizes)

    def size(self) -> None:
        name = self.name()
        self.expect("=")
        self.sizes[name] = of_atom(Named(self.expression(";")))
        self.expect(";")

    def type(self) -> Type:
        if self.take("seq("):
            inner = None if self.take("None") else self.type()
            self.expect(")")
            return SequenceType(inner)
        if self.take("optional("):
            inner = None if self.take("None") else self.type()
            self.expect(")")
            return OptionalType(inner)
        if self.word("unknown"):
            return UnknownType()
        self.skip()
        m = re.compile(r"[a-z0-9]+").match(self.text, self.at)
        if m is None:
            self.fail("a type")
        try:
            dtype = dtypes.from_name(m.group())
        except ModelError:
            self.fail("an element type")
        self.at = m.end()
        self.expect("[")
        if self.take("?"):
            self.expect("]")
            return TensorType(dtype, None)
        return TensorType(dtype, tuple(self.expression(",]") for _ in self.listed("]")))

    def value(self) -> tuple[str, Value | None]:
        name = self.name()
        if not self.take(":"):
            return name, None
        t = self.type()
        data = tuple(self.expression(",>") for _ in self.listed(">")) if self.take("<") else None
        return name, Value(name, t, data, place=self.place() if self.word("at") else None)

    def place(self) -> SubView:
        root = self.name()
        self.expect("[")
        return SubView(root, tuple(int(self.number()) for _ in self.listed("]")))

    def number(self) -> int | float:
        self.skip()
        m = _NUMBER.match(self.text, self.at)
        if m is None:
            self.fail("a number")
        self.at = m.end()
        text = m.group()
        return int(text) if text.lstrip("-").isdigit() else float(text)

    def array(self) -> Constant:
        t = self.type()
        shape = tuple(d.value() for d in t.shape or ()) if isinstance(t, TensorType) else None
        if not isinstance(t, TensorType) or shape is None or None in shape:
            self.fail("a fixed tensor type")
        self.expect("=")
        if self.take("#"):
            key = self.name()
            if key not in self.constants:
                self.fail(f"constant #{key} among those given")
            return self.constants[key]
        self.expect("[")
        numpy_type = t.dtype.numpy
        if numpy_type.kind == "O":
            items: list[object] = [self.string() for _ in self.listed("]")]
        else:
            items = [self.number() for _ in self.listed("]")]
        dims = [d for d in shape if d is not None]
        if len(items) != math.prod(dims):
            self.fail(f"{math.prod(dims)} elements, not {len(items)}")
        wide = np.array(items, dtype=np.float64 if t.dtype.is_float else object)
        return Constant(wide.astype(numpy_type).reshape(dims))

    def attribute(self, scope: Mapping[str, Value]) -> Attribute:
        if self.take("@"):
            return dtypes.from_name(self.name())
        if self.peek('"'):
            return self.string()
        if self.take("["):
            items = [self.attribute(scope) for _ in self.listed("]")]
            return tuple(items)  # type: ignore[return-value]
        if self.peek("graph "):
            return self.graph(scope)
        if self.word("const"):
            return self.array()
        if self.take("none"):
            return None
        return self.number()

    def graph(self, outer: Mapping[str, Value]) -> Graph:
        if not self.word("graph"):
            self.fail("'graph'")
        title = self.name()
        broadcasts = self.word("broadcasts")
        values: dict[str, Value] = {}
        inputs: list[str] = []
        self.expect("(")
        for _ in self.listed(")"):
            name, v = self.value()
            inputs.append(name)
            if v is not None:
                values[name] = v
        self.expect("->")
        self.expect("(")
        outputs = tuple(self.name() for _ in self.listed(")"))
        self.expect("{")
        constants: dict[str, Constant] = {}
        nodes: list[Node] = []
        assumptions: list[Assumption] = []
        groups: list[Group] = []
        ranges: list[tuple[str, int, int]] = []
        while not self.take("}"):
            if self.word("const"):
                name = self.name()
                self.expect(":")
                constants[name] = self.array()
                values[name] = constant_value(name, constants[name])
            elif self.word("assume"):
                assumptions.append(self.assumption())
            elif self.word("range"):
                ranges.append(self.range())
            elif self.word("group"):
                groups.append(self.group({n.name: n for n in nodes}))
            else:
                nodes.append(self.node({**outer, **values}, values))
        for o in outputs:
            if o not in values and o in outer:
                values[o] = outer[o]
        return Graph(
            title, tuple(inputs), outputs, tuple(nodes), values, constants, tuple(assumptions), broadcasts,
            tuple(groups) or None, tuple(ranges),
        )  # fmt: skip

    def group(self, nodes: Mapping[str, Node]) -> Group:
        name = self.name()
        self.expect(":")
        runs_as = self.name()
        if runs_as not in {r.value for r in RunsAs}:
            self.fail("what a group runs as")
        self.expect("(")
        inputs = tuple(self.name() for _ in self.listed(")"))
        self.expect("->")
        self.expect("(")
        outputs = tuple(self.name() for _ in self.listed(")"))
        self.expect("=")
        members = tuple(self.name() for _ in self.listed(";"))
        if unknown := [m for m in members if m not in nodes]:
            self.fail(f"the name of a node before it, not {unknown[0]}")
        return Group(name, tuple(nodes[m] for m in members), inputs, outputs, RunsAs(runs_as))

    def range(self) -> tuple[str, int, int]:
        symbol = self.name()
        self.expect(":")
        low = self.number()
        self.expect("..")
        high = self.number()
        self.expect(";")
        return symbol, int(low), int(high)

    def assumption(self) -> Assumption:
        node = self.name()
        self.expect(":")
        end = self.text.find(";", self.at)
        text = self.text[self.at : max(end, self.at)]
        ones = next((o for o in Ones if o.value in text), None)
        if end < 0 or ones is None:
            self.fail("'expression == expression;'")
        self.at = end + 1
        left, _, right = text.partition(ones.value)
        left_size, right_size = (parse_expr(side.strip(), self.sizes) for side in (left, right))
        return Assumption(left_size, right_size, node, ones)

    def node(self, scope: Mapping[str, Value], values: dict[str, Value]) -> Node:
        names = []
        while True:
            name, v = self.value()
            names.append(name)
            if v is not None:
                values[name] = v
            if not self.take(","):
                break
        self.expect("=")
        full = self.name()
        domain, _, op = full.rpartition("::")
        self.expect("(")
        inputs = tuple(self.name() for _ in self.listed(")"))
        self.expect("{")
        attrs: dict[str, Attribute] = {}
        for _ in self.listed("}"):
            key = self.name()
            self.expect(":")
            attrs[key] = self.attribute(scope)
        return Node(op, inputs, tuple(names), make_attrs(attrs), self.name(), domain)
