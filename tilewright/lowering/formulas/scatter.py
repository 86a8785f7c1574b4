"""ScatterElements, ScatterND, TensorScatter: a copy of the data, then an update whose steps run in the order of the
indices. In place the copy is there already."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.fused.update_in_place import IN_PLACE
from tilewright.lowering.context import Lower, LowerContext, clamped_index, widen
from tilewright.lowering.formulas.elementwise import copy_of
from tilewright.lowering.indexing import normal_axis
from tilewright.tensor_ir.compute import Tensor, Val, index_value, op, placeholder, update

_COMBINERS = {"add": "add", "mul": "mul", "max": "max", "min": "min"}


def _combine(c: LowerContext) -> Callable[[Val, Val], Val]:
    """New element from the old one and the update."""
    kind = c.attr_str("reduction", "none")
    if kind == "none":
        return lambda old, new: new
    if kind not in _COMBINERS:
        raise c.unsupported(f"attribute reduction: unknown value {kind!r}")
    name = _COMBINERS[kind]
    return lambda old, new: op(name, widen(old), widen(new)).cast(old.dtype)


def _updated(c: LowerContext, x: Tensor) -> Tensor:
    """What the update goes into: a copy of ``x``, or a result in whose memory ``x`` lies."""
    if c.attr_int(IN_PLACE, 0):
        return placeholder(c.name("updated"), x.shape, x.dtype)
    return c.stage(copy_of(c, x, "scattered"))


def lower_scatter_elements(c: LowerContext) -> tuple[Tensor, ...]:
    x, where, new = c.input(0), c.input(1), c.input(2)
    axis = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)
    combine = _combine(c)
    result = _updated(c, x)

    def body(*i: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
        place = (*i[:axis], c.wrapped(where[i], x.shape[axis]), *i[axis + 1 :])
        return place, combine(result[place], new[i])

    c.update(update(c.name("scatter"), result, where.shape, body, ordered=(axis,)))
    return (result,)


def lower_scatter_nd(c: LowerContext) -> tuple[Tensor, ...]:
    x, where, new = c.input(0), c.input(1), c.input(2)
    depth = where.shape[-1].value()
    if depth is None:
        raise c.unsupported(f"the last dimension of indices must be constant, got {where.shape[-1]}")
    outer = where.ndim - 1
    combine = _combine(c)
    result = _updated(c, x)

    def body(*i: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
        rows = [c.wrapped(where[(*i[:outer], const(k))], x.shape[k]) for k in range(depth)]
        place = (*rows, *i[outer:])
        return place, combine(result[place], new[i])

    shape = [*where.shape[:-1], *x.shape[depth:]]
    c.update(update(c.name("scatter"), result, shape, body, ordered=range(outer)))
    return (result,)


def lower_tensor_scatter(c: LowerContext) -> tuple[Tensor, ...]:
    """Rows of a cache from a place of each batch element on, which go on at its start where it is circular."""
    cache, new = c.input(0), c.input(1)
    axis = normal_axis(c.attr_int("axis", -2), cache.ndim, c.where)
    room, steps = cache.shape[axis], new.shape[axis]
    circular = c.attr_str("mode", "linear") == "circular"
    result = _updated(c, cache)

    def body(*i: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
        row = index_value(i[axis])
        if c.has_input(2):
            start = c.input(2)[i[0]].cast(dtypes.int64)
            start = start if circular else op("min", start, index_value(room - steps))
            row = op("max", start, 0) + row
        if circular:
            row = op("floor_mod", row, op("max", index_value(room), 1))
        return (*i[:axis], clamped_index(row, room), *i[axis + 1 :]), new[i]

    c.update(update(c.name("scatter"), result, new.shape, body, ordered=(axis,)))
    return (result,)


LOWER: dict[str, Lower] = {
    "TensorScatter": lower_tensor_scatter,
    "ScatterElements": lower_scatter_elements,
    "Scatter": lower_scatter_elements,
    "ScatterND": lower_scatter_nd,
}
