"""Operators that read at positions held in memory: the gathers, LookUp, OneHot, ReverseSequence, Compress.

A position outside a dimension reads its nearest element; negative positions count from the end. Whether that is a
result or the run fails is not decided here (:mod:`tilewright.lowering.checks`).
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.lowering.context import Lower, LowerContext
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.indexing import normal_axis, ranges_of, split_index
from tilewright.tensor_ir.compute import Tensor, Val, compute, index_value, select


def lower_gather(c: LowerContext) -> tuple[Tensor, ...]:
    x, where = c.input(0), c.input(1)
    axis = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)
    shape = [*x.shape[:axis], *where.shape, *x.shape[axis + 1 :]]

    def body(*i: IntExpr) -> Val:
        position = c.wrapped(where[i[axis : axis + where.ndim]], x.shape[axis])
        return x[(*i[:axis], position, *i[axis + where.ndim :])]

    return (compute(c.name("gather"), shape, body, axis_names=axis_names(len(shape))),)


def lower_gather_elements(c: LowerContext) -> tuple[Tensor, ...]:
    x, where = c.input(0), c.input(1)
    axis = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)

    def body(*i: IntExpr) -> Val:
        position = c.wrapped(where[i], x.shape[axis])
        return x[(*i[:axis], position, *i[axis + 1 :])]

    return (compute(c.name("gather_elements"), where.shape, body, axis_names=axis_names(x.ndim)),)


def lower_gather_nd(c: LowerContext) -> tuple[Tensor, ...]:
    x, where = c.input(0), c.input(1)
    batch = c.attr_int("batch_dims", 0)
    depth = where.shape[-1].value()
    if depth is None:
        raise c.unsupported(f"the last dimension of indices must be constant, got {where.shape[-1]}")
    outer = where.ndim - 1
    shape = [*where.shape[:-1], *x.shape[batch + depth :]]

    def body(*i: IntExpr) -> Val:
        lead = i[:outer]
        place = [c.wrapped(where[(*lead, const(k))], x.shape[batch + k]) for k in range(depth)]
        return x[(*i[:batch], *place, *i[outer:])]

    return (compute(c.name("gather_nd"), shape, body, axis_names=axis_names(len(shape))),)


def lower_look_up(c: LowerContext) -> tuple[Tensor, ...]:
    """No bounds: a byte is an index of 256 elements."""
    x, table = c.input(0), c.input(1)

    def body(*i: IntExpr) -> Val:
        return table[x[i].cast(dtypes.uint8).cast(dtypes.int64)]

    return (compute(c.name("look_up"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_one_hot(c: LowerContext) -> tuple[Tensor, ...]:
    which, values, out = c.input(0), c.input(2), c.output()
    rank = which.ndim + 1
    axis = normal_axis(c.attr_int("axis", -1), rank, c.where)
    depth = out.shape[axis]

    def body(*i: IntExpr) -> Val:
        v = which[(*i[:axis], *i[axis + 1 :])].cast(dtypes.int64)
        hot = select(v < 0, v + index_value(depth), v).equal(index_value(i[axis]))
        return select(hot, values[1], values[0])

    return (compute(c.name("one_hot"), out.shape, body, axis_names=axis_names(rank)),)


def lower_reverse_sequence(c: LowerContext) -> tuple[Tensor, ...]:
    x, lengths = c.input(0), c.input(1)
    time, batch = c.attr_int("time_axis", 0), c.attr_int("batch_axis", 1)

    def body(*i: IntExpr) -> Val:
        t, n = index_value(i[time]), c.length(lengths[i[batch]], x.shape[time])
        position = c.wrapped(select(t < n, n - 1 - t, t), x.shape[time])
        return x[tuple(position if d == time else e for d, e in enumerate(i))]

    return (compute(c.name("reverse_sequence"), x.shape, body, axis_names=axis_names(x.ndim)),)


def lower_compress(c: LowerContext) -> tuple[Tensor, ...]:
    x, condition = c.input(0), c.constants[1]
    if condition is None:
        raise c.unsupported("condition (input 1) must be a constant: the output's size depends on it")
    axis = c.attr("axis")
    total = product(x.shape)
    most = (total if axis is None else x.shape[normal_axis(c.attr_int("axis", 0), x.ndim, c.where)]).value()
    kept = np.flatnonzero(condition.array[:most]).astype(np.int64)  # conditions beyond the elements choose nothing
    positions = c.table(kept if kept.size else np.zeros(1, np.int64), "kept")
    if axis is None:

        def flat(i: IntExpr) -> Val:
            at = c.wrapped(positions[i], total)
            return x[split_index(at, x.shape, ranges_of((i,), (const(kept.size),)))]

        return (compute(c.name("compress"), (kept.size,), flat),)
    a = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)
    shape = [const(kept.size) if d == a else e for d, e in enumerate(x.shape)]
    return (
        compute(
            c.name("compress"),
            shape,
            lambda *i: x[tuple(c.wrapped(positions[e], x.shape[a]) if d == a else e for d, e in enumerate(i))],
            axis_names=axis_names(x.ndim),
        ),
    )


LOWER: dict[str, Lower] = {
    "Gather": lower_gather, "GatherElements": lower_gather_elements, "GatherND": lower_gather_nd,
    "LookUp": lower_look_up, "OneHot": lower_one_hot, "ReverseSequence": lower_reverse_sequence,
    "Compress": lower_compress,
}  # fmt: skip
