"""What rules look for, in several nodes at once: repetitions above operators, negations, slices of slices, products
between constants, norms in parts. The names are of patterns, not of operators."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 2.0
_UNARY = ("Relu", "Abs", "Neg", "Sigmoid", "Tanh", "Sqrt")
_BINARY = ("Add", "Mul", "Sub", "Max", "Min", "Div")
_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_OPPOSED = ("And", "Or")


def _one(made: list[Val]) -> Val:
    return made[0]


def _repeated(d: Draft) -> Val:
    """A Tile or Expand of something with axes of size 1, or of a whole."""
    rank = d.integer(1, 4)
    whole = d.dims(rank, small=True)
    ones = [d.chance(0.5) for _ in whole]
    if d.chance(0.5):
        small = [d.fixed(1) if one else n for one, n in zip(ones, whole, strict=True)]
        x = d.new(np.float32, small[d.integer(0, rank - 1) :] if d.chance(0.2) else small, 0.2)
        return _one(d.emit("Expand", [x, d.given([np.array(s) for s in zip(*whole, strict=True)], 0.7)]))
    x = d.new(np.float32, [d.fixed(1) if one else n for one, n in zip(ones, whole, strict=True)], 0.2)
    times = [d.one_of([2, 3]) if one or d.chance(0.15) else 1 for one in ones]
    return _one(d.emit("Tile", [x, d.ints(times, constant=0.7)]))


def repetition(d: Draft) -> object:
    """A repetition and a few operators below it; some read it twice, or beside something with all the sizes."""
    r = _repeated(d)
    x = r
    for _ in range(d.integer(1, 4)):
        kind = d.integer(0, 10)
        if kind <= 1:
            x = _one(d.emit(d.one_of(_UNARY), [x]))
        elif kind <= 4:
            other = d.one_of([r, x]) if d.chance(0.3) else d.broadcastable_new(x, constant=0.5)
            x = _one(d.emit(d.one_of(_BINARY), [x, other] if d.chance(0.6) else [other, x]))
        elif kind == 5:
            chosen = _one(d.emit("Greater", [x, d.scalar(0, np.float32)]))
            x = _one(d.emit("Where", [chosen, x, d.broadcastable_new(x, constant=0.5)]))
        elif kind == 6 and x.rank:
            x = _one(d.emit("Softmax", [x], {"axis": d.axis(x.rank)}))
        elif kind == 7 and x.rank:
            op, keep = d.one_of(["ReduceMax", "ReduceMin", "ReduceSum", "ReduceMean"]), d.integer(0, 1)
            axes = sorted({a % x.rank for a in d.axes(x.rank, 1)})
            old = d.opset < 18 and not (op == "ReduceSum" and d.opset >= 13)
            attrs = {"keepdims": keep} | ({"axes": axes} if old else {})
            x = _one(d.emit(op, [x] if old else [x, d.ints(axes)], attrs))
        elif kind == 8 and x.rank:
            x = _one(d.emit("Transpose", [x], {"perm": [int(a) for a in d.rng.permutation(x.rank)]}))
        elif kind == 9 and x.rank < 5:
            axis = d.integer(0, x.rank)
            old = d.opset < 13
            x = _one(d.emit("Unsqueeze", [x] if old else [x, d.ints([axis])], {"axes": [axis]} if old else {}))
        elif x.rank >= 2:
            x = _one(d.emit("MatMul", [x, d.weight(np.float32, (x.dims[-1], d.dim(True)))]))
    return x


def negations(d: Draft) -> object:
    """Not over comparisons (of floats with NaN, too), and over And and Or of negated conditions."""
    t = d.one_of([np.float32, np.float32, np.int64, np.int32])
    x = d.tensor([t], range(3), small=True)
    conditions = []
    for _ in range(d.integer(2, 5)):
        c = _one(d.emit(d.one_of(_COMPARISONS), [x, d.broadcastable(x)]))
        if d.chance(0.2):
            number = _one(d.emit("Cast", [c], {"to": d.one_of([6, 7, 1])}))
            zero = d.new(number.dtype, (), 1.0)
            zero.array[...] = d.one_of([0, 1])
            c = _one(d.emit(d.one_of(["Equal", "Less", "Greater"]), [number, zero]))
        conditions.append(_one(d.emit("Not", [c])) if d.chance(0.6) else c)
    while len(conditions) > 1:
        a, b = conditions.pop(), conditions.pop(0)
        both = _one(d.emit(d.one_of(_OPPOSED), [a, b]))
        conditions.append(_one(d.emit("Not", [both])) if d.chance(0.4) else both)
    return conditions[0]


def slices(d: Draft) -> object:
    """Slices of slices with any bounds and steps."""
    if d.opset < 10:
        raise Rejected("starts are attributes")
    x = d.tensor([np.float32, np.int64], range(1, 4), small=True)
    for _ in range(d.integer(2, 3)):
        axes = sorted({a % x.rank for a in d.axes(x.rank, 1)})
        far = [-(1 << 31), 1 << 31]
        starts, ends = ([d.integer(-9, 9) if d.chance(0.8) else d.one_of(far) for _ in axes] for _ in range(2))
        steps = [d.one_of([1, 1, 2, 3, -1, -2]) for _ in axes]
        bounds = [d.ints(v, constant=0.9) for v in (starts, ends, axes, steps)]
        x = _one(d.emit("Slice", [x, *bounds]))
    return x


def slice_groups(d: Draft) -> object:
    """Slices of one value along one axis, most of them beside each other, in any order."""
    if d.opset < 10:
        raise Rejected("starts are attributes")
    x = d.tensor([np.float32, np.int64], range(1, 4), small=True)
    if d.chance(0.3):
        x = _one(d.emit("Concat", [x, x], {"axis": 0}))
    axis = 0 if d.chance(0.3) else d.axis(x.rank)
    size = min(x.dims[axis])
    cuts = sorted({0, size, *(d.integer(0, size) for _ in range(d.integer(1, 3)))})
    parts = list(itertools.pairwise(cuts))
    if d.chance(0.3):
        parts.append((d.integer(0, size), d.integer(-size, size)))
    made = []
    for k in d.rng.permutation(len(parts)):
        start, end = parts[int(k)]
        end = 1 << 31 if end == size and d.chance(0.5) else end - size if 0 < end < size and d.chance(0.3) else end
        bounds = [d.ints([v], constant=0.95) for v in (start, end, axis)]
        y = _one(d.emit("Slice", [x, *bounds]))
        made.append(_one(d.emit("Abs", [y])) if d.chance(0.5) else y)
    if not made:
        raise Rejected("nothing to slice")
    return made[-1]


def products(d: Draft) -> object:
    """Products with constants around them: shifts and scales in front and behind, two readers, chains."""
    x = d.tensor([np.float32], range(2, 4), small=True)
    depth = x.dims[-1]
    w = d.weight(np.float32, (depth, d.dim(True)), 0.95)
    for _ in range(d.integer(1, 2)):
        y = x
        if d.chance(0.6):
            shift = d.weight(np.float32, (depth,) if d.chance(0.6) else (), 0.9)
            y = _one(d.emit(d.one_of(["Add", "Sub", "Mul"]), [y, shift]))
        y = _one(d.emit("MatMul", [y, w if d.chance(0.6) else d.weight(np.float32, w.dims)]))
        if d.chance(0.3):
            y = _one(d.emit("Add", [y, _one(d.emit("MatMul", [x, d.weight(np.float32, w.dims)]))]))
        for _ in range(d.integer(0, 3)):
            row = d.weight(np.float32, y.dims[-1:] if d.chance(0.6) else (), 0.9)
            y = _one(d.emit(d.one_of(["Add", "Mul", "Sub", "Div"]), [y, row]))
        if d.chance(0.3):
            y = _one(d.emit("MatMul", [y, d.weight(np.float32, (y.dims[-1], d.dim(True)))]))
    return y


def parallel_products(d: Draft) -> object:
    """Products of one value with several weights, most of which could be one product; some with a bias."""
    op = d.one_of(["MatMul", "MatMul", "Gemm", "Conv", "MatMulInteger"])
    if op == "MatMulInteger" and d.opset < 10:
        raise Rejected("from 10 on")
    t = np.dtype(np.uint8 if op == "MatMulInteger" else np.float32)
    if op == "Conv":
        x = d.new(t, (d.dim(True), *(d.fixed(d.integer(3, 6)) for _ in range(3))), 0.0)
    else:
        x = d.tensor([t], 2 if op == "Gemm" else range(2, 4), small=True)
    depth, turned = (x.dims[1] if op == "Conv" else x.dims[-1]), d.integer(0, 1)
    kernel = [d.fixed(d.integer(1, 3)) for _ in range(2)]
    attrs: dict[str, object] = {"alpha": 0.5} if op == "Gemm" and d.chance(0.3) else {}
    if op == "Conv":
        attrs |= {"pads": [1, 1, 1, 0], "strides": [d.integer(1, 2), 1]}
    made = []
    for _ in range(d.integer(2, 4)):
        columns = d.fixed(d.integer(1, 9))
        one = dict(attrs)
        shape = [columns, depth, *kernel] if op == "Conv" else [depth, columns]
        if op == "Gemm" and d.chance(0.5):
            one["transB"], shape = turned, shape[::-1] if turned else shape
        operands = [x, d.new(t, shape, 1.0) if op == "MatMulInteger" else d.weight(t, shape, 0.95)]
        bias = d.chance(0.6) or (op == "Gemm" and d.opset < 11)
        if op == "MatMulInteger":
            zeros = [d.scalar(3, t, 1.0), *([d.new(t, (columns,), 1.0)] if d.chance(0.5) else [])]
            operands += zeros if bias else []
        elif op != "MatMul" and bias:
            operands.append(d.weight(t, (columns,), 0.95))
        y = _one(d.emit(op, operands, one))
        if op == "MatMul" and bias:
            row = d.weight(t, (columns,) if d.chance(0.7) else (), 0.95)
            y = _one(d.emit("Add", [y, row] if d.chance(0.5) else [row, y]))
        made.append(_one(d.emit(d.one_of(_UNARY), [y])) if y.dtype == np.float32 and d.chance(0.5) else y)
    return made[-1]


def blocks(d: Draft) -> object:
    """All pixels of each block of 2 x 2 as channels, in any order, and perhaps a convolution of them."""
    if d.opset < 10:
        raise Rejected("starts are attributes")
    channels = d.integer(1, 4)
    size = [d.fixed(2 * d.integer(1, 4)) for _ in range(2)]
    x = d.new(np.float32, (d.dim(True), d.fixed(channels), *size), 0.0)
    parts = []
    for k in d.rng.permutation(4):
        starts = [d.ints([v], constant=1.0) for v in (int(k) // 2, int(k) % 2)]
        rows, columns, end, step = (d.ints([v], constant=1.0) for v in (2, 3, 1 << 31, 2))
        part = _one(d.emit("Slice", [x, starts[0], end, rows, step]))
        parts.append(_one(d.emit("Slice", [part, starts[1], end, columns, step])))
    y = _one(d.emit("Concat", parts, {"axis": 1}))
    if d.chance(0.6):
        kernel = d.weight(np.float32, (d.fixed(d.integer(1, 5)), d.fixed(4 * channels), d.fixed(3), d.fixed(3)))
        y = _one(d.emit("Conv", [y, kernel], {"pads": [1, 1, 1, 1]}))
    return y


def scaled_image(d: Draft) -> object:
    """A convolution of an image that is scaled and shifted by channel, or padded."""
    channels = d.integer(1, 4)
    x = d.new(np.float32, (d.dim(True), d.fixed(channels), d.fixed(d.integer(3, 7)), d.fixed(d.integer(3, 7))), 0.0)
    for _ in range(d.integer(1, 3)):
        c = d.weight(np.float32, (d.fixed(channels), d.fixed(1), d.fixed(1)) if d.chance(0.7) else (), 0.95)
        x = _one(d.emit(d.one_of(["Mul", "Add", "Sub", "Div"]), [x, c]))
    if d.chance(0.3) and d.opset >= 11:
        x = _one(d.emit("Pad", [x, d.ints([0, 0, *(d.integer(0, 2) for _ in range(2)), 0, 0, 1, 0], constant=1.0)]))
    kernel = d.weight(np.float32, (d.fixed(d.integer(1, 5)), d.fixed(channels), d.fixed(d.integer(1, 3)), d.fixed(3)))
    pads = [0, 0, 0, 0] if d.chance(0.5) else [1, 1, 0, 1]
    return d.emit("Conv", [x, kernel], {"pads": pads, "strides": [d.integer(1, 2), 1]})


def _mean(d: Draft, x: Val, axes: list[int], keep: int = 1) -> Val:
    if d.opset < 18:
        return _one(d.emit("ReduceMean", [x], {"axes": axes, "keepdims": keep}))
    return _one(d.emit("ReduceMean", [x, d.ints(axes, constant=1.0)], {"keepdims": keep}))


def _normalized(d: Draft, x: Val, axes: list[int]) -> Val:
    """The input without its mean, over its deviation, in parts."""
    centred = _one(d.emit("Sub", [x, _mean(d, x, axes)]))
    square = [centred, centred] if d.chance(0.5) else [centred, d.scalar(2, np.float32, 1.0)]
    variance = _mean(d, _one(d.emit("Mul" if square[1] is centred else "Pow", square)), axes)
    shifted = _one(d.emit("Add", [variance, d.scalar(0.01, np.float32, 0.95)]))
    root = _one(d.emit("Sqrt", [shifted]))
    if d.chance(0.5):
        return _one(d.emit("Div", [centred, root]))
    return _one(d.emit("Mul", [centred, _one(d.emit("Reciprocal", [root]))]))


def channel_norm(d: Draft) -> object:
    """A norm of channels or of groups of them, in parts or of a view, with scale and bias, mostly by channel."""
    groups, each, behind, first = d.integer(1, 4), d.integer(1, 3), d.integer(1, 3), len(d.vals)
    channels = d.fixed(groups * each)
    x = d.new(np.float32, (d.dim(True), channels, *d.dims(behind, small=True)), 0.0)
    y, grouped = x, d.chance(0.6)
    if grouped:
        y = _one(d.emit("Reshape", [x, d.ints([0, groups if d.chance(0.9) else each, -1], constant=1.0)]))
    if grouped and d.chance(0.5):
        parameters = [d.weight(np.float32, y.dims[1:2], 0.95) for _ in range(2)]
        y = _one(d.emit("InstanceNormalization", [y, *parameters], {"epsilon": 1e-2}))
    else:
        axes = [*range(2 if d.chance(0.9) else 1, y.rank)]
        y = _normalized(d, y, axes if d.chance(0.7) else [a - y.rank for a in axes])
    if grouped:
        y = _one(d.emit("Reshape", [y, _one(d.emit("Shape", [x]))]))
    for op in ("Mul", "Add"):
        column = (channels, *[d.fixed(1)] * behind) if d.chance(0.8) else x.dims[-1:]
        y = _one(d.emit(op, [y, d.weight(np.float32, column, 0.95)]))
    if d.chance(0.8):
        d.hide(first, y)
    return y


GENERATORS: Mapping[str, object] = {
    "Repetition": repetition, "Negations": negations, "Slices": slices, "SliceGroups": slice_groups,
    "Products": products, "ParallelProducts": parallel_products, "Blocks": blocks, "ScaledImage": scaled_image,
    "ChannelNorm": channel_norm,
}  # fmt: skip
