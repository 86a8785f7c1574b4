"""Operands that were attributes, so that they have to be known: axes, sizes, places, bounds."""

from __future__ import annotations

import numpy as np

from tilewright.writer.forms import NEGATIVE_AXES, Site


def require_ints(s: Site, i: int, what: str) -> tuple[int, ...]:
    """The elements of operand ``i``, which the old form has as an attribute. Raises Refused if the run gives them."""
    found = s.ints(s.input(i))
    if found is None:
        raise s.refusal(f"{what} that the run gives")
    return found


def normal_axes(s: Site, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of the first operand; until opset 10 they are counted from its front."""
    return tuple(a if a >= 0 or s.opset >= NEGATIVE_AXES else a + s.rank(s.input(0)) for a in axes)


def squeeze(s: Site) -> None:
    """Until 12: ``axes`` was an attribute."""
    if s.input(1):
        s.raw(s.input(0), axes=normal_axes(s, require_ints(s, 1, "axes")))
    else:
        s.raw(s.input(0))


def unsqueeze(s: Site) -> None:
    """Until 12: ``axes`` was an attribute; they count in the result."""
    axes = require_ints(s, 1, "axes")
    if s.opset < NEGATIVE_AXES and any(a < 0 for a in axes):
        rank = s.rank(s.input(0)) + len(axes)
        axes = tuple(a % rank for a in axes)
    s.raw(s.input(0), axes=axes)


def reduce(s: Site) -> None:
    """Until 12 (ReduceSum) or 17: ``axes`` was an attribute; none meant all."""
    axes = require_ints(s, 1, "axes") if s.input(1) else ()
    if not axes and s.node.attr("noop_with_empty_axes"):
        _reduce_nothing(s)
        return
    s.raw(s.input(0), axes=normal_axes(s, axes) or None, drop=("noop_with_empty_axes",))


def _reduce_nothing(s: Site) -> None:
    """What a reduction does to each element by itself."""
    x = s.input(0)
    match s.node.op:
        case "ReduceL1" | "ReduceL2":
            s.instead("Abs", x)
        case "ReduceSumSquare":
            s.instead("Mul", x, x)
        case "ReduceLogSum":
            s.instead("Log", x)
        case _:
            s.instead("Identity", x)


def slice_(s: Site) -> None:
    """Until 9: starts, ends and axes were attributes; steps were 1."""
    starts, ends = require_ints(s, 1, "starts"), require_ints(s, 2, "ends")
    axes = normal_axes(s, require_ints(s, 3, "axes")) if s.input(3) else None
    if s.input(4) and any(step != 1 for step in require_ints(s, 4, "steps")):
        raise s.refusal("steps other than 1")
    s.raw(s.input(0), starts=starts, ends=ends, axes=axes)


def split(s: Site) -> None:
    """Until 17: without sizes, equal parts as many as there are outputs. Until 12: sizes were an attribute."""
    x, count = s.input(0), s.node.attr("num_outputs")
    if s.input(1):
        if s.opset >= _SPLIT_SIZES:
            s.raw(x, s.input(1))
        else:
            s.raw(x, split=require_ints(s, 1, "sizes"))
        return
    axis = int(s.number("axis", 0))
    size = s.value(x).shape[axis % s.rank(x)].value() if s.is_ranked(x) else None
    if not isinstance(count, int) or (size is not None and size % count == 0):
        s.raw(x, drop=("num_outputs",))
    elif size is not None:
        part = -(-size // count)
        sizes = tuple(max(0, min(part, size - k * part)) for k in range(count))
        if s.opset >= _SPLIT_SIZES:
            s.raw(x, s.const(np.array(sizes, np.int64), "sizes"), drop=("num_outputs",))
        else:
            s.raw(x, split=sizes, drop=("num_outputs",))
    elif s.terms.file_opset < _UNEQUAL_PARTS:
        s.raw(x, drop=("num_outputs",))  # the file means equal parts
    elif s.opset >= _SPLIT_SIZES:
        s.raw(x, _parts(s, x, axis % s.rank(x), count), drop=("num_outputs",))
    else:
        raise s.refusal("parts of which the last may be smaller, of a size that the run gives")


_SPLIT_SIZES, _UNEQUAL_PARTS = 13, 18


def _parts(s: Site, x: str, axis: int, count: int) -> str:
    """Sizes of ``count`` parts, equal but for the last: ``n = (size + count - 1) / count``."""
    size = s.op("Gather", s.op("Shape", x), s.const(np.array([axis], np.int64), "axis"), axis=0)
    whole = s.const(np.array([count], np.int64), "count")
    part = s.op("Div", s.op("Add", size, s.const(np.array([count - 1], np.int64), "round_up")), whole)
    last = s.op("Sub", size, s.op("Mul", part, s.const(np.array([count - 1], np.int64), "others")))
    return s.op("Concat", *[part] * (count - 1), last, axis=0)


def pad(s: Site) -> None:
    """Until 17: no axes. Until 10: pads and value were attributes."""
    mode = s.text("mode", "constant")
    if mode == "wrap" and s.opset < _WRAPS:
        raise s.refusal("mode wrap")
    if s.opset >= _PAD_OPERANDS:
        if s.opset >= _PAD_AXES:
            s.raw(*s.node.inputs)
        else:
            s.raw(s.input(0), _all_pads(s), s.input(2))
        return
    x, pads = s.input(0), s.input(1)
    if s.input(3):
        pads = _all_pads(s)
    known = s.ints(pads)
    if known is None:
        raise s.refusal("pads that the run gives")
    value = s.constant(s.input(2)) if s.input(2) else np.zeros(1)
    if value is None:
        raise s.refusal("a value that the run gives")
    fill = float(np.asarray(value, np.float64).reshape(-1)[0])
    if not _is_float32(fill):
        raise s.refusal("a value that is no float32 number")
    s.raw(x, pads=known, value=fill if mode == "constant" and fill else None)


_PAD_OPERANDS, _PAD_AXES, _WRAPS = 11, 18, 19


def _all_pads(s: Site) -> str:
    """Pads of all axes of the operand."""
    pads, axes = s.input(1), s.input(3)
    if not axes:
        return pads
    rank = s.rank(s.input(0))
    places = [a % rank for a in require_ints(s, 3, "axes")]
    known = s.ints(pads)
    if known is not None:
        every = np.zeros((2, rank), np.int64)
        for k, a in enumerate(places):
            every[:, a] = known[k], known[k + len(places)]
        return s.const(every.reshape(-1), "pads")
    index = {a: k for k, a in enumerate(places)}
    zero = s.const(np.zeros(1, np.int64), "no_pad")
    wide = s.op("Concat", pads, zero, axis=0)
    order = [index[a] + side * len(places) if a in index else 2 * len(places) for side in (0, 1) for a in range(rank)]
    return s.op("Gather", wide, s.const(np.array(order, np.int64), "places"), axis=0)


def top_k(s: Site) -> None:
    """Until 10: the largest, sorted. Until 9: ``k`` was an attribute."""
    x, k = s.input(0), s.input(1)
    values, indices = (*s.node.outputs, "")[:2]
    smallest = not s.number("largest", 1)
    if smallest:
        x, values = s.op("Neg", x), s.like(s.input(0), "negative") if values else ""
    made = values or s.like(x, "values"), indices or s.body.names.fresh(f"{s.node.name}_indices")
    axis, drop = int(s.number("axis", -1)), ("largest", "sorted")
    if s.opset >= _TOP_K_OPERAND:
        s.raw(x, k, outputs=made, drop=drop, axis=axis)
    else:
        s.raw(x, outputs=made, drop=drop, axis=axis, k=require_ints(s, 1, "k")[0])
    if smallest and s.node.outputs[0]:
        s.to(s.node.outputs[:1], "Neg", values)


_TOP_K_OPERAND = 10


def dft(s: Site) -> None:
    """Until 19: the axis was an attribute, 1 by default."""
    axis = s.ints(s.input(2)) if s.input(2) else (-2,)
    if axis is None:
        raise s.refusal("an axis that the run gives")
    s.raw(s.input(0), s.input(1), axis=normal_axes(s, axis)[0])


def _is_float32(x: float) -> bool:
    return x != x or float(np.float32(x)) == x
