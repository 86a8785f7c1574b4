"""DFT and STFT by their definition: sums over the samples, with the N-th roots of unity in a table or stage.

Formulas: the ONNX operator pages. A one-sided inverse has each frequency but the first (and the middle one) twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_expr, const
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.core.limits import require_makeable
from tilewright.lowering.context import Lower, LowerContext, wide
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, op, select, sum_over

Roots = Callable[[IntExpr], tuple[Val, Val]]


def _roots(c: LowerContext, n: IntExpr, real: DType) -> Roots:
    """``(cos, sin)`` of ``2 pi j / n``."""
    known = n.value()
    if known == 0:
        return lambda j: (constant(1, real), constant(0, real))
    if known is not None:
        require_makeable(c.where, "a table of roots of unity", known * 2 * np.dtype(np.float64).itemsize)
        angles = 2 * math.pi * np.arange(known) / known
        cos, sin = (c.table(f(angles).astype(real.numpy), name) for f, name in ((np.cos, "cos"), (np.sin, "sin")))
        return lambda j: (cos[j % n], sin[j % n])

    def angle(j: IntExpr) -> Val:
        return index_value(j).cast(real) * (2 * math.pi) / index_value(n).cast(real)

    table = {f: c.stage(compute(c.name(f), (n,), lambda j, f=f: op(f, angle(j)))) for f in ("cos", "sin")}
    return lambda j: (table["cos"][j % n], table["sin"][j % n])


def _imaginary(x: Tensor, at: tuple[IntExpr, ...], real: DType) -> Val | None:
    """The second number of a sample, None where there is one only; ``at``: the place in the other dims."""
    parts = x.shape[-1]
    if parts == 1:
        return None
    v = x[(*at, minimum(parts - 1, 1))].cast(real)
    return v if parts.is_const else select(index_value(parts).equal(1), constant(0, real), v)


def lower_dft(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    axis = normal_axis((c.constant_ints(2, "axis") or [-2])[0], x.ndim, c.where)
    inverse, onesided = c.attr_int("inverse", 0), c.attr_int("onesided", 0)
    real = wide(out.dtype)
    length = out.shape[axis]
    if onesided and not inverse:
        given = c.elements(1)
        if c.has_input(1) and given is None:
            raise c.unsupported("dft_length (input 1) must be known at build time")
        length = x.shape[axis] if given is None else given[0]
    half = bool(onesided and inverse)
    count = minimum(x.shape[axis], length // 2 + 1 if half else length)
    roots = _roots(c, length, real)
    k = c.axis(count, "n")

    def term(*i: IntExpr) -> Val:
        cos, sin = roots(k.index * i[axis])
        sin = sin if inverse else -sin
        at = tuple(k.index if d == axis else e for d, e in enumerate(i[:-1]))
        a, b = x[(*at, const(0))].cast(real), _imaginary(x, at, real)
        if half:
            edge = index_value(k.index).equal(0) | index_value(k.index * 2).equal(index_value(length))
            both = a * cos if b is None else a * cos - b * sin
            return both * select(edge, constant(1, real), constant(2, real))
        imaginary = index_value(i[-1]).equal(1)
        if b is None:
            return a * select(imaginary, sin, cos)
        return select(imaginary, a * sin + b * cos, a * cos - b * sin)

    names = axis_names(x.ndim)
    total = c.stage(compute(c.name("dft_sum"), out.shape, lambda *i: sum_over(term(*i), k), axis_names=names))

    def scaled(*i: IntExpr) -> Val:
        v = total[i]
        return (v / index_value(length).cast(real) if inverse else v).cast(out.dtype)

    return (compute(c.name("dft"), out.shape, scaled, axis_names=names),)


def lower_stft(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    step, given = c.elements(1), c.elements(3)
    if step is None or (c.has_input(3) and given is None):
        raise c.unsupported("frame_step (input 1) and frame_length (input 3) must be known at build time")
    length = given[0] if given is not None else c.input(2).shape[0] if c.has_input(2) else x.shape[1]
    real = wide(out.dtype)
    roots = _roots(c, as_expr(length), real)
    n = c.axis(length, "n")

    def term(b: IntExpr, frame: IntExpr, bin_: IntExpr, part: IntExpr) -> Val:
        cos, sin = roots(n.index * bin_)
        at = frame * step[0] + n.index
        imaginary = index_value(part).equal(1)
        a = (x[b, at] if x.ndim == 2 else x[b, at, const(0)]).cast(real)
        w = None if x.ndim == 2 else _imaginary(x, (b, at), real)
        if c.has_input(2):
            a = a * c.input(2)[n.index].cast(real)
        if w is None:
            return a * select(imaginary, -sin, cos)
        w = w * c.input(2)[n.index].cast(real) if c.has_input(2) else w
        return select(imaginary, w * cos - a * sin, a * cos + w * sin)

    names = axis_names(4)
    total = c.stage(compute(c.name("stft_sum"), out.shape, lambda *i: sum_over(term(*i), n), axis_names=names))
    return (compute(c.name("stft"), out.shape, lambda *i: total[i].cast(out.dtype), axis_names=names),)


_LARGEST_DETERMINANT = 4


def lower_det(c: LowerContext) -> tuple[Tensor, ...]:
    """The determinant of small matrices, by expansion along the first row."""
    x, out = c.input(0), c.output()
    n = x.shape[-1].value()
    if n is None or n > _LARGEST_DETERMINANT:
        raise c.unsupported(f"matrices of {x.shape[-1]} rows; native code has up to {_LARGEST_DETERMINANT}")
    real = wide(out.dtype)

    def minor(i: tuple[IntExpr, ...], row: int, columns: tuple[int, ...]) -> Val:
        if row == n:
            return constant(1, real)
        total = constant(0, real)
        for k, j in enumerate(columns):
            part = x[(*i, const(row), const(j))].cast(real) * minor(i, row + 1, columns[:k] + columns[k + 1 :])
            total = total + part if k % 2 == 0 else total - part
        return total

    columns = tuple(range(n))
    names = axis_names(len(out.shape))
    return (compute(c.name("det"), out.shape, lambda *i: minor(i, 0, columns).cast(out.dtype), axis_names=names),)


LOWER: dict[str, Lower] = {"DFT": lower_dft, "STFT": lower_stft, "Det": lower_det}
