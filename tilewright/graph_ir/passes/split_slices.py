"""Slices of one value along one axis that lie beside each other become one Split.

    Slice(x, 0:2), Slice(x, 2:5), Slice(x, 5:)  ==  Split(x, [2, 3, rest])

Of an axis of known size, what no Slice takes is a part that nobody reads; it may not be more than what is read. An axis
of an open size is split into equal parts, if the bounds are proved to be those: ``x[:n], x[n:]`` of ``2*n``. For files:
kernels read a Slice where it lies, and a Split is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.arith.expr import ZERO, IntExpr, as_expr
from tilewright.graph_ir.ir import Attribute, Graph, Node
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import known_elements, known_ints, tensor_shape

_END = 1 << 31
"""From here on a bound means the end of any axis."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What ``node`` takes of an axis: from ``start`` to ``end``."""

    node: Node
    start: IntExpr
    end: IntExpr


def split_slices(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with a Split in the place of Slices beside each other."""
    slices: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "Slice" and not node.domain:
            slices.setdefault(node.inputs[0], []).append(node)
    if all(len(nodes) < 2 for nodes in slices.values()):
        return graph
    ed = GraphEditor(graph, ctx)
    for nodes in slices.values():
        current = [n for old in nodes if (n := ed.producer(old.outputs[0])) is not None]
        x = current[0].inputs[0]
        shape = tensor_shape(ed.value(x))
        if len(current) < 2 or shape is None:
            continue
        along: dict[int, list[_Part]] = {}
        for node in current:
            found = _part(ed, node, shape)
            if found is not None:
                along.setdefault(found[0], []).append(found[1])
        for axis, parts in along.items():
            if len(parts) > 1:
                _split(ed, x, axis, shape[axis], parts)
    return ed.finish()


def _part(ed: GraphEditor, node: Node, shape: Sequence[IntExpr]) -> tuple[int, _Part] | None:
    """The one axis along which a Slice takes a part in steps of 1, and the part; None if that is not for certain."""
    starts, ends = (known_elements(ed, i) for i in node.inputs[1:3])
    axes = known_ints(ed, node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else (0,)
    steps = known_ints(ed, node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] else (1,)
    if starts is None or ends is None or axes is None or len(axes) != 1 or len(starts) != 1 or steps != (1,):
        return None
    axis = axes[0] % len(shape)
    start, end = _place(starts[0], shape[axis]), _place(ends[0], shape[axis])
    if start is None or end is None or not is_nonneg(end - start, {}):
        return None
    return axis, _Part(node, start, end)


def _place(bound: IntExpr, size: IntExpr) -> IntExpr | None:
    """Where a bound is on an axis, counted from its front; None if that depends on the size."""
    number, whole = bound.value(), size.value()
    if number is None:
        at = bound
    elif abs(number) >= _END:
        at = size if number > 0 else ZERO
    elif whole is not None:
        at = as_expr(min(max(number + whole if number < 0 else number, 0), whole))
    else:
        at = size + number if number < 0 else bound
    return at if is_nonneg(at, {}) and is_nonneg(size - at, {}) else None


def _split(ed: GraphEditor, x: str, axis: int, size: IntExpr, parts: Sequence[_Part]) -> None:
    found = _known_parts(size.const, parts) if size.is_const else _equal_parts(size, parts)
    first = parts[0].node
    if isinstance(found, str):
        if found:
            ed.ctx.log.refuse("split_slices", first.name, found)
        return
    ed.set_anchor(min(ed.node_id(p.node) for p in parts))
    attrs: dict[str, Attribute] = {"axis": axis}
    inputs = [x]
    if size.is_const:
        sizes = np.array([end - start for start, end, _ in found], np.int64)
        inputs.append(ed.add_constant(sizes, f"{first.outputs[0]}.sizes"))
    else:
        attrs["num_outputs"] = len(found)
    outs = ed.add("Split", inputs, attrs, hint=first.outputs[0], n_outputs=len(found))
    old = {p.node.outputs[0]: out for (_, _, p), out in zip(found, outs, strict=True) if p is not None}
    ed.replace_all_uses(old)
    ed.drop_if_dead(*old)
    ed.ctx.log.fire("split_slices", first.name)


def _known_parts(size: int, parts: Sequence[_Part]) -> list[tuple[int, int, _Part | None]] | str:
    """Start, end and Slice (None: nobody reads it) of consecutive parts of an axis, which are as many Slices as do not
    overlap."""
    out: list[tuple[int, int, _Part | None]] = []
    at = read = 0
    for start, end, part in sorted(((p.start.const, p.end.const, p) for p in parts), key=lambda p: (p[1], p[0])):
        if start < at or start == end:
            continue
        if start > at:
            out.append((at, start, None))
        out.append((start, end, part))
        at, read = end, read + end - start
    if at < size:
        out.append((at, size, None))
    if sum(p is not None for _, _, p in out) < 2:
        return "the slices overlap"
    return "more would be copied for nobody than is read" if size - read > read else out


def _equal_parts(size: IntExpr, parts: Sequence[_Part]) -> list[tuple[int, int, _Part | None]] | str:
    """All Slices, in the order in which they follow each other, if they are equal parts of the whole axis."""
    out: list[_Part] = []
    at: IntExpr = ZERO
    while at != size and len(out) < len(parts):
        following = next((p for p in parts if p.start == at and p.end != at), None)
        if following is None:
            return f"parts of {size} leave a gap at {at}"
        out.append(following)
        at = following.end
    if at != size or any(p.end - p.start != out[0].end for p in out):
        return f"{size} is not split into equal parts"
    return [(0, 0, p) for p in out] if len(out) > 1 else ""


SPLIT_SLICES = Pass("split_slices", Level.EXTENDED, Exactness.BIT_EXACT, split_slices)
