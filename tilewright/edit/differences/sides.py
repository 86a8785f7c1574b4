"""A graph as matching sees it: who makes and who reads a value, and names for what nodes are and where they stand.

Keys of nodes are small numbers that two graphs share: equal keys, equal content. No key depends on the name of a node
or value, or on the order of nodes. After "bottom up" and "top down" the method is that of GumTree (Falleri et al.,
Fine-grained and accurate source code differencing, 2014), on graphs instead of trees.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node
from tilewright.graph_ir.text import digest

_ABSENT = -1


class Ids:
    """Numbers for keys, and for the contents of constants."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._contents: dict[int, tuple[Constant, int]] = {}

    def of(self, key: Hashable) -> int:
        """The number of ``key``: equal for equal keys."""
        return self._known.setdefault(key, len(self._known))

    def content(self, constant: Constant) -> int:
        """The number of a constant's type, shape and elements. It is read once."""
        found = self._contents.get(id(constant))
        if found is None:
            found = self._contents[id(constant)] = constant, self.of(("constant", digest(constant.array)))
        return found[1]


class Side:
    """One of the two graphs. Nodes are numbers: places in ``graph.nodes``.

    ``operands``: a node's inputs, then what its subgraphs read of the graphs around them, "" where one is absent.
    ``uses``: value -> the nodes that read it, with the place among their operands. ``leaving``: value -> its places
    among the graph's outputs. ``inner``: for each node its subgraphs. ``captures``: what the graph reads of those
    around it. ``order``: the nodes, each behind its operands, as one meets them on the way from the outputs.
    """

    captures: tuple[str, ...]

    def __init__(self, graph: Graph, ids: Ids, around: Mapping[str, Constant] | None = None) -> None:
        self.graph, self.nodes, self.ids = graph, graph.nodes, ids
        self.constants: Mapping[str, Constant] = {**(around or {}), **graph.constants}
        self.inner = [{k: Side(g, ids, self.constants) for k, g in n.subgraphs()} for n in graph.nodes]
        self.operands = [
            n.inputs + tuple(c for s in inner.values() for c in s.captures)
            for n, inner in zip(graph.nodes, self.inner, strict=True)
        ]
        self.producer = {o: (i, k) for i, n in enumerate(graph.nodes) for k, o in enumerate(n.outputs) if o}
        self.uses: dict[str, list[tuple[int, int]]] = {}
        for i, names in enumerate(self.operands):
            for p, name in enumerate(names):
                if name:
                    self.uses.setdefault(name, []).append((i, p))
        self.leaving: dict[str, list[int]] = {}
        for p, name in enumerate(graph.outputs):
            self.leaving.setdefault(name, []).append(p)
        self.order = self._order()
        own = {*self.producer, *graph.inputs, *graph.constants, ""}
        read = [name for i in self.order for name in self.operands[i]]
        self.captures = tuple(dict.fromkeys(x for x in (*read, *graph.outputs) if x not in own))

    def _order(self) -> list[int]:
        roots = [self.producer[o][0] for o in self.graph.outputs if o in self.producer]
        roots += [i for i, n in enumerate(self.nodes) if not any(o in self.uses for o in n.outputs)]
        out: dict[int, None] = {}
        seen: set[int] = set()
        for root in roots:
            stack = [(root, False)]
            while stack:
                i, done = stack.pop()
                if done:
                    out[i] = None
                elif i not in seen:
                    seen.add(i)
                    stack.append((i, True))
                    makers = [self.producer[x][0] for x in self.operands[i] if x in self.producer]
                    stack.extend((j, False) for j in reversed(makers) if j not in seen)
        return list(out)

    # -- what nodes are ----------------------------------------------------------------------------------------------
    def operators(self) -> list[int]:
        """A key for each node: its operator."""
        return [self.ids.of(("op", n.domain, n.op)) for n in self.nodes]

    def forms(self) -> list[int]:
        """A key for each node: operator, attributes, which operands and results there are."""
        return [self.ids.of(("form", *self._form(i, n))) for i, n in enumerate(self.nodes)]

    def _form(self, i: int, n: Node) -> tuple[Hashable, ...]:
        attrs = tuple((k, self._attribute(i, k, v)) for k, v in n.attrs if v is not None)
        present = tuple(bool(x) for x in self.operands[i]), tuple(bool(x) for x in n.outputs)
        return n.domain, n.op, attrs, present

    def _attribute(self, i: int, key: str, value: Attribute) -> Hashable:
        if isinstance(value, Graph):
            return self.inner[i][key].whole()
        return attribute_key(value, self.ids)

    def labels(self) -> list[int]:
        """A key for each node: its form and the contents of its constant operands."""
        return [self.ids.of((f, self._contents(i, 0))) for i, f in enumerate(self.forms())]

    def weights(self, least: int) -> list[int | None]:
        """A key for each node: its operator and its constants of ``least`` elements; None for a node without."""
        found = ((op, self._contents(i, least)) for i, op in enumerate(self.operators()))
        return [self.ids.of(("weights", *x)) if x[1] else None for x in found]

    def _contents(self, i: int, least: int) -> tuple[tuple[int, int], ...]:
        read = ((p, self.constants[x]) for p, x in enumerate(self.operands[i]) if x in self.constants)
        return tuple((p, self.ids.content(c)) for p, c in read if c.size >= least)

    def whole(self) -> int:
        """A key of the graph, taken by itself."""
        leaves = {x: self.ids.of(("in", p)) for p, x in enumerate(self.graph.inputs)}
        leaves |= {x: self.ids.of(("captured", p)) for p, x in enumerate(self.captures)}
        above = self.above(leaves, self.labels())
        outputs = tuple(self._operand(x, leaves, above, True) for x in self.graph.outputs)
        return self.ids.of(("graph", len(self.graph.inputs), outputs, tuple(sorted(above))))

    # -- where nodes stand -------------------------------------------------------------------------------------------
    def above(self, leaves: Mapping[str, int], labels: Sequence[int], contents: bool = True) -> list[int]:
        """A key for each node: everything it is computed from. ``leaves``: keys of inputs and of what is captured;
        ``contents``: constants count by what is in them."""
        keys: list[int] = []
        for i, label in enumerate(labels):
            operands = tuple([self._operand(x, leaves, keys, contents) for x in self.operands[i]])
            keys.append(self.ids.of(("above", label, operands)))
        return keys

    def _operand(self, name: str, leaves: Mapping[str, int], above: Sequence[int], contents: bool) -> int:
        if not name:
            return _ABSENT
        made = self.producer.get(name)
        if made is not None:
            return self.ids.of(("result", above[made[0]], made[1]))
        if name in leaves:
            return leaves[name]
        if name in self.constants:
            return self.ids.content(self.constants[name]) if contents else self.ids.of("a constant")
        return self.ids.of(("unpaired", id(self), name))

    def below(self, leaving: Mapping[str, Iterable[int]], labels: Sequence[int]) -> list[int]:
        """A key for each node: everything that is computed from it, down to the outputs. ``leaving``: keys of outputs.
        Nodes that some output needs have different keys, as no two values have the same place."""
        keys = [0] * len(self.nodes)
        for i in range(len(self.nodes) - 1, -1, -1):
            uses = tuple(
                (tuple(sorted((keys[j], p) for j, p in self.uses.get(o, ()))), tuple(leaving.get(o, ())))
                for o in self.nodes[i].outputs
            )
            keys[i] = self.ids.of(("below", labels[i], uses))
        return keys

    def around(self, labels: Sequence[int]) -> list[int]:
        """A key for each node: its label, those of the nodes that make its operands and those of its readers."""
        keys = []
        for i, n in enumerate(self.nodes):
            made = (self.producer.get(x, (_ABSENT, 0)) for x in self.operands[i])
            operands = tuple((_ABSENT if j == _ABSENT else labels[j], k) for j, k in made)
            uses = tuple(tuple(sorted((labels[j], p) for j, p in self.uses.get(o, ()))) for o in n.outputs)
            keys.append(self.ids.of(("around", labels[i], operands, uses)))
        return keys


def attribute_key(value: Attribute, ids: Ids) -> Hashable:
    """Equal for equal values of an attribute that is no graph: 1 is not 1.0, nan is nan, and numbers are what a file
    has of them, which is float32."""
    if isinstance(value, Constant):
        return "constant", ids.content(value)
    if isinstance(value, tuple):
        return tuple(attribute_key(x, ids) for x in value)
    return type(value).__name__, str(np.float32(value)) if isinstance(value, float) else repr(value)
