"""``diff_graphs``: what is different in two graphs. Neither names nor the order of nodes make a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tilewright.edit.differences.alignment import common_subsequence
from tilewright.edit.differences.changes import GraphDiff, InterfaceChange, NodeChange, Rename
from tilewright.edit.differences.comparison import Comparison, origin, placed, ref
from tilewright.edit.differences.matching import NONE, match_nodes
from tilewright.edit.differences.sides import Ids, Side
from tilewright.edit.differences.types import DimensionNames, type_of, type_text
from tilewright.graph_ir.ir import Graph, TensorType

Pairs = list[tuple[int, int]]


def diff_graphs(a: Graph, b: Graph) -> GraphDiff:
    """What is in ``b`` and was not, or was different, in ``a``.

    Inputs and outputs stand for each other by name, then by place; nodes by what they compute and what is computed from
    them. Their names and order are no difference, nor is it whether a constant is shared or there twice; names that
    differ are in ``renamed``. A result of unknown type is of whatever type it has in the other graph. Subgraphs are
    compared in the same way, their inputs and outputs by place. All constants are read. Raises ModelError if a file
    that they are read from has changed.
    """
    ids = Ids()
    return _diff(Side(a, ids), Side(b, ids), None, ids, DimensionNames(), set())


def _diff(
    a: Side, b: Side, around: Mapping[str, str] | None, ids: Ids, dims: DimensionNames, compared: set[tuple[str, str]]
) -> GraphDiff:
    """``around``: what values of the graphs around ``a`` became; None: there are none. ``compared``: see Comparison."""
    by_name, known = around is None, set(dims.to_b)
    inputs = _paired(a, b, a.graph.inputs, b.graph.inputs, by_name)
    outputs = _paired(a, b, a.graph.outputs, b.graph.outputs, by_name)
    values = {x: around[x] for x in a.captures if x in around} if around is not None else {}
    values |= {a.graph.inputs[i]: b.graph.inputs[j] for i, j in inputs}
    m = match_nodes(a, b, values, outputs, ids)
    c = Comparison(m, ids, dims, compared)
    interface = [
        *_interface_changes(c, "input", a.graph.inputs, b.graph.inputs, inputs),
        *_interface_changes(c, "output", a.graph.outputs, b.graph.outputs, outputs),
    ]
    places = sorted((j, i) for i, j in m.pairs())
    pairs = [(a.nodes[i], b.nodes[j]) for j, i in places]
    results = {s: t for x, y in pairs for s, t in zip(x.outputs, y.outputs, strict=False) if s and t}
    inside = {**(around or {}), **values, **results}
    types = tuple(c.types(pairs, {x.name for x in interface if x.kind == "input" and x.old != x.new}))
    changed, inner_names = [], []
    for (j, i), (x, y) in zip(places, pairs, strict=True):
        inner = tuple(
            (k, _diff(a.inner[i][k], b.inner[j][k], inside, ids, dims, compared)) for k in a.inner[i] if k in b.inner[j]
        )
        change = NodeChange(ref(x), ref(y), c.attributes(x, y), c.operands(x, y), inner)
        if change:
            changed.append(change)
        else:
            inner_names += [r for _, d in inner for r in d.renamed]
    constants = tuple(c.constants())
    names = [] if a.graph.name == b.graph.name else [Rename("graph", a.graph.name, b.graph.name)]
    names += _renamed("input", a.graph.inputs, b.graph.inputs, inputs)
    names += _renamed("output", a.graph.outputs, b.graph.outputs, outputs)
    names += [Rename("dimension", s, t) for s, t in dims.to_b.items() if s != t and s not in known]
    return GraphDiff(
        (len(a.nodes), len(b.nodes)),
        len(pairs),
        tuple(interface),
        tuple(changed),
        constants,
        tuple(placed(b, j) for j, i in enumerate(m.to_a) if i == NONE),
        tuple(placed(a, i) for i, j in enumerate(m.to_b) if j == NONE),
        types,
        (*names, *c.renamed(pairs), *inner_names),
    )


# -- inputs and outputs --------------------------------------------------------------------------------------------
def _paired(a: Side, b: Side, old: Sequence[str], new: Sequence[str], by_name: bool) -> Pairs:
    """Places of inputs or outputs that stand for each other: of one name, of one kind in the same order, the rest."""
    there = {name: j for j, name in reversed(list(enumerate(new)))} if by_name else {}
    pairs = [(i, there.pop(name)) for i, name in enumerate(old) if name in there]
    left, right = _others(pairs, len(old), len(new))
    kinds = [_kind(a, old[i]) for i in left], [_kind(b, new[j]) for j in right]
    pairs += [(left[x], right[y]) for x, y in common_subsequence(*kinds)]
    return pairs + list(zip(*_others(pairs, len(old), len(new)), strict=False))


def _others(pairs: Pairs, count_a: int, count_b: int) -> tuple[list[int], list[int]]:
    taken_a, taken_b = {i for i, _ in pairs}, {j for _, j in pairs}
    return [i for i in range(count_a) if i not in taken_a], [j for j in range(count_b) if j not in taken_b]


def _kind(side: Side, name: str) -> str:
    """Element type and rank, which a change of sizes leaves."""
    t = type_of(side.graph, name)
    if isinstance(t, TensorType) and t.shape is not None:
        return f"{t.dtype} {len(t.shape)}"
    return type_text(t)


def _interface_changes(
    c: Comparison, kind: Literal["input", "output"], old: Sequence[str], new: Sequence[str], pairs: Pairs
) -> list[InterfaceChange]:
    left, right = _others(pairs, len(old), len(new))
    ranks_a = {i: k for k, i in enumerate(sorted(i for i, _ in pairs))}
    ranks_b = {j: k for k, j in enumerate(sorted(j for _, j in pairs))}
    found = []
    for i, j in sorted(pairs, key=lambda p: p[1]):
        s, t = type_of(c.a.graph, old[i]), type_of(c.b.graph, new[j])
        source = None if kind == "input" or c.is_same(old[i], new[j]) else (origin(c.a, old[i]), origin(c.b, new[j]))
        if not c.dims.are_equal(s, t) or ranks_a[i] != ranks_b[j] or source is not None:
            texts = type_text(s), type_text(t)
            found.append(InterfaceChange(kind, new[j], *texts, ranks_a[i], ranks_b[j], source))
    found += [InterfaceChange(kind, new[j], None, type_text(type_of(c.b.graph, new[j])), None, j) for j in right]
    return found + [InterfaceChange(kind, old[i], type_text(type_of(c.a.graph, old[i])), None, i, None) for i in left]


def _renamed(kind: Literal["input", "output"], old: Sequence[str], new: Sequence[str], pairs: Pairs) -> list[Rename]:
    return [Rename(kind, old[i], new[j]) for i, j in sorted(pairs) if old[i] != new[j]]
