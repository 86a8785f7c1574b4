"""Operands that hold indices: which values each operator allows them, and what becomes of others.

An index outside its range names an element that is not there. ``error`` reports it; ``clamp`` takes the nearest element
that is there, where there is one. Some operators have a meaning for every integer and are not listed: OneHot gives its
off value, Slice cuts off. The ranges are those that onnxruntime enforces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, const, product
from tilewright.core.errors import InputError

OutOfRange: TypeAlias = Literal["error", "clamp"]
OUT_OF_RANGE: tuple[OutOfRange, ...] = ("error", "clamp")
Attrs: TypeAlias = Mapping[str, Any]
Shapes: TypeAlias = Sequence[Sequence[IntLike] | None]
"""Of each operand; None where it is absent or its rank is not known. The only dimension of a sequence is its length."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The elements of ``operand`` lie in ``low .. high``, both included; with a ``column`` only those that stand there
    in the last dimension. ``what`` they are called in messages. ``clamps`` False: no element is near to what they
    name."""

    operand: int
    low: IntExpr
    high: IntExpr
    what: str = "indices"
    column: int | None = None
    clamps: bool = True

    def part(self, array: np.ndarray) -> np.ndarray:
        """What of the operand the range is for; a view."""
        return array if self.column is None else array[..., self.column]


def out_of_range(where: str, what: str, low: int, high: int, got: object) -> str:
    """The message."""
    return f"{where}: expected {what} in [{low}, {high}]{', which is empty' if high < low else ''}, got {got}"


def has_indices(op: str, domain: str) -> bool:
    """True for operators of which an operand may hold indices."""
    return op in _RULES and domain in ("", "ai.onnx")


def index_ranges(op: str, domain: str, attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    """The ranges of an operator's operands; none where a shape they follow from is not known."""
    return _RULES[op](attrs, shapes) if has_indices(op, domain) else ()


def first_outside(op: str, domain: str, attrs: Attrs, operands: Sequence[object]) -> tuple[IndexRange, int] | None:
    """A range that an operand does not keep to, and the value that shows it; None if there is none.

    Of several values it is the one that native checks find, too: the greatest below the range, else the greatest.
    """
    for r in _of_values(op, domain, attrs, operands):
        part = r.part(np.asarray(operands[r.operand]))
        if part.size:
            below = part[part < r.low.const]
            value = int((below if below.size else part).max())
            if not r.low.const <= value <= r.high.const:
                return r, value
    return None


def checked_operands(
    where: str, mode: OutOfRange, op: str, domain: str, attrs: Attrs, operands: Sequence[object]
) -> Sequence[object]:
    """The operands to compute with. Raises InputError for an index that is outside, and is not to be, or cannot be,
    clamped."""
    found = first_outside(op, domain, attrs, operands)
    if found is None:
        return operands
    r, value = found
    if mode == "error" or not r.clamps or r.high.const < r.low.const:
        raise InputError(out_of_range(where, r.what, r.low.const, r.high.const, value))
    out = list(operands)
    for r in _of_values(op, domain, attrs, operands):
        array = np.array(out[r.operand])
        part = r.part(array)
        np.clip(part, r.low.const, r.high.const, out=part)
        out[r.operand] = array
    return out


def _of_values(op: str, domain: str, attrs: Attrs, operands: Sequence[object]) -> tuple[IndexRange, ...]:
    """The ranges of operands that are arrays; a sequence in the place of one is refused by the operator itself."""
    if not has_indices(op, domain):
        return ()
    ranges = index_ranges(op, domain, attrs, [_shape(x) for x in operands])
    return tuple(r for r in ranges if not isinstance(operands[r.operand], list))


def _shape(x: object) -> tuple[int, ...] | None:
    if x is None:
        return None
    return (len(x),) if isinstance(x, list) else np.asarray(x).shape


# -- the operators ---------------------------------------------------------------------------------------------------
def _wrapping(operand: int, size: IntLike, column: int | None = None) -> IndexRange:
    """Negative indices count from the end."""
    n = as_expr(size)
    return IndexRange(operand, -n, n - 1, "indices", column)


def _along_axis(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data = shapes[0]
    if not data:
        return ()
    return (_wrapping(1, data[int(attrs.get("axis") or 0)]),)


def _of_places(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data, where = shapes[0], shapes[1]
    depth = as_expr(where[-1]).value() if where else None
    if data is None or depth is None:
        return ()
    batch = int(attrs.get("batch_dims") or 0)
    return tuple(_wrapping(1, data[batch + k], k) for k in range(min(depth, len(data) - batch)))


def _lengths(operand: int, axis: Callable[[Attrs], int]) -> Callable[[Attrs, Shapes], tuple[IndexRange, ...]]:
    def rule(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
        data = shapes[0]
        if data is None or operand >= len(shapes) or shapes[operand] is None:
            return ()
        return (IndexRange(operand, const(0), as_expr(data[axis(attrs)]), "sequence lengths"),)

    return rule


def _batches(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data = shapes[0]
    return () if data is None else (IndexRange(2, const(0), as_expr(data[0]) - 1, "batch indices"),)


def _unpooled(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data = shapes[0]
    if data is None:
        return ()
    total = product(unpooled_shape(attrs, data))
    return (IndexRange(1, const(0), total - 1, "positions"),)


def unpooled_shape(attrs: Attrs, shape: Sequence[IntLike]) -> list[IntExpr]:
    """The shape in which MaxUnpool counts its positions: what the pooling without explicit output shape came from."""
    kernel = attrs.get("kernel_shape") or ()
    n = len(kernel)
    strides = attrs.get("strides") or (1,) * n
    pads = attrs.get("pads") or (0,) * (2 * n)
    dims = [as_expr(d) for d in shape]
    return [*dims[:2], *((dims[2 + k] - 1) * strides[k] + kernel[k] - pads[k] - pads[n + k] for k in range(n))]


def _writes(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    cache, update = shapes[0], shapes[1]
    if cache is None or update is None or len(shapes) < 3 or shapes[2] is None:
        return ()
    if attrs.get("mode", "linear") == "circular":
        return (IndexRange(2, const(0), const(_MOST), "write indices"),)
    axis = int(attrs.get("axis", -2))
    return (IndexRange(2, const(0), as_expr(cache[axis]) - update[axis], "write indices"),)


def _axes(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data = shapes[0]
    if data is None or len(shapes) < 2 or shapes[1] is None:
        return ()
    return (IndexRange(1, const(-len(data)), const(len(data) - 1), "axes", clamps=False),)


def _new_axes(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
    data, axes = shapes[0], shapes[1]
    if data is None or axes is None:
        return ()
    rank = product(axes) + len(data)
    return (IndexRange(1, -rank, rank - 1, "axes", clamps=False),)


def _of_sequence(extra: int, operand: int) -> Callable[[Attrs, Shapes], tuple[IndexRange, ...]]:
    def rule(attrs: Attrs, shapes: Shapes) -> tuple[IndexRange, ...]:
        items = shapes[0]
        if items is None or operand >= len(shapes) or shapes[operand] is None:
            return ()
        n = as_expr(items[0])
        return (IndexRange(operand, -n, n - 1 + extra, "positions"),)

    return rule


def _time(attrs: Attrs) -> int:
    return 1 if attrs.get("layout") else 0


_MOST = (1 << 61) - 1
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_RULES: Mapping[str, Callable[[Attrs, Shapes], tuple[IndexRange, ...]]] = {
    "Gather": _along_axis, "GatherElements": _along_axis, "ScatterElements": _along_axis, "Scatter": _along_axis,
    "GatherND": _of_places, "ScatterND": _of_places,
    "ReverseSequence": _lengths(1, lambda attrs: int(attrs.get("time_axis") or 0)),
    "LSTM": _lengths(4, _time), "GRU": _lengths(4, _time), "RNN": _lengths(4, _time),
    "CumSum": _axes, "CumProd": _axes, "Squeeze": _axes, "Unsqueeze": _new_axes,
    **{f"Reduce{k}": _axes for k in _REDUCTIONS},
    "RoiAlign": _batches, "MaxUnpool": _unpooled, "TensorScatter": _writes,
    "SequenceAt": _of_sequence(0, 1), "SequenceErase": _of_sequence(0, 1), "SequenceInsert": _of_sequence(1, 2),
}  # fmt: skip
