"""Which operands of a node hold indices that must be looked at, and what is known of them before they are there.

What the shapes prove needs nothing. An index that is known at build time, be it a number or an expression over sizes,
becomes a requirement of sizes; in the model's own graph, one that cannot hold is an error of the model. (In a body it
is one of the run that gets there, for a branch may be there to avoid it.) Others are checked by native code in each
run, or clamped by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.core.arith.bounds import Ranges, is_nonneg
from tilewright.core.arith.expr import IntExpr, as_var, const, product, var
from tilewright.core.index_ranges import IndexRange, OutOfRange, has_indices, index_ranges
from tilewright.core.plan import CheckStep, Requirement
from tilewright.graph_ir.fused.shape_program import SIZES
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value


@dataclass(frozen=True, slots=True)
class IndexUse:
    """A node's indices: the value that holds them, its shape, and what is allowed."""

    node: Node
    value: str
    shape: tuple[IntExpr, ...]
    allowed: IndexRange

    @property
    def where(self) -> str:
        return f"node {self.node.name!r} ({self.node.op})"

    @property
    def count(self) -> IntExpr:
        return product(self.shape if self.allowed.column is None else self.shape[:-1])

    def requirement(self, value: IntExpr | None, ranges: Ranges) -> Requirement | None:
        """That ``value`` is in range (None: that the range is not empty), unless that is certain for sizes in
        ``ranges``."""
        r = self.allowed
        pairs = ((r.low, r.high),) if value is None else ((r.low, value), (value, r.high))
        if all(is_nonneg(b - a, ranges) for a, b in pairs):
            return None
        return Requirement(value, r.low, r.high, self.count, self.where, r.what)

    def check(self, slot: str, worst: str) -> CheckStep:
        """The look at the elements, which lie in ``slot``."""
        r = self.allowed
        stride, offset = (1, 0) if r.column is None else (int(self.shape[-1]), r.column)
        return CheckStep(slot, worst, self.count, stride, offset, r.low, r.high, self.where, r.what)


def index_uses(node: Node, values: Mapping[str, Value]) -> tuple[IndexUse, ...]:
    """The indices that a node reads and whose range its operands' shapes tell."""
    if not has_indices(node.op, node.domain):
        return ()
    types = [values[i].type if i in values else None for i in node.inputs]
    shapes = [t.shape if isinstance(t, TensorType) else None for t in types]
    ranges = index_ranges(node.op, node.domain, dict(node.attrs), shapes)
    return tuple(
        IndexUse(node, node.inputs[r.operand], shape, r) for r in ranges if (shape := shapes[r.operand]) is not None
    )


def known_indices(
    use: IndexUse, values: Mapping[str, Value], constants: Mapping[str, Constant]
) -> tuple[IntExpr, ...] | None:
    """The indices that decide whether all are in range, if they are known before the run; None if they are not."""
    if use.value in constants:
        part = use.allowed.part(constants[use.value].array)
        return (const(int(part.min())), const(int(part.max()))) if part.size else ()
    data = values[use.value].data
    if data is None:
        return None
    if use.allowed.column is None:
        return tuple(dict.fromkeys(data))
    return tuple(dict.fromkeys(data[use.allowed.column :: int(use.shape[-1])]))


def unproved_indices(
    node: Node, values: Mapping[str, Value], constants: Mapping[str, Constant], mode: OutOfRange
) -> Iterator[IndexUse]:
    """The indices of a native node that each run must look at."""
    uses = index_uses(node, values)
    if uses and node.attr(SIZES) is None:  # what is asked for its sizes looks at them, too
        for use in uses:
            unchecked = mode == "clamp" and use.allowed.clamps
            if not unchecked and known_indices(use, values, constants) is None:
                yield use


def requirements(
    use: IndexUse, known: tuple[IntExpr, ...] | None, mode: OutOfRange, ranges: Ranges
) -> Iterator[Requirement]:
    """What must hold of sizes in ``ranges``: that known indices are in range, or that there is something to clamp
    to."""
    is_clamped = mode == "clamp" and use.allowed.clamps
    values: tuple[IntExpr | None, ...] = (None,) if is_clamped else (known or ())
    for value in values:
        if (r := use.requirement(value, ranges)) is not None:
            yield r


def limits(graph: Graph) -> Iterator[Requirement]:
    """That the sizes of inputs are in their ranges, each where it is read first."""
    places: dict[str, str] = {}
    for name in graph.inputs:
        of_type = graph.values[name].type
        for axis, d in enumerate((of_type.shape or ()) if isinstance(of_type, TensorType) else ()):
            if (symbol := as_var(d)) is not None:
                places.setdefault(symbol, f"input {name!r} axis {axis}")
    for symbol, low, high in graph.ranges:
        if symbol in places:
            yield Requirement(var(symbol), const(low), const(high), const(1), places[symbol], symbol)
