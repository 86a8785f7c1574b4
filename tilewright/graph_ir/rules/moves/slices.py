"""Slices of slices as one, with exact bounds, and slices with a step that together are a SpaceToDepth.

``x[a:b:s][c:d:t]`` takes some positions of an axis of size ``n``. The bounds of the one Slice that takes the same are
found on a large ``n`` and proved on all: for a size that is not known, both forms are compared on every ``n`` up to a
limit from which on no bound, of either form, is cut off at an end of the axis any more. From there the positions grow
by the same amount with each ``s*t`` of ``n``, so two such periods that agree are followed by others that do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, known_ints, tensor_shape
from tilewright.reference.slicing import slice_ranges

_END = 1 << 31
_TO_END, _TO_START = (1 << 63) - 1, -(1 << 63) + 1
_MOST_SIZES = 4096
_MOST_ENDS = 64

Bounds: TypeAlias = tuple[int, int, int]
"""Start, end and step along one axis."""


def _taken(n: int, bounds: Bounds) -> range:
    start, end, step = bounds
    (positions,) = slice_ranges((n,), (None, [start], [end], [0], [step]))
    return positions


def _taken_twice(n: int, first: Bounds, second: Bounds) -> range:
    outer = _taken(n, first)
    inner = _taken(len(outer), second)
    if not inner:
        return range(0)
    step = outer.step * inner.step
    return range(outer[inner[0]], outer[inner[-1]] + (1 if step > 0 else -1), step)


def joined(n: int | None, first: Bounds, second: Bounds) -> Bounds | None:
    """Bounds of one Slice that takes what ``second`` takes of what ``first`` takes, for an axis of size ``n`` (None:
    of any size). None if no constants say it, or the bounds are too large to be tried."""
    step = first[2] * second[2]
    if abs(step) >= _END:
        return None
    sizes, furthest = [n or 0], _END
    if n is None:
        reach = [max((abs(v) for v in b[:2] if abs(v) < _END), default=0) for b in (first, second)]
        furthest = reach[0] + abs(first[2]) * (reach[1] + 1) + abs(step)
        sizes = [*range(min(4 * furthest + 2 * abs(step) + 1, _MOST_SIZES + 1))]
        if len(sizes) > _MOST_SIZES:
            return None
    want = {k: _taken_twice(k, first, second) for k in sizes}
    if not any(want.values()):
        return (0, 0, 1)
    for bounds in _candidates(sizes[-1], want[sizes[-1]], step):
        near = all(abs(v) <= furthest or abs(v) >= _END for v in bounds[:2])
        if near and all(_taken(k, bounds) == want[k] for k in (*sizes[:8], *sizes)):
            return bounds
    return None


def _candidates(n: int, positions: range, step: int) -> Iterator[Bounds]:
    if not positions:
        return
    last = positions[-1]
    beyond = range(last + 1, last + step + 1) if step > 0 else range(last - 1, last + step - 1, -1)
    ends = [_TO_END if step > 0 else _TO_START]
    ends += [e for e in beyond[:_MOST_ENDS] if e >= 0]
    ends += [e - n for e in beyond[:_MOST_ENDS] if e < n and (step < 0 or e >= 0) and e - n < 0]
    for start in (positions[0], positions[0] - n):
        for end in ends:
            yield (start, end, step)


def _bounds(m: Match, node: Node, rank: int) -> dict[int, Bounds] | None:
    """Axis -> bounds of a Slice; None if they are not all known numbers."""
    operands = [known_ints(m.editor, i) if i else None for i in node.inputs[1:]]
    starts, ends, axes, steps = [*operands, *(None for _ in range(4 - len(operands)))][:4]
    given = [bool(i) for i in node.inputs[1:]]
    if starts is None or ends is None or any(g and o is None for g, o in zip(given, operands, strict=True)):
        return None
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    return {a % rank: (s, e, t) for a, s, e, t in zip(axes, starts, ends, steps, strict=True)}


def _together(m: Match) -> dict[int, Bounds] | str:
    """Axis -> bounds of the one Slice, or why there is none."""
    shape = m.shape("x")
    if shape is None or not shape:
        return NOT_HERE
    first, second = _bounds(m, m.node("in"), len(shape)), _bounds(m, m.root, len(shape))
    if first is None or second is None:
        return "the bounds are known at run time only"
    out = dict(first)
    for axis, bounds in second.items():
        if axis not in first:
            out[axis] = bounds
            continue
        both = joined(shape[axis].value(), first[axis], bounds)
        if both is None:
            return f"no constant bounds say {_show(first[axis])}{_show(bounds)} of axis {axis} for all sizes"
        out[axis] = both
    return out


def _show(b: Bounds) -> str:
    start, end = ("" if abs(v) >= _END else str(v) for v in b[:2])
    return f"[{start}:{end}:{b[2]}]"


def _slices(m: Match) -> str | None:
    found = _together(m)
    return found if isinstance(found, str) else None


def _one_slice(m: Match) -> str:
    found = _together(m)
    return m.output if isinstance(found, str) else sliced(m, m["x"], found)


def sliced(m: Match, x: str, bounds: dict[int, Bounds]) -> str:
    """A Slice of value ``x`` with constant operands."""
    axes = sorted(bounds)
    columns = [list(c) for c in zip(*(bounds[a] for a in axes), strict=True)]
    starts, ends, steps = columns or ([], [], [])
    extra = [m.const(steps)] if any(s != 1 for s in steps) else []
    return m.op("Slice", x, m.const(starts), m.const(ends), m.const(axes), *extra)


# -- space to depth -------------------------------------------------------------------------------------------------
def _blocks(m: Match) -> tuple[str, list[tuple[int, int]], int] | str:
    """The image, the offsets of the joined slices in their order, and the step; or a reason."""
    ed, root = m.editor, m.root
    producers = [ed.producer(i) for i in root.inputs]
    nodes = [n for n in producers if n is not None and n.op == "Slice" and not n.domain]
    if len(nodes) != len(root.inputs) or len({n.inputs[0] for n in nodes}) != 1 or len(nodes) < 4:
        return NOT_HERE
    image, step = nodes[0].inputs[0], round(len(nodes) ** 0.5)
    shape = tensor_shape(ed.value(image))
    if shape is None or len(shape) != 4 or int_attr(root, "axis", 0) % 4 != 1 or step * step != len(nodes):
        return NOT_HERE
    offsets = []
    for node in nodes:
        bounds = _bounds(m, node, 4)
        if bounds is None or set(bounds) != {2, 3}:
            return NOT_HERE
        for axis, (start, end, by) in bounds.items():
            size = shape[axis].value()
            whole = end >= _END if size is None else _taken(size, (start, end, by)) == range(start, size, step)
            if by != step or not 0 <= start < step or not whole:
                return NOT_HERE
            if size is not None and size % step:
                return f"{size} is not divisible by {step}"
        offsets.append((bounds[2][0], bounds[3][0]))
    if len(set(offsets)) != len(offsets):
        return "a place of the block comes twice"
    if shape[1].value() is None and not _in_order(offsets):
        return f"the number of channels {shape[1]} is not known"
    return image, offsets, step


def _in_order(offsets: Sequence[tuple[int, int]]) -> bool:
    return list(offsets) == sorted(offsets)


def _is_space_to_depth(m: Match) -> str | None:
    found = _blocks(m)
    return found if isinstance(found, str) else None


def _space_to_depth(m: Match) -> str:
    found = _blocks(m)
    if isinstance(found, str):
        return m.output
    image, offsets, step = found
    out = m.op("SpaceToDepth", image, blocksize=step)
    if _in_order(offsets):
        return out
    channels = m.editor.value(image).shape[1].const
    blocks = np.arange(step * step * channels).reshape(step, step, channels)
    order = np.concatenate([blocks[i, j] for i, j in offsets])
    return m.op("Gather", out, m.const(order.tolist()), axis=1)


RULES: tuple[Rule, ...] = (
    Rule(
        "slice_slice",
        "Slice(Slice(x, a:b:s), c:d:t) --> Slice(x), with the bounds that take the same elements for all sizes",
        P("Slice", P("Slice", "x", rest=True, at="in"), rest=True),
        _one_slice,
        _slices,
    ),
    Rule(
        "space_to_depth",
        "Concat of x[:, :, i::b, j::b] for all i, j --> SpaceToDepth(x, b), and a Gather of channels for another order",
        P("Concat", rest=True),
        _space_to_depth,
        _is_space_to_depth,
    ),
)
