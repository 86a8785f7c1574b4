"""What is different between two graphs whose nodes have been matched."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tilewright.edit.differences.changes import (
    AttributeChange,
    ConstantChange,
    NodeRef,
    OperandChange,
    PlacedNode,
    Rename,
    TypeChange,
    constant_type,
)
from tilewright.edit.differences.constants import constant_change
from tilewright.edit.differences.matching import NONE, Matching
from tilewright.edit.differences.sides import Ids, Side, attribute_key
from tilewright.edit.differences.types import DimensionNames, type_of, type_text
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Type

_FAR = 256
"""Nodes that only one graph has among which an operand's origin is looked for."""


def ref(node: Node) -> NodeRef:
    return NodeRef(node.name, node.op, node.domain)


class Comparison:
    """Compares the pairs of a matching. ``compared``: pairs of constants that somebody has compared already."""

    def __init__(self, m: Matching, ids: Ids, dims: DimensionNames, compared: set[tuple[str, str]]) -> None:
        self.m, self.a, self.b, self.ids, self.dims = m, m.a, m.b, ids, dims
        self._compared = compared
        self._constants: dict[tuple[str, str], list[NodeRef]] = {}
        self._renamed: dict[tuple[str, str], None] = {}

    # -- nodes ---------------------------------------------------------------------------------------------------------
    def attributes(self, x: Node, y: Node) -> tuple[AttributeChange, ...]:
        """Attributes that differ, but for graphs that both nodes have."""
        old, new = dict(x.attrs), dict(y.attrs)
        return tuple(c for k in sorted({*old, *new}) for c in self._attribute(k, old.get(k), new.get(k)))

    def _attribute(self, key: str, old: object, new: object) -> Iterator[AttributeChange]:
        if isinstance(old, Graph) or isinstance(new, Graph):
            if not (isinstance(old, Graph) and isinstance(new, Graph)):
                yield AttributeChange(key, old, new)  # type: ignore[arg-type]
        elif old is None or new is None:
            if old is not new:
                yield AttributeChange(key, old, new)  # type: ignore[arg-type]
        elif attribute_key(old, self.ids) != attribute_key(new, self.ids):  # type: ignore[arg-type]
            both = isinstance(old, Constant) and isinstance(new, Constant)
            change = constant_change(key, old, key, new) if both else None  # type: ignore[arg-type]
            yield AttributeChange(key, old, new, change)  # type: ignore[arg-type]

    def operands(self, x: Node, y: Node) -> tuple[OperandChange, ...]:
        """Operands that come from elsewhere. Pairs of constants at the same place are kept for :meth:`constants`."""
        size = max(len(x.inputs), len(y.inputs))
        old, new = (n.inputs + ("",) * (size - len(n.inputs)) for n in (x, y))
        return tuple(
            OperandChange(p, origin(self.a, s) or None, origin(self.b, t) or None)
            for p, (s, t) in enumerate(zip(old, new, strict=True))
            if not self.is_same(s, t, ref(y))
        )

    def is_same(self, s: str, t: str, reader: NodeRef | None = None) -> bool:
        """Whether ``t`` is what value ``s`` became, maybe with nodes inserted or removed on the way."""
        if s in self.a.constants and t in self.b.constants:
            self._meet(s, t, reader)
            return True
        if not s or not t:
            return s == t
        return self.m.value(s) == t or self._leads_to_the_same(s, t)

    def _meet(self, s: str, t: str, reader: NodeRef | None) -> None:
        if self.ids.content(self.a.constants[s]) != self.ids.content(self.b.constants[t]):
            self._constants.setdefault((s, t), []).extend([] if reader is None else [reader])
        elif s != t:
            self._renamed[s, t] = None

    def _leads_to_the_same(self, s: str, t: str) -> bool:
        there = set(_sources(self.b, t, self.m.to_a))
        return any(self.m.value(x) in there for x in _sources(self.a, s, self.m.to_b))

    # -- constants -----------------------------------------------------------------------------------------------------
    def constants(self) -> Iterator[ConstantChange]:
        """Of the pairs that operands have shown, those of different content, then those that nothing reads."""
        for (s, t), readers in self._constants.items():
            if (s, t) not in self._compared:
                self._compared.add((s, t))
                yield constant_change(s, self.a.constants[s], t, self.b.constants[t], tuple(dict.fromkeys(readers)))
        idle_a, idle_b = _idle(self.a), _idle(self.b)
        for s in [s for s in idle_a if s in idle_b]:
            self._meet(s, s, None)
            if (s, s) in self._constants:
                yield constant_change(s, idle_a[s], s, idle_b[s])
            del idle_a[s], idle_b[s]
        contents = {self.ids.content(c): t for t, c in idle_b.items()}
        for s, c in idle_a.items():
            if self.ids.content(c) in contents:
                t = contents.pop(self.ids.content(c))
                del idle_b[t]
                self._meet(s, t, None)
            else:
                yield ConstantChange(s, s, constant_type(c), None, c.size)
        for t, c in idle_b.items():
            yield ConstantChange(t, t, None, constant_type(c), c.size)

    # -- the rest ------------------------------------------------------------------------------------------------------
    def types(self, pairs: Sequence[tuple[Node, Node]], inputs: Iterable[str]) -> Iterator[TypeChange]:
        """Results whose type is known in both graphs and differs, in the order of ``pairs``. Not outputs of both.
        ``inputs``: those of ``b`` whose type has changed."""
        changed = set(inputs)
        for x, y in pairs:
            for s, t in zip(x.outputs, y.outputs, strict=False):
                old, new = type_of(self.a.graph, s), type_of(self.b.graph, t)
                if s and t and _is_known(old) and _is_known(new) and not self.dims.are_equal(old, new):
                    changed.add(t)
                    if s in self.a.leaving and t in self.b.leaving:
                        continue
                    yield TypeChange(t, type_text(old), type_text(new), any(i in changed for i in y.inputs))

    def renamed(self, pairs: Sequence[tuple[Node, Node]]) -> Iterator[Rename]:
        """Names of constants, nodes and their results, outputs aside."""
        yield from (Rename("constant", s, t) for s, t in self._renamed)
        for x, y in pairs:
            if x.name != y.name:
                yield Rename("node", x.name, y.name)
            for s, t in zip(x.outputs, y.outputs, strict=False):
                if s and t and s != t and s not in self.a.leaving:
                    yield Rename("value", s, t)


def placed(side: Side, i: int) -> PlacedNode:
    """A node with its neighbours."""
    node = side.nodes[i]
    behind = [origin(side, x) for x in side.operands[i] if x and x not in side.constants]
    before = [str(ref(side.nodes[j])) for o in node.outputs for j, _ in side.uses.get(o, ())]
    before += [f"output {o}" for o in node.outputs if o in side.leaving]
    return PlacedNode(ref(node), tuple(dict.fromkeys(behind)), tuple(dict.fromkeys(before)))


def origin(side: Side, name: str) -> str:
    """Where a value comes from, for people; "" for the absent one."""
    made = side.producer.get(name)
    if made is None:
        kind = "input " if name in side.graph.inputs else "constant " if name in side.constants else ""
        return f"{kind}{name}"
    node = side.nodes[made[0]]
    return f"{ref(node)}, result {made[1]}" if made[1] else str(ref(node))


def _sources(side: Side, name: str, partners: Sequence[int]) -> Iterator[str]:
    """The values nearest above ``name`` that are no results of nodes without a partner: itself, if it is none."""
    queue, seen, inner = deque([name]), {name}, 0
    while queue and inner <= _FAR:
        made = side.producer.get(x := queue.popleft())
        if made is None or partners[made[0]] != NONE:
            if x not in side.constants:
                yield x
            continue
        inner += 1
        queue.extend(dict.fromkeys(y for y in side.operands[made[0]] if y and y not in seen))
        seen.update(side.operands[made[0]])


def _idle(side: Side) -> dict[str, Constant]:
    """The graph's own constants that nothing reads."""
    constants = side.graph.constants.items()
    return {k: c for k, c in constants if k not in side.uses and k not in side.leaving}


def _is_known(t: Type | None) -> bool:
    return t is not None and not (isinstance(t, TensorType) and t.shape is None)
