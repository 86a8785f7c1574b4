"""``graph_stats``: what is in a graph, counted. Sizes that depend on dimension symbols are formulas of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import ZERO, IntExpr, ceildiv, product
from tilewright.core.console import bytes_text, table
from tilewright.core.dtypes import DType, from_name, from_numpy
from tilewright.edit.differences.changes import NodeRef, constant_type
from tilewright.edit.multiply_adds import multiply_adds
from tilewright.graph_ir.ir import Constant, Graph, TensorType, node_reads, walk_graphs

_LARGEST = 10
"""Weights that are told by name."""
_NAMED = 20
"""Nodes of one kind that text names."""


@dataclass(frozen=True, slots=True)
class OperatorCount:
    """Nodes of an operator, and their multiply-adds, those that have a formula."""

    operator: str
    nodes: int
    multiply_adds: IntExpr


@dataclass(frozen=True, slots=True)
class Parameters:
    """Constants of an element type. ``bytes``: as in a file, where several narrow elements share one; of text, none."""

    dtype: DType
    tensors: int
    elements: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant: ``type`` is ``float32[64, 3, 7, 7]``."""

    name: str
    type: str
    bytes: int


@dataclass(frozen=True, slots=True)
class GraphStats:
    """What is in a graph and its subgraphs; each subgraph counts once, however often it runs.

    ``inputs``, ``outputs``: names and types. ``operators``: the most frequent first. ``depth``: nodes of the longest
    chain of the outermost graph. ``multiply_adds``: of all nodes but the ``uncounted``, whose operators or shapes tell
    nothing. ``activation_bytes``: of all results of known shape; ``peak_bytes``: of those that live at once
    when the outermost graph runs node by node, in its order, each result in memory of its own; None where a shape is
    not known in numbers. ``largest``: the largest weights. ``untyped``: nodes with a result of unknown shape.
    """

    name: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    nodes: int
    subgraphs: int
    depth: int
    operators: tuple[OperatorCount, ...]
    parameters: tuple[Parameters, ...]
    multiply_adds: IntExpr
    uncounted: tuple[NodeRef, ...]
    activation_bytes: IntExpr
    peak_bytes: int | None
    largest: tuple[Weight, ...]
    untyped: tuple[NodeRef, ...]

    @property
    def parameter_count(self) -> int:
        """Elements of all constants."""
        return sum(p.elements for p in self.parameters)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(p.bytes for p in self.parameters)

    def __str__(self) -> str:
        inside = f", in {self.subgraphs:,} subgraphs too" if self.subgraphs else ""
        peak = "" if self.peak_bytes is None else f", at most {_bytes(self.peak_bytes)} at once"
        lines = [
            f"{self.name}: {self.nodes:,} nodes{inside}; the longest chain {self.depth:,}",
            *(f"input {name}: {t}" for name, t in self.inputs),
            *(f"output {name}: {t}" for name, t in self.outputs),
            f"parameters: {self.parameter_count:,}, {_bytes(self.parameter_bytes)}",
            f"multiply-adds: {_number(self.multiply_adds)}",
            f"results: {_bytes(self.activation_bytes)}{peak}",
        ]
        rows = [(o.operator, f"{o.nodes:,}", _number(o.multiply_adds)) for o in self.operators]
        lines += ["", table(("operator", " nodes", " multiply-adds"), rows)]
        types = [(str(p.dtype), f"{p.tensors:,}", f"{p.elements:,}", _bytes(p.bytes)) for p in self.parameters]
        if types:
            lines += ["", table(("element type", " tensors", " elements", " bytes"), types)]
        if self.largest:
            lines += [
                "",
                table(("largest", "type", " bytes"), [(w.name, w.type, _bytes(w.bytes)) for w in self.largest]),
            ]
        lines += _named("without a count of multiply-adds", self.uncounted)
        lines += _named("with results of unknown shape", self.untyped)
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """All of it, as JSON has it: a formula is text, a number a number."""
        return {
            "name": self.name,
            "inputs": [{"name": name, "type": t} for name, t in self.inputs],
            "outputs": [{"name": name, "type": t} for name, t in self.outputs],
            "nodes": self.nodes,
            "subgraphs": self.subgraphs,
            "depth": self.depth,
            "operators": [
                {"operator": o.operator, "nodes": o.nodes, "multiply_adds": _json(o.multiply_adds)}
                for o in self.operators
            ],
            "parameters": [
                {"dtype": str(p.dtype), "tensors": p.tensors, "elements": p.elements, "bytes": p.bytes}
                for p in self.parameters
            ],
            "multiply_adds": _json(self.multiply_adds),
            "uncounted": [str(n) for n in self.uncounted],
            "activation_bytes": _json(self.activation_bytes),
            "peak_bytes": self.peak_bytes,
            "largest": [{"name": w.name, "type": w.type, "bytes": w.bytes} for w in self.largest],
            "untyped": [str(n) for n in self.untyped],
        }


def graph_stats(graph: Graph) -> GraphStats:
    """Count what is in a graph. No constant is read."""
    graphs = list(walk_graphs(graph))
    counts, sums = Counter[str](), dict[str, IntExpr]()
    uncounted, untyped, results = [], [], ZERO
    for g in graphs:
        for n in g.nodes:
            node = NodeRef(n.name, n.op, n.domain)
            work = multiply_adds(g, n)
            if work is None:
                uncounted.append(node)
            counts[node.operator] += 1
            sums[node.operator] = sums.get(node.operator, ZERO) + (ZERO if work is None else work)
            sizes = [_size(g, o) for o in n.outputs if o]
            if None in sizes:
                untyped.append(node)
            results = results + sum((s for s in sizes if s is not None), ZERO)
    constants = dict(_constants(graphs))
    weights = [Weight(k, constant_type(c), _stored_bytes(c)) for k, c in constants.items()]
    return GraphStats(
        graph.name,
        _typed(graph, graph.inputs),
        _typed(graph, graph.outputs),
        counts.total(),
        len(graphs) - 1,
        _depth(graph),
        tuple(OperatorCount(k, n, sums[k]) for k, n in sorted(counts.items(), key=lambda x: (-x[1], x[0]))),
        _parameters(list(constants.values())),
        sum(sums.values(), ZERO),
        tuple(uncounted),
        results,
        _peak(graph),
        tuple(sorted(weights, key=lambda w: (-w.bytes, w.name))[:_LARGEST]),
        tuple(untyped),
    )


def _typed(graph: Graph, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((x, str(graph.values[x].type) if x in graph.values else "unknown") for x in names)


def _constants(graphs: Sequence[Graph]) -> Iterator[tuple[str, Constant]]:
    """Constants by name; those in attributes by node and attribute."""
    for g in graphs:
        yield from g.constants.items()
        for n in g.nodes:
            yield from ((f"{n.name}.{k}", v) for k, v in n.attrs if isinstance(v, Constant))


def _parameters(constants: Collection[Constant]) -> tuple[Parameters, ...]:
    """By element type, that with most bytes first."""
    groups: dict[str, list[Constant]] = {}
    for c in constants:
        groups.setdefault(str(from_numpy(c.dtype)), []).append(c)
    found = [
        Parameters(from_name(k), len(cs), sum(c.size for c in cs), sum(map(_stored_bytes, cs)))
        for k, cs in groups.items()
    ]
    return tuple(sorted(found, key=lambda p: (-p.bytes, str(p.dtype))))


def _stored_bytes(c: Constant) -> int:
    return ceildiv(c.size * from_numpy(c.dtype).bits, 8).const


def _size(graph: Graph, name: str) -> IntExpr | None:
    """Bytes of a tensor in memory; None if its shape is not known, or if it is none."""
    value = graph.values.get(name)
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return None
    return product(value.type.shape) * value.type.dtype.itemsize


def _depth(graph: Graph) -> int:
    depths: dict[str, int] = {}
    for n in graph.nodes:
        own = 1 + max((depths.get(x, 0) for x in node_reads(n)), default=0)
        depths |= dict.fromkeys(n.outputs, own)
    return max(depths.values(), default=0)


def _peak(graph: Graph) -> int | None:
    """The most bytes of inputs and results that live at once: from when one is made to when it is last read."""
    last = {x: len(graph.nodes) for x in graph.outputs}
    for k, n in reversed(list(enumerate(graph.nodes))):
        for x in node_reads(n):
            last.setdefault(x, k)
    sizes = {x: _size(graph, x) for x in (*graph.inputs, *(o for n in graph.nodes for o in n.outputs if o))}
    known = {x: s.const for x, s in sizes.items() if s is not None and s.is_const}
    if len(known) < len(sizes):
        return None
    ends: dict[int, int] = {}
    for x, size in known.items():
        if x in last:
            ends[last[x]] = ends.get(last[x], 0) + size
    live = peak = sum(known[x] for x in graph.inputs)
    for k, n in enumerate(graph.nodes):
        live += sum(known[o] for o in n.outputs if o)
        peak = max(peak, live)
        live -= ends.get(k, 0) + sum(known[o] for o in n.outputs if o and o not in last)
    return peak


# -- text ----------------------------------------------------------------------------------------------------------
def _number(e: IntExpr) -> str:
    return f"{e.const:,}" if e.is_const else str(e)


def _bytes(e: IntExpr | int) -> str:
    """``97.5 MiB``; a formula as it is."""
    if isinstance(e, IntExpr):
        return bytes_text(e.const) if e.is_const else f"{e} bytes"
    return bytes_text(e)


def _json(e: IntExpr) -> int | str:
    return e.const if e.is_const else str(e)


def _named(what: str, nodes: Sequence[NodeRef]) -> list[str]:
    if not nodes:
        return []
    more = f", and {len(nodes) - _NAMED:,} more" if len(nodes) > _NAMED else ""
    return ["", f"{len(nodes):,} nodes {what}: {', '.join(map(str, nodes[:_NAMED]))}{more}"]
