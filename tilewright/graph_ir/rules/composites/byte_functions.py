"""Functions of one byte as tables: what stands between a dequantized byte and a quantization has 256 values.

They are computed here, by the definitions of the operators, and one look-up takes the place of all. The chain is as
long as it can be: it goes through bytes in between, as where a quantizer has put a pair behind each operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InternalError
from tilewright.graph_ir.interpreter import evaluate_node
from tilewright.graph_ir.ir import Node, TensorType
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, tensor_shape
from tilewright.graph_ir.rules.integer_products import BYTES
from tilewright.machine.costs import Costs

_LOOK_UP = "LookUp"
_LONGEST = 32
"""Operators one behind the other that are looked at."""
_PLAIN = 2
"""Operations of an elementwise operator without divisions and the like."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """``byte`` and the nodes that make the result of it, each behind what it reads; the last one is the root."""

    byte: str
    nodes: tuple[Node, ...]


def _is_pointwise(ed: GraphEditor, node: Node) -> bool:
    """True if each element of the one result follows from the elements of the operands in its place, and from single
    constants."""
    op = op_def(node)
    if (
        node.domain
        or node.definition is not None
        or op.kind is not PatternKind.BROADCAST
        or not op.deterministic
        or len(node.outputs) != 1
    ):
        return False
    if any(True for _ in node.subgraphs()) or int_attr(node, "block_size", 0):
        return False
    by_table = node.op == _LOOK_UP and ed.constant(node.inputs[1]) is not None
    return by_table or not op.mixed_operands or "Linear" in node.op


def _operands(ed: GraphEditor, node: Node) -> Iterator[str]:
    """The operands that are not constants."""
    return (i for i in dict.fromkeys(node.inputs) if i and ed.constant(i) is None)


def _constants_are_single(ed: GraphEditor, node: Node) -> bool:
    given = (ed.constant(i) for i in node.inputs[: 1 if node.op == _LOOK_UP else None] if i)
    return all(c is None or c.size == 1 for c in given)


class _Sources:
    """Of which byte a value is a function. ``ends``: bytes at which the way ends."""

    def __init__(self, ed: GraphEditor, ends: frozenset[str]) -> None:
        self.ed, self.ends = ed, ends
        self.known: dict[str, str | None] = {}

    def of(self, name: str, depth: int = 0) -> str | None:
        """The farthest byte that alone decides ``name``; None if there is none."""
        if name not in self.known:
            self.known[name] = None if depth > _LONGEST else self._farthest(name, depth)
        return self.known[name]

    def _farthest(self, name: str, depth: int) -> str | None:
        ed, value = self.ed, self.ed.value(name)
        if not isinstance(value.type, TensorType):
            return None
        own = name if value.dtype in BYTES else None
        node = ed.producer(name)
        if node is None or name in self.ends or not _is_pointwise(ed, node) or not _constants_are_single(ed, node):
            return own
        found = {self.of(i, depth + 1) for i in _operands(ed, node)}
        (source,) = found if len(found) == 1 else (None,)
        same = source is not None and tensor_shape(ed.value(source)) == tensor_shape(value)
        return source if same else own


def _chain(ed: GraphEditor, root: Node, ends: frozenset[str]) -> _Chain | None:
    if not _is_pointwise(ed, root) or not _constants_are_single(ed, root):
        return None
    sources = _Sources(ed, ends)
    found = {sources.of(i) for i in _operands(ed, root)}
    (byte,) = found if len(found) == 1 else (None,)
    if byte is None or tensor_shape(ed.value(byte)) is None:
        return None
    nodes: dict[str, Node] = {}

    def take(node: Node) -> None:
        for i in _operands(ed, node):
            maker = ed.producer(i)
            if i != byte and maker is not None and maker.name not in nodes:
                take(maker)
        nodes[node.name] = node

    take(root)
    return _Chain(byte, tuple(nodes.values()))


def _read_elsewhere(ed: GraphEditor, chain: _Chain) -> Iterator[tuple[Node, str | None]]:
    """Nodes of the chain before the root that others read, and for those that are bytes, or bytes dequantized, these;
    the byte of the chain may be read by anybody."""
    inside = {n.name for n in chain.nodes}
    for n in chain.nodes[:-1]:
        (value,) = n.outputs
        if ed.is_output(value) or any(u.name not in inside for u in ed.users(value)):
            byte = n.inputs[0] if n.op == "DequantizeLinear" else value
            if byte != chain.byte:
                yield n, byte if ed.value(byte).dtype in BYTES else None


def _longest(m: Match) -> _Chain | str:
    """The longest chain that ends at the root and leaves nothing to compute for others; or why there is none.

    It begins behind a byte that others read, if it can: then the bytes before need not be stored for it.
    """
    ed, ends = m.editor, frozenset[str]()
    chain = _chain(ed, m.root, ends)
    while chain is not None:
        found = [*_read_elsewhere(ed, chain)]
        if (real := next((n for n, byte in found if byte is None), None)) is not None:
            return f"'{real.outputs[0]}' is also used elsewhere"
        more = ends | {byte for _, byte in found if byte is not None}
        shorter = _chain(ed, m.root, more) if more != ends else None
        if shorter is None:
            return chain
        chain, ends = shorter, more
    return NOT_HERE


def _operations(node: Node, costs: Costs) -> float:
    """What computing an element takes, in operations on float32."""
    if node.op == _LOOK_UP:
        return costs.look_up
    return {ElementCost.LOAD: 0.0, ElementCost.ARITHMETIC: _PLAIN, ElementCost.EXPENSIVE: costs.expensive_element}[
        op_def(node).cost
    ]


def _guard(m: Match) -> str | None:
    if m.editor.value(m.output).dtype not in BYTES:
        return NOT_HERE
    chain = _longest(m)
    if isinstance(chain, str):
        return chain
    costs = m.editor.ctx.costs
    work = sum(_operations(n, costs) for n in chain.nodes[:-1])  # the root rounds, as what gives the byte does
    if work > costs.look_up:
        return None
    return f"a look-up takes {costs.look_up:g} operations, computing {work:g}"


def _table(ed: GraphEditor, chain: _Chain) -> np.ndarray:
    """The result for each byte, in the order of their bits."""
    byte = ed.value(chain.byte)
    line = (1,) * (len(tensor_shape(byte) or ()) - 1) + (256,)
    scope: dict[str, object] = {chain.byte: np.arange(256, dtype=np.uint8).view(byte.dtype.numpy).reshape(line)}
    for n in chain.nodes:
        for i in n.inputs:
            if i and (array := ed.array(i)) is not None:
                scope[i] = array.reshape(-1) if n.op == _LOOK_UP else array.reshape(())
        scope[n.outputs[0]] = evaluate_node(n, scope)[0]
    return np.asarray(scope[chain.nodes[-1].outputs[0]]).reshape(256)


def _look_up(m: Match) -> str:
    chain = _longest(m)
    if isinstance(chain, str):
        raise InternalError(f"{m.root.name}: {chain}, which the guard has not found")
    return m.op(_LOOK_UP, chain.byte, m.const(_table(m.editor, chain)))


RULES: tuple[Rule, ...] = (
    Rule(
        "byte_function", "Quantize(f(Dequantize(q, s, z)), t, y) --> LookUp(q, table)",
        P("QuantizeLinear", "x", "s", rest=True), _look_up, _guard,
    ),
)  # fmt: skip
