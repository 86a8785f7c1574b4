"""Operators that only move elements by fixed index maps: transpose, slice, concat, split, reshapes, depth/space."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.arith.bounds import interval
from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv, const, product, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.graph_ir.fused.shape_program import BEGIN
from tilewright.graph_ir.ops.movement.copies import LONGEST_STEP
from tilewright.lowering.context import Lower, LowerContext
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.indexing import choose, normal_axis, reshape_indices
from tilewright.tensor_ir.compute import Tensor, Val, compute, index_value, select


def lower_transpose(c: LowerContext) -> tuple[Tensor, ...]:
    x = c.input(0)
    perm = c.attr_ints("perm") or tuple(reversed(range(x.ndim)))
    place = [perm.index(d) for d in range(x.ndim)]
    shape = [x.shape[p] for p in perm]
    return (
        compute(c.name("transpose"), shape, lambda *i: x[tuple(i[p] for p in place)], axis_names=axis_names(x.ndim)),
    )


# -- slice ---------------------------------------------------------------------------------------------------------
def operand_elements(c: LowerContext, i: int, count: int) -> tuple[IntExpr, ...]:
    """The elements of integer input ``i``: known expressions, else values loaded at run time."""
    known = c.elements(i)
    if known is not None:
        return known
    t = c.input(i)
    return tuple(t[k].as_index() for k in range(count))


def slice_start(start: IntExpr, step: IntExpr, extent: IntExpr) -> IntExpr:
    """Where a slice begins, as ONNX clamps it; exact wherever the slice is not empty."""
    low, high = interval(start, {})
    backwards = step.is_const and int(step) < 0
    if low is not None and low >= 0:
        return minimum(start, extent - 1) if backwards else start
    if high is not None and high < 0:
        is_last = low is not None and low >= -1  # in a slice that is not empty, there is such an element
        return start + extent if backwards and is_last else maximum(start + extent, 0)
    value, size = index_value(start), index_value(extent)
    wrapped = select(value < 0, value + size, value).as_index()
    return maximum(minimum(wrapped, extent - 1), 0)


def lower_slice(c: LowerContext) -> tuple[Tensor, ...]:
    x, out = c.input(0), c.output()
    where = c.where
    start_elements = c.elements(1)
    count = len(start_elements) if start_elements is not None else c.input(1).shape[0].value()
    if count is None:
        raise c.unsupported("the number of starts (input 1) must be known at build time")
    starts = operand_elements(c, 1, count)
    axes = c.constant_ints(3, "axes")
    axes = list(range(count)) if axes is None else [normal_axis(a, x.ndim, where) for a in axes]
    steps = operand_elements(c, 4, count) if c.has_input(4) else tuple(const(1) for _ in axes)
    steps = tuple(const(max(min(s.const, LONGEST_STEP), -LONGEST_STEP)) if s.is_const else s for s in steps)
    places = c.attr(BEGIN)

    def body(*index: IntExpr) -> Val:
        own = list(index)
        for axis, start, step in zip(axes, starts, steps, strict=True):
            place = places[axis] if isinstance(places, tuple) else ""
            begin = var(str(place)) if place else slice_start(start, step, x.shape[axis])
            own[axis] = begin + index[axis] * step
        return x[tuple(own)]

    return (compute(c.name("slice"), out.shape, body, axis_names=axis_names(x.ndim)),)


# -- concat and split ----------------------------------------------------------------------------------------------
def lower_concat(c: LowerContext) -> tuple[Tensor, ...]:
    out = c.output()
    rank = len(out.shape)
    axis = normal_axis(c.attr_int("axis", 0), rank, c.where)
    parts = [t for t in c.inputs if t is not None and t.shape[axis] != 0]
    parts = parts or [c.input(0)]
    ends: list[IntExpr] = []
    for t in parts:
        ends.append(t.shape[axis] + (ends[-1] if ends else 0))

    def body(*index: IntExpr) -> Val:
        def pick(k: int) -> Val:
            own = list(index)
            own[axis] = index[axis] - (ends[k - 1] if k else 0)
            return parts[k][tuple(own)]

        return choose(index[axis], ends, pick)

    return (compute(c.name("concat"), out.shape, body, axis_names=axis_names(rank)),)


def lower_split(c: LowerContext) -> tuple[Tensor, ...]:
    x = c.input(0)
    axis = normal_axis(c.attr_int("axis", 0), x.ndim, c.where)
    sizes = _split_sizes(c, x.shape[axis])
    outputs: list[Tensor] = []
    offset = const(0)
    for size in sizes:
        shape = [*x.shape[:axis], size, *x.shape[axis + 1 :]]

        def body(*index: IntExpr, begin: IntExpr = offset) -> Val:
            return x[tuple(i + begin if d == axis else i for d, i in enumerate(index))]

        outputs.append(c.stage(compute(c.name("split"), shape, body, axis_names=axis_names(x.ndim))))
        offset = offset + size
    return tuple(outputs)


def _split_sizes(c: LowerContext, extent: IntExpr) -> Sequence[IntExpr]:
    known = c.elements(1)
    if known is not None:
        return known
    if c.has_input(1):
        raise c.unsupported("split (input 1) must be known at build time")
    count = c.attr_int("num_outputs", len(c.node.outputs))
    chunk = ceildiv(extent, count)
    return [chunk if k < count - 1 else extent - chunk * k for k in range(len(c.node.outputs))]


# -- reshapes ------------------------------------------------------------------------------------------------------
def reshaped(c: LowerContext, x: Tensor, shape: Sequence[IntExpr], hint: str) -> Tensor:
    """``x`` read in another shape of as many elements."""
    return compute(
        c.name(hint), shape, lambda *i: x[reshape_indices(i, shape, x.shape)], axis_names=axis_names(len(shape))
    )


def lower_reshape(c: LowerContext) -> tuple[Tensor, ...]:
    return (reshaped(c, c.input(0), c.output().shape, c.node.op.lower()),)


def _image_layout(c: LowerContext, x: Tensor) -> bool:
    """True for channels-last data."""
    if x.ndim != 4:
        raise c.unsupported(f"input must have rank 4, got {x.ndim}")
    return c.attr_str("data_layout", "NCHW") == "NHWC"


def _image_stage(
    c: LowerContext, hint: str, last: bool, source: Callable[..., tuple[IntExpr, IntExpr, IntExpr]]
) -> tuple[Tensor, ...]:
    """``out[n, c, h, w] = x[n, *source(c, h, w)]`` in either layout."""
    x, out = c.input(0), c.output()

    def body(*i: IntExpr) -> Val:
        n, ch, h, w = (i[0], i[3], i[1], i[2]) if last else i
        ch, h, w = source(ch, h, w)
        return x[(n, h, w, ch) if last else (n, ch, h, w)]

    return (compute(c.name(hint), out.shape, body, axis_names=axis_names(4)),)


def lower_depth_to_space(c: LowerContext) -> tuple[Tensor, ...]:
    last = _image_layout(c, c.input(0))
    size, mode = c.attr_int("blocksize", 1), c.attr_str("mode", "DCR")
    depth = c.output().shape[3 if last else 1]

    def source(ch: IntExpr, h: IntExpr, w: IntExpr) -> tuple[IntExpr, IntExpr, IntExpr]:
        block = (h % size) * size + w % size
        place = block * depth + ch if mode == "DCR" else ch * (size * size) + block
        return place, h // size, w // size

    return _image_stage(c, "depth_to_space", last, source)


def lower_space_to_depth(c: LowerContext) -> tuple[Tensor, ...]:
    last = _image_layout(c, c.input(0))
    size, mode = c.attr_int("blocksize", 1), c.attr_str("mode", "DCR")
    depth = c.input(0).shape[3 if last else 1]

    def source(ch: IntExpr, h: IntExpr, w: IntExpr) -> tuple[IntExpr, IntExpr, IntExpr]:
        block, place = (ch // depth, ch % depth) if mode == "DCR" else (ch % (size * size), ch // (size * size))
        return place, h * size + block // size, w * size + block % size

    return _image_stage(c, "space_to_depth", last, source)


# -- shapes as values ----------------------------------------------------------------------------------------------
def lower_shape(c: LowerContext) -> tuple[Tensor, ...]:
    value = c.input_values[0]
    if value is None:
        raise c.unsupported("input 0 is absent")
    rank = len(value.shape)
    start = min(max(_from_end(c.attr_int("start", 0), rank), 0), rank)
    end = min(max(_from_end(c.attr_int("end", rank), rank), 0), rank)
    dims = value.shape[start : max(start, end)]
    if not dims:
        return (compute(c.name("shape"), (0,), lambda i: index_value(i)),)
    ends = [const(k + 1) for k in range(len(dims))]
    return (compute(c.name("shape"), (len(dims),), lambda i: choose(i, ends, lambda k: index_value(dims[k]))),)


def _from_end(i: int, rank: int) -> int:
    return i + rank if i < 0 else i


def lower_size(c: LowerContext) -> tuple[Tensor, ...]:
    value = c.input_values[0]
    if value is None:
        raise c.unsupported("input 0 is absent")
    count = product(as_expr(s) for s in value.shape)
    return (compute(c.name("size"), (), lambda: index_value(count)),)


LOWER: dict[str, Lower] = {
    "Transpose": lower_transpose, "Slice": lower_slice, "Concat": lower_concat, "Split": lower_split,
    "Reshape": lower_reshape, "Flatten": lower_reshape, "Squeeze": lower_reshape, "Unsqueeze": lower_reshape,
    "DepthToSpace": lower_depth_to_space, "SpaceToDepth": lower_space_to_depth,
    "Shape": lower_shape, "Size": lower_size,
}  # fmt: skip
