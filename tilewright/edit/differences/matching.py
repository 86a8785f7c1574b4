"""Which node of one graph is which of the other.

First nodes that are computed from the same, or that the same is computed from; then nodes with weights of their own.
From there pairs grow to neighbours, those that have most in common first: what two nodes that stand for each other read
at the same place, and what reads them at the same place. What is left is put side by side, between the pairs that are
known. Each step is linear in the graph but for the last one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from tilewright.edit.differences.alignment import common_subsequence, increasing_subsequence
from tilewright.edit.differences.sides import Ids, Side

NONE = -1
_WEIGHT = 16
"""Elements from which a constant tells nodes apart."""
_LIST = 2
"""The same where nothing better does."""
Pairs = Sequence[tuple[int, int]]
Keys = tuple[Sequence[int], Sequence[int]]


class Matching:
    """Pairs of nodes. ``to_b``, ``to_a``: for each node its counterpart, or NONE. ``values``: inputs of ``a``, and what
    it captures, to those of ``b``; ``outputs``: places of outputs that stand for each other."""

    def __init__(self, a: Side, b: Side, values: Mapping[str, str], outputs: Pairs) -> None:
        self.a, self.b, self.values, self.outputs = a, b, values, outputs
        self.to_b = [NONE] * len(a.nodes)
        self.to_a = [NONE] * len(b.nodes)

    def pair(self, i: int, j: int) -> None:
        self.to_b[i], self.to_a[j] = j, i

    def are_free(self, i: int, j: int) -> bool:
        return self.to_b[i] == NONE and self.to_a[j] == NONE

    @property
    def is_over(self) -> bool:
        """One of the two has no node left."""
        return NONE not in self.to_b or NONE not in self.to_a

    def pairs(self) -> list[tuple[int, int]]:
        return [(i, j) for i, j in enumerate(self.to_b) if j != NONE]

    def value(self, name: str) -> str | None:
        """The value of ``b`` that a value of ``a`` became: of an input, of what is captured, of a node's result."""
        made = self.a.producer.get(name)
        if made is None:
            return self.values.get(name)
        i, k = made
        results = () if self.to_b[i] == NONE else self.b.nodes[self.to_b[i]].outputs
        return results[k] or None if k < len(results) else None

    def pair_unique(self, keys_a: Sequence[Hashable], keys_b: Sequence[Hashable]) -> None:
        """Pair the free nodes whose key no other free node has. A key of None is none."""
        for i, j in _unique(
            [(k, i) for i, k in enumerate(keys_a) if self.to_b[i] == NONE and k is not None],
            [(k, j) for j, k in enumerate(keys_b) if self.to_a[j] == NONE and k is not None],
        ):
            self.pair(i, j)


def _unique(a: Sequence[tuple[Hashable, int]], b: Sequence[tuple[Hashable, int]]) -> Iterator[tuple[int, int]]:
    """What is the only one of its key on either side."""
    count_a, count_b = Counter(k for k, _ in a), Counter(k for k, _ in b)
    there = dict(b)
    for k, i in a:
        if count_a[k] == 1 and count_b[k] == 1:
            yield i, there[k]


def match_nodes(a: Side, b: Side, values: Mapping[str, str], outputs: Pairs, ids: Ids) -> Matching:
    """Pair the nodes of two graphs. ``values``, ``outputs``: what is known of inputs, captured values and outputs."""
    m = Matching(a, b, values, outputs)
    labels, forms, operators = (a.labels(), b.labels()), (a.forms(), b.forms()), (a.operators(), b.operators())
    above, below = _places(m, labels, ids, True)
    m.pair_unique(list(zip(above[0], below[0], strict=True)), list(zip(above[1], below[1], strict=True)))
    m.pair_unique(*below)
    m.pair_unique(*above)
    _grow(m, (above, below))
    if m.is_over:
        return m
    levels = (above, below, labels, forms, operators)
    m.pair_unique(a.weights(_WEIGHT), b.weights(_WEIGHT))
    _grow(m, levels[:3])
    form_above, form_below = _places(m, forms, ids, False)
    m.pair_unique(
        list(zip(form_above[0], form_below[0], strict=True)), list(zip(form_above[1], form_below[1], strict=True))
    )
    near = a.around(labels[0]), b.around(labels[1])
    m.pair_unique(a.around(near[0]), b.around(near[1]))
    m.pair_unique(*near)
    _grow(m, levels)
    m.pair_unique(a.weights(_LIST), b.weights(_LIST))
    _grow(m, levels)
    for keys in (labels, forms, operators):
        _align(m, keys)
        _grow(m, levels)
    _pair_replaced(m)
    return m


def _places(m: Matching, labels: Keys, ids: Ids, contents: bool) -> tuple[Keys, Keys]:
    """Keys for what nodes are computed from, and for what is computed from them."""
    leaves_a = {x: ids.of(("leaf", y)) for x, y in m.values.items()}
    leaves_b = {y: ids.of(("leaf", y)) for y in m.values.values()}
    leaving: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
    for p, (i, j) in enumerate(m.outputs):
        leaving[0].setdefault(m.a.graph.outputs[i], []).append(p)
        leaving[1].setdefault(m.b.graph.outputs[j], []).append(p)
    above = m.a.above(leaves_a, labels[0], contents), m.b.above(leaves_b, labels[1], contents)
    return above, (m.a.below(leaving[0], labels[0]), m.b.below(leaving[1], labels[1]))


# -- growing -------------------------------------------------------------------------------------------------------
def _grow(m: Matching, levels: Sequence[Keys]) -> None:
    """Pair neighbours of pairs that have equal keys, those of the first level wherever there are any, before others."""
    if m.is_over:
        return
    heap = [(level, i, m.to_b[i]) for level in range(len(levels)) for i in _border(m)]
    for keys in levels:
        for i, j in _beside_the_graph(m, keys):
            if m.are_free(i, j):
                m.pair(i, j)
                heap += [(n, i, j) for n in range(len(levels))]
    heapq.heapify(heap)
    while heap:
        level, i, j = heapq.heappop(heap)
        for x, y in _neighbours(m, i, j, levels[level]):
            if m.are_free(x, y):
                m.pair(x, y)
                for n in range(len(levels)):
                    heapq.heappush(heap, (n, x, y))


def _border(m: Matching) -> set[int]:
    """Nodes of ``a`` that have a counterpart, beside such that have none."""
    free = [i for i, j in enumerate(m.to_b) if j == NONE]
    makers = {made[0] for i in free for x in m.a.operands[i] if (made := m.a.producer.get(x)) is not None}
    readers = {r for i in free for o in m.a.nodes[i].outputs for r, _ in m.a.uses.get(o, ())}
    return {i for i in makers | readers if m.to_b[i] != NONE}


def _neighbours(m: Matching, i: int, j: int, keys: Keys) -> Iterator[tuple[int, int]]:
    """Free nodes of equal keys that two nodes read, or that read them: at the same place, else anywhere."""
    read = _readable(m.a, m.to_b, m.a.operands[i]), _readable(m.b, m.to_a, m.b.operands[j])
    yield from _equal(read[0], read[1], keys)
    for x, y in zip(m.a.nodes[i].outputs, m.b.nodes[j].outputs, strict=False):
        yield from _readers(m, x, y, keys)


def _beside_the_graph(m: Matching, keys: Keys) -> Iterator[tuple[int, int]]:
    """The same for inputs and outputs of the graphs."""
    for x, y in m.values.items():
        yield from _readers(m, x, y, keys)
    for p, q in m.outputs:
        x, y = m.a.graph.outputs[p], m.b.graph.outputs[q]
        yield from _equal(_readable(m.a, m.to_b, [x]), _readable(m.b, m.to_a, [y]), keys)


def _readers(m: Matching, x: str, y: str, keys: Keys) -> Iterator[tuple[int, int]]:
    free_a = [(p, i) for i, p in m.a.uses.get(x, ()) if m.to_b[i] == NONE]
    free_b = [(p, j) for j, p in m.b.uses.get(y, ()) if m.to_a[j] == NONE]
    yield from _equal(free_a, free_b, keys)


def _readable(side: Side, partners: Sequence[int], names: Iterable[str]) -> list[tuple[int, int]]:
    made = ((p, side.producer.get(x)) for p, x in enumerate(names))
    return [(p, x[0]) for p, x in made if x is not None and partners[x[0]] == NONE]


def _equal(a: Sequence[tuple[int, int]], b: Sequence[tuple[int, int]], keys: Keys) -> Iterator[tuple[int, int]]:
    """Of nodes with places, those with equal keys, at the same place if possible."""
    if a and b:
        yield from _unique([((p, keys[0][i]), i) for p, i in a], [((p, keys[1][j]), j) for p, j in b])
        yield from _unique([(keys[0][i], i) for _, i in a], [(keys[1][j], j) for _, j in b])


# -- what is left --------------------------------------------------------------------------------------------------
def _align(m: Matching, keys: Keys) -> None:
    """Pair free nodes of equal keys that stand in the same order between pairs which do."""
    if m.is_over:
        return
    place = {j: p for p, j in enumerate(m.b.order)}
    fixed = [(p, place[m.to_b[i]]) for p, i in enumerate(m.a.order) if m.to_b[i] != NONE]
    kept = [fixed[k] for k in increasing_subsequence([q for _, q in fixed])]
    start_a = start_b = 0
    for p, q in (*kept, (len(m.a.order), len(m.b.order))):
        free_a = [i for i in m.a.order[start_a:p] if m.to_b[i] == NONE]
        free_b = [j for j in m.b.order[start_b:q] if m.to_a[j] == NONE]
        for x, y in common_subsequence([keys[0][i] for i in free_a], [keys[1][j] for j in free_b]):
            m.pair(free_a[x], free_b[y])
        start_a, start_b = p + 1, q + 1


def _pair_replaced(m: Matching) -> None:
    """Pair free nodes of different operators where one reads what the other does, and is read where the other is."""
    for i in m.a.order:
        if m.to_b[i] == NONE:
            j = next((j for j in _in_place_of(m, i) if m.to_a[j] == NONE and _read_the_same(m, i, j)), NONE)
            if j != NONE:
                m.pair(i, j)


def _in_place_of(m: Matching, i: int) -> Iterator[int]:
    """Nodes of ``b`` that make what is read where ``a``'s node ``i`` made it."""
    outputs = dict(m.outputs)
    for k, name in enumerate(m.a.nodes[i].outputs):
        readers = [(m.to_b[r], p) for r, p in m.a.uses.get(name, ()) if m.to_b[r] != NONE]
        there = [m.b.operands[r][p] for r, p in readers if p < len(m.b.operands[r])]
        there += [m.b.graph.outputs[outputs[p]] for p in m.a.leaving.get(name, ()) if p in outputs]
        yield from (made[0] for x in there if (made := m.b.producer.get(x)) is not None and made[1] == k)


def _read_the_same(m: Matching, i: int, j: int) -> bool:
    pairs = zip(m.a.operands[i], m.b.operands[j], strict=False)
    return any(x and m.value(x) == y for x, y in pairs)
