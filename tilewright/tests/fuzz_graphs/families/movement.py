"""Operators that move elements: views, permutations, slices, pieces, padding, repeats, and computed sizes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import numpy_helper

from tilewright.tests.fuzz_graphs import data
from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 5.0

ANY = [np.float32, np.float32, np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.int8]


def anything(d: Draft, rank: int | range | None = None, small: bool = False) -> Val:
    return d.tensor([d.one_of(ANY)], rank, small=small)


def _operand_or_attr(d: Draft, numbers: list[int], since: int, key: str) -> tuple[list[Val], dict[str, object]]:
    """``numbers`` as an operand from opset ``since`` on, as an attribute before."""
    return ([d.ints(numbers)], {}) if d.opset >= since else ([], {key: numbers})


def reshape(d: Draft) -> object:
    x = anything(d)
    kind = d.integer(0, 3)
    if kind == 0 or not x.is_static:
        return _reshape_by_shape(d, x)
    sizes = [s for s in x.shape if s > 1] or [1]
    order = [int(i) for i in d.rng.permutation(len(sizes))]
    target = [sizes[i] for i in order]
    if len(target) > 1 and d.chance(0.5):
        target = [target[0] * target[1], *target[2:]]
    if d.chance(0.4):
        target.insert(d.integer(0, len(target)), 1)
    if x.size == 0:
        target = list(x.shape)
    elif d.chance(0.5):
        target[d.integer(0, len(target) - 1)] = -1
    attrs = {"allowzero": 1} if d.opset >= 14 and 0 in target and d.chance(0.5) else {}
    return d.emit("Reshape", [x, d.ints(target)], attrs)


def _reshape_by_shape(d: Draft, x: Val) -> object:
    """Zeros, a -1, or dims computed by Shape, Gather and Concat, as exporters write it."""
    if x.rank == 0:
        return d.emit("Reshape", [x, d.ints([1] * d.integer(0, 2))])
    if d.chance(0.5):
        target = [0] * d.integer(0, x.rank - 1) + [-1]
        return d.emit("Reshape", [x, d.ints(target)])
    (shape,) = d.emit("Shape", [x])
    pieces = []
    for k in range(x.rank):
        (dim,) = d.emit("Gather", [shape, d.ints([k], constant=1.0)], {"axis": 0})
        pieces.append(dim)
    if len(pieces) > 1 and d.chance(0.5):
        (both,) = d.emit("Mul", pieces[:2])
        pieces = [both, *pieces[2:]]
    elif d.chance(0.5):
        pieces.append(d.ints([1]))
    (target,) = d.emit("Concat", pieces, {"axis": 0})
    return d.emit("Reshape", [x, target])


def shape_of(d: Draft) -> object:
    x = anything(d)
    attrs: dict[str, object] = {}
    if d.opset >= 15:
        if d.chance(0.3):
            attrs["start"] = d.integer(-x.rank - 1, x.rank + 1)
        if d.chance(0.3):
            attrs["end"] = d.integer(-x.rank - 1, x.rank + 1)
    return d.emit("Shape", [x], attrs)


def size_of(d: Draft) -> object:
    return d.emit("Size", [anything(d)])


def transpose(d: Draft) -> object:
    x = anything(d)
    perm = None if d.chance(0.2) else [int(i) for i in d.rng.permutation(x.rank)]
    return d.emit("Transpose", [x], {"perm": perm} if perm else {})


def transposed_sum(d: Draft) -> object:
    """Elementwise operators around the Transpose of images that the first-level cache does not hold."""
    dims = (d.integer(1, 2), d.integer(14, 24), d.integer(16, 40), d.one_of([8, 16, 24, 32, 37]))
    values = [d.given(d.rng.standard_normal(dims).astype(np.float32), 0.1) for _ in range(2)]
    x = d.emit("Add", values)[0] if d.chance(0.5) else d.emit("Relu", values[:1])[0]
    y = d.emit("Transpose", [x], {"perm": [0, 3, 1, 2] if d.chance(0.7) else [3, 0, 2, 1]})[0]
    return d.emit("Cast", [y], {"to": 10}) if d.chance(0.3) else d.emit("Sigmoid", [y])


def squeeze(d: Draft) -> object:
    x = d.tensor([d.one_of(ANY)], range(1, 5), ok=lambda v: any(set(s) == {1} for s in v.dims))
    ones = [k for k, s in enumerate(x.dims) if set(s) == {1}]
    if d.chance(0.2) and all(set(s) == {1} or 1 not in s for s in x.dims):
        return d.emit("Squeeze", [x])
    some = [k - x.rank if d.opset >= 11 and d.chance(0.3) else k for k in ones if d.chance(0.7)] or ones[:1]
    more, attrs = _operand_or_attr(d, some, 13, "axes")
    return d.emit("Squeeze", [x, *more], attrs)


def unsqueeze(d: Draft) -> object:
    x = anything(d, range(4))
    count = d.integer(1, 2)
    rank = x.rank + count
    axes = [int(a) for a in d.rng.permutation(rank)[:count]]
    axes = [a - rank if d.opset >= 11 and d.chance(0.3) else a for a in axes]
    more, attrs = _operand_or_attr(d, axes, 13, "axes")
    return d.emit("Unsqueeze", [x, *more], attrs)


def flatten(d: Draft) -> object:
    x = anything(d)
    return d.emit("Flatten", [x], {"axis": d.integer(-x.rank if d.opset >= 11 else 0, x.rank)})


def _fits(v: Val, x: Val, axis: int) -> bool:
    """Whether the two can be joined along an axis."""
    if not v.is_tensor or v.dtype != x.dtype or v.rank != x.rank:
        return False
    return all(v.dims[i] == x.dims[i] for i in range(x.rank) if i != axis)


def concat(d: Draft) -> object:
    x = anything(d, range(1, 5))
    axis = d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0)
    k = axis % x.rank
    parts = [x]
    for _ in range(d.integer(0, 3)):
        same = d.pick(lambda v: _fits(v, x, k))
        if same is None or d.chance(0.4):
            dims = [d.dim(small=True) if i == k else s for i, s in enumerate(x.dims)]
            same = d.new(x.dtype, dims, 0.3)
        parts.insert(d.integer(0, len(parts)), same)
    return d.emit("Concat", parts, {"axis": axis})


def split(d: Draft) -> object:
    x = anything(d, range(1, 5))
    axis = d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0)
    sizes = x.dims[axis]
    n = d.integer(1, 3)
    attrs: dict[str, object] = {"axis": axis}
    used = [d.chance(0.85) for _ in range(n)]
    used[0] = True
    if len(set(sizes)) > 1 or (d.opset >= 18 and d.chance(0.4)):
        if d.opset >= 18:
            attrs["num_outputs"] = n
        return d.emit("Split", [x], attrs, used)
    cuts = sorted(d.integer(0, sizes[0]) for _ in range(n - 1))
    pieces = [b - a for a, b in zip([0, *cuts], [*cuts, sizes[0]], strict=True)]
    more, extra = _operand_or_attr(d, pieces, 13, "split")
    return d.emit("Split", [x, *more], {**attrs, **extra}, used)


_FAR = (2**31 - 1, -(2**31), 2**62, -(2**62), 2**63 - 1, -(2**63))


def slice_(d: Draft) -> object:
    x = anything(d, range(1, 5))
    axes = d.axes(x.rank, 1) if d.opset >= 10 else [a % x.rank for a in d.axes(x.rank, 1)]
    starts, ends, steps = [], [], []
    for a in axes:
        n = max(x.dims[a])
        step = d.one_of([1, 1, 1, 2, 3, -1, -1, -2, 7, 2**63 - 1, -(2**63)]) if d.opset >= 10 else 1
        low, high = d.integer(-n - 2, n + 2), d.one_of([n, d.integer(-n - 2, n + 2), *_FAR])
        if step < 0:
            low = d.one_of([n - 1, -1, low, d.one_of(_FAR)])
            high = d.one_of([-n - 1, 0, d.integer(-n - 2, n), d.one_of(_FAR)])
        starts.append(low)
        ends.append(high)
        steps.append(step)
    if d.opset < 10:
        return d.emit("Slice", [x], {"starts": starts, "ends": ends, "axes": axes})
    dtype = np.int64 if d.chance(0.8) or max(map(abs, starts + ends + steps)) > 2**31 - 1 else np.int32
    lists = [d.ints(v, dtype) for v in (starts, ends)]
    if sorted(axes) == list(range(len(axes))) and axes == sorted(axes) and set(steps) == {1} and d.chance(0.5):
        return d.emit("Slice", [x, *lists])
    return d.emit("Slice", [x, *lists, d.ints(axes, dtype), *([d.ints(steps, dtype)] if set(steps) != {1} else [])])


def pad(d: Draft) -> object:
    mode = d.one_of(["constant", "constant", "reflect", "edge", *(["wrap"] if d.opset >= 19 else [])])
    x = d.tensor(d.type_of("Pad"), range(1, 5))
    low = -1 if d.opset >= 11 else 0
    pads = [d.one_of([0, 0, 1, 2, d.integer(low, 3)]) for _ in range(2 * x.rank)]
    if mode in ("reflect", "wrap"):
        least = [min(s) for s in x.dims]
        pads = [min(p, max(0, least[k % x.rank] - 1)) for k, p in enumerate(pads)]
    if d.opset < 11:
        attrs = {"mode": mode, "pads": pads, "value": d.one_of([0.0, 1.5])}
        return d.emit("Pad", [x], attrs)
    operands: list[Val | None] = [x, d.ints(pads)]
    if mode == "constant" and d.chance(0.5):
        operands.append(d.new(x.dtype, (), 0.8))
    if d.opset >= 18 and d.chance(0.4):
        axes = d.axes(x.rank, 1)
        chosen = [pads[a % x.rank] for a in axes] + [pads[x.rank + a % x.rank] for a in axes]
        operands = [x, d.ints(chosen), operands[2] if len(operands) > 2 else None, d.ints(axes)]
    return d.emit("Pad", operands, {"mode": mode} if mode != "constant" or d.chance(0.3) else {})


def tile(d: Draft) -> object:
    x = anything(d, range(1, 5), small=True)
    return d.emit("Tile", [x, d.ints([d.one_of([1, 1, 2, 3, 0 if d.chance(0.1) else 1]) for _ in range(x.rank)])])


def expand(d: Draft) -> object:
    x = anything(d, range(4), small=True)
    rank = d.integer(max(0, x.rank - 1), x.rank + 1)
    target = []
    for k in range(rank):
        own = x.dims[x.rank - rank + k] if x.rank - rank + k >= 0 else d.fixed(1)
        kept = 1 if d.chance(0.5) or len(set(own)) > 1 else own[0]
        target.append(d.one_of([1, 2, 3, 5]) if set(own) == {1} else kept)
    if d.chance(0.25):
        other = d.broadcastable(x)
        (shape,) = d.emit("Shape", [other])
        return d.emit("Expand", [x, shape])
    return d.emit("Expand", [x, d.ints(target)])


def depth_to_space(d: Draft) -> object:
    b = d.integer(1, 3)
    c = d.integer(1, 3) * b * b
    x = d.new(d.one_of([np.float32, np.float32, np.float64]), (d.dim(True), d.fixed(c), d.dim(True), d.dim(True)), 0.1)
    attrs: dict[str, object] = {"blocksize": b}
    if d.opset >= 11 and d.chance(0.6):
        attrs["mode"] = d.one_of(["DCR", "CRD"])
    return d.emit("DepthToSpace", [x], attrs)


def space_to_depth(d: Draft) -> object:
    b = d.integer(1, 3)
    dims = (d.dim(True), d.fixed(d.integer(1, 4)), d.fixed(b * d.integer(1, 3)), d.fixed(b * d.integer(1, 4)))
    return d.emit("SpaceToDepth", [d.new(d.one_of([np.float32, np.float64]), dims, 0.1)], {"blocksize": b})


def trilu(d: Draft) -> object:
    x = d.tensor([d.one_of(ANY)], range(2, 5))
    more = [d.scalar(d.integer(-4, 4), np.int64)] if d.chance(0.6) else []
    return d.emit("Trilu", [x, *more], {"upper": d.integer(0, 1)})


def reverse_sequence(d: Draft) -> object:
    x = d.tensor([d.one_of(ANY)], range(2, 5), ok=lambda v: v.is_static and v.size > 0)
    time, batch = d.one_of([(0, 1), (1, 0)])
    lengths = [d.integer(1, x.shape[time]) for _ in range(x.shape[batch])]
    return d.emit("ReverseSequence", [x, d.ints(lengths)], {"time_axis": time, "batch_axis": batch})


def eye_like(d: Draft) -> object:
    x = d.tensor([d.one_of([np.float32, np.int64, np.float64])], 2)
    return d.emit("EyeLike", [x], {"k": d.integer(-3, 3), **({"dtype": d.one_of([1, 7, 11])} if d.chance(0.4) else {})})


def range_(d: Draft) -> object:
    dtype = np.dtype(d.one_of([np.int64, np.int32, np.float32]))
    start, step = d.integer(-4, 4), d.one_of([1, 2, 3, -1, -2])
    stop = start + step * d.integer(0, 9) - d.integer(0, 1) * int(np.sign(step))
    return d.emit("Range", [d.scalar(v, dtype) for v in (start, stop, step)])


def range_of_size(d: Draft) -> object:
    """Range over a dim, as positions are computed."""
    x = anything(d, range(1, 4))
    (shape,) = d.emit("Shape", [x])
    (n,) = d.emit("Gather", [shape, d.scalar(d.integer(0, x.rank - 1), np.int64, 1.0)], {"axis": 0})
    return d.emit("Range", [d.scalar(0, np.int64, 1.0), n, d.scalar(1, np.int64, 1.0)])


def constant_of_shape(d: Draft) -> object:
    attrs = {}
    if d.chance(0.7):
        dtype = d.one_of([np.float32, np.int64, np.bool_, np.float64, np.uint8, np.int32])
        attrs = {"value": numpy_helper.from_array(np.array([d.integer(0, 3)], dtype), "")}
    if d.chance(0.5):
        (shape,) = d.emit("Shape", [anything(d, range(4), small=True)])
        return d.emit("ConstantOfShape", [shape], attrs)
    return d.emit("ConstantOfShape", [d.ints([d.size(True) for _ in range(d.integer(0, 3))])], attrs)


def center_crop_pad(d: Draft) -> object:
    x = anything(d, range(1, 4), small=True)
    if d.chance(0.5):
        return d.emit("CenterCropPad", [x, d.ints([d.size(True) for _ in range(x.rank)])])
    axes = d.axes(x.rank, 1)
    return d.emit("CenterCropPad", [x, d.ints([d.size(True) for _ in axes])], {"axes": axes})


def shape_arithmetic(d: Draft) -> object:
    """Integer arithmetic on dims that ends in a size: as window partitions and pads to a multiple are written."""
    x = anything(d, range(1, 4))
    axis = d.integer(0, x.rank - 1)
    (shape,) = d.emit("Shape", [x])
    (n,) = d.emit("Gather", [shape, d.ints([axis], constant=1.0)], {"axis": 0})
    for _ in range(d.integer(1, 3)):
        op = d.one_of(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"])
        by = d.ints([d.integer(1, 4)], constant=1.0)
        if op in ("Min", "Max") and d.opset < 12:
            raise Rejected("integers from 12 on")
        (n,) = d.emit(op, [by, n] if op in ("Sub", "Add", "Mul") and d.chance(0.3) else [n, by])
    low, high = (min(v) for v in ([int(a[0]) for a in n.arrays], [16 - int(a[0]) for a in n.arrays]))  # type: ignore[index]
    if low < 0 or high < 0:
        raise Rejected("no size")
    if d.chance(0.5) and d.opset >= 11:
        pads = [d.ints([0], constant=1.0)] * (2 * x.rank)
        pads[d.integer(0, 2 * x.rank - 1)] = n
        return d.emit("Pad", [x, *d.emit("Concat", pads, {"axis": 0})])
    if d.chance(0.5) and d.opset >= 10:
        return d.emit("Slice", [x, d.ints([0], constant=1.0), n, d.ints([axis], constant=1.0)])
    return d.emit("Expand", [d.tensor([np.float32], (0, 1), ok=lambda v: all(set(s) == {1} for s in v.dims)), n])


def constant_node(d: Draft) -> object:
    array = data.random_array(d.rng, np.dtype(d.one_of(ANY)), tuple(d.size(True) for _ in range(d.integer(0, 3))))
    return d.emit("Constant", [], {"value": numpy_helper.from_array(array, "")})


GENERATORS: Mapping[str, object] = {
    "Reshape": reshape, "Shape": shape_of, "Size": size_of, "Transpose": transpose, "TransposedSum": transposed_sum,
    "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Flatten": flatten, "Concat": concat, "Split": split, "Slice": slice_,
    "Pad": pad,
    "Tile": tile, "Expand": expand, "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth, "Trilu": trilu,
    "ReverseSequence": reverse_sequence, "EyeLike": eye_like, "Range": range_, "RangeOfSize": range_of_size,
    "ConstantOfShape": constant_of_shape, "CenterCropPad": center_crop_pad, "ShapeArithmetic": shape_arithmetic,
    "Constant": constant_node,
}  # fmt: skip
