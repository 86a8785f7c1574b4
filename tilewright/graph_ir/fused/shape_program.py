"""The shape program: where sizes that the run must find come from, and when.

Sizes that depend on the contents of operands are asked for before the node runs (:mod:`..data_dependent_shapes`).
Some of them follow from the sizes of the inputs alone, by arithmetic that no expression holds (floats, truncation).
``Value.data`` follows shape arithmetic over integers. A scale ``256 / min(H, W)`` as a float leaves it, and so do the
sizes of what it resizes. But no contents of an input are read, so all of that can be worked out when the inputs' sizes
are known, once for each set of them, before any native code runs. The rest of the graph then is native code in one
piece, and nodes of such sizes fuse like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, product
from tilewright.graph_ir.data_dependent_shapes import is_sized_by_operands, shape_symbols, slice_places
from tilewright.graph_ir.ir import Attribute, Graph, Node, TensorType, Value
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext, visible_values

RUNS = "runs"
"""Attribute of a node that does not run with the others (ours): ``once`` for each set of input sizes, or ``never``,
since its readers take its elements as expressions."""

SIZES = "sizes"
"""Attribute of a node whose results have sizes that its operands tell (ours): ``early``, before anything runs, or
``late``, when the operands are there."""

BEGIN = "begin"
"""Attribute of a Slice of such sizes (ours): for each dimension the symbol of the first element's place, or ""."""

_MOST_ELEMENTS = 64


def shape_program(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with the attributes ``runs``, ``sizes`` and ``begin``."""
    whole = graph.replace(values=visible_values(graph, ctx))
    early = early_sizes(whole)
    nodes = []
    for node in graph.nodes:
        marks: dict[str, Attribute] = {}
        if node.name in early.nodes:
            marks[RUNS] = "once"
        if is_sized(node, whole.values):
            marks[SIZES] = "early" if node.name in early.sized else "late"
            if node.op == "Slice":
                marks[BEGIN] = tuple(map(_written, slice_places(node, whole.values)[0]))
        for what in marks:
            ctx.log.fire(f"{what}: {marks[what]}" if what != BEGIN else what, node.name)
        nodes.append(node.with_attrs(**marks) if marks else node)
    return graph.replace(nodes=tuple(nodes))


def _written(first: IntExpr) -> str:
    return "" if first.is_const else str(first)


@dataclass(frozen=True, slots=True)
class EarlySizes:
    """``nodes``: names of nodes to run once for each set of input sizes, in graph order. ``sized``: names of nodes
    whose results have sizes that follow from those."""

    nodes: tuple[str, ...] = ()
    sized: frozenset[str] = frozenset()


def early_sizes(graph: Graph) -> EarlySizes:
    """What of ``graph`` depends on the sizes of its inputs alone and is needed for the size of some result."""
    values = graph.values
    if not any(is_sized(n, values) for n in graph.nodes):
        return EarlySizes()
    known = {s for i in graph.inputs if i in values for s in shape_symbols(values[i])}
    early: dict[str, Node] = {}
    sized: list[Node] = []
    for node in graph.nodes:
        if _is_early(graph, node, early, known):
            early.update(dict.fromkeys(node.outputs, node))
        if is_sized(node, values) and all(
            i in early or i in graph.constants for i in (node.inputs[k] for k in contents(node)) if i
        ):
            shapes = [values[i] for i in node.inputs if i]
            if all(shape_symbols(v) <= known for v in shapes):
                sized.append(node)
                known |= {s for o in node.outputs if o for s in shape_symbols(values[o])}
    needed: set[str] = set()
    todo = [node.inputs[k] for node in sized for k in contents(node)]
    while todo:
        maker = early.get(todo.pop())
        if maker is not None and maker.name not in needed:
            needed.add(maker.name)
            todo.extend(() if op_def(maker).queries_shape else maker.inputs)
    return EarlySizes(tuple(n.name for n in graph.nodes if n.name in needed), frozenset(n.name for n in sized))


def is_sized(node: Node, values: Mapping[str, Value]) -> bool:
    """:func:`is_sized_by_operands`, False where a value is defined outside the graph."""
    return all(x in values for x in (*node.inputs, *node.outputs) if x) and is_sized_by_operands(node, values)


def contents(node: Node) -> tuple[int, ...]:
    """Positions of the operands whose contents a node with sizes known at run time takes its sizes from."""
    return tuple(k for k in op_def(node).shape_operands if k < len(node.inputs))


def _is_early(graph: Graph, node: Node, early: Mapping[str, Node], known: set[str]) -> bool:
    op = op_def(node)
    if op.kind is PatternKind.CONTROL or not op.deterministic or any(True for _ in node.subgraphs()):
        return False
    if any(not o or o in graph.outputs or not _is_small(graph.values.get(o)) for o in node.outputs):
        return False
    if op.queries_shape:
        v = graph.values.get(node.inputs[0])
        return (
            v is not None
            and isinstance(v.type, TensorType)
            and v.type.shape is not None
            and (shape_symbols(v) <= known)
        )
    return bool(node.inputs) and all(i in early or i in graph.constants for i in node.inputs if i)


def _is_small(value: Value | None) -> bool:
    if value is None or not isinstance(value.type, TensorType) or value.type.shape is None:
        return False
    count = product(value.type.shape).value()
    return value.type.dtype.kind in "iufb" and count is not None and count <= _MOST_ELEMENTS


SHAPE_PROGRAM = Pass("shape_program", Level.NONE, Exactness.BIT_EXACT, shape_program, required=True)
