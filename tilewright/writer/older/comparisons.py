"""Comparisons, minima and maxima, bounds: of fewer element types, or from others that the opset has."""

from __future__ import annotations

import numpy as np

from tilewright.writer.forms import Form, Site


def or_equal(strict: str) -> Form:
    """GreaterOrEqual and LessOrEqual until 11: the strict comparison, or equality."""

    def form(s: Site) -> None:
        a, b = s.input(0), s.input(1)
        s.instead("Or", s.op(strict, a, b), s.op("Equal", a, b))

    return form


def equal(s: Site) -> None:
    """Until 10: of integers and bool only. Equal floats are neither less nor greater nor NaN."""
    a, b = s.input(0), s.input(1)
    if not s.is_float(a) or s.is_unknown(a):
        s.raw(a, b)
        return
    differ = s.op("Or", s.op("Less", a, b), s.op("Greater", a, b))
    s.instead("Not", s.op("Or", differ, s.op("Or", s.op("IsNaN", a), s.op("IsNaN", b))))


def extremum(comparison: str) -> Form:
    """Max and Min: until 11 of floats only, until 7 of operands of one shape."""

    def form(s: Site) -> None:
        operands = s.node.inputs
        if s.is_float(operands[0]) and (s.opset >= _BROADCASTS or _of_one_shape(s)):
            s.raw(*operands)
            return
        so_far = operands[0]
        for x in operands[1:-1]:
            so_far = s.op("Where", s.op(comparison, so_far, x), so_far, x)
        if len(operands) == 1:
            s.instead("Identity", so_far)
        elif s.is_float(so_far):
            raise s.refusal("operands of shapes that are not known to be the same")  # a NaN is handed on
        else:
            s.instead("Where", s.op(comparison, so_far, operands[-1]), so_far, operands[-1])

    return form


_BROADCASTS = 8


def _of_one_shape(s: Site) -> bool:
    types = {s.value(i).type for i in s.node.inputs}
    return len(types) == 1


def sums(s: Site) -> None:
    """Sum and Mean until 7: of operands of one shape; else Adds, which broadcast."""
    operands = s.node.inputs
    if s.opset >= _BROADCASTS or _of_one_shape(s):
        s.raw(*operands)
        return
    total = operands[0]
    for x in operands[1:-1]:
        total = s.op("Add", total, x)
    if s.node.op == "Sum":
        s.instead("Add", total, operands[-1])
    else:
        count = s.scalar(len(operands), s.dtype(total), "count")
        s.instead("Div", s.op("Add", total, operands[-1]), count)


def clip(s: Site) -> None:
    """Until 11: of floats only. Until 10: bounds were attributes, the largest numbers by default."""
    x, low, high = (s.input(i) for i in range(3))
    if s.opset >= _CLIP_OPERANDS and s.is_float(x):
        s.raw(x, low, high)
        return
    least, most = (_finite(s, b) for b in (low, high))
    if least is not None and most is not None and s.is_float(x):
        s.raw(x, min=least, max=most)
        return
    bounds = [(op, b) for op, b in (("Max", low), ("Min", high)) if b]
    if not bounds:
        s.instead("Identity", x)
        return
    for op, b in bounds[:-1]:
        x = s.op(op, x, b)
    s.instead(bounds[-1][0], x, bounds[-1][1])


_CLIP_OPERANDS = 11


def _finite(s: Site, bound: str) -> float | None:
    """A constant that an attribute holds; an infinite one is larger than what an absent attribute means."""
    array = s.constant(bound) if bound else None
    value = None if array is None else float(array.astype(np.float64).reshape(-1)[0])
    return value if value is not None and np.isfinite(value) and float(np.float32(value)) == value else None
