"""Convolutions and pools, one to three spatial axes, with every attribute."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 3.5

FLOATS = [np.float32, np.float32, np.float32, np.float32, np.float64, np.float16]


def image(d: Draft, channels: int, least: int, n: int | None = None, types: list[object] | None = None) -> Val:
    """A new or present image with this many channels, each side at least ``least``."""
    n = n or d.one_of([1, 2, 2, 2, 3])
    t = np.dtype(d.one_of(types or FLOATS))
    if d.chance(0.5):
        found = d.pick(lambda v: v.is_tensor and v.dtype == t and v.rank == n + 2 and set(v.dims[1]) == {channels}
                       and all(min(s) >= least for s in v.dims[2:]))  # fmt: skip
        if found is not None:
            return found
    dims = [d.dim(True), d.fixed(channels)]
    for _ in range(n):
        s = d.dim(small=n > 1)
        dims.append(tuple(max(x, least) for x in s))
    return d.new(t, dims, 0.05)


def geometry(d: Draft, n: int, kernel: list[int], dilate: bool = True, auto: bool = True) -> dict[str, object]:
    """Strides, dilations, and pads or auto_pad."""
    attrs: dict[str, object] = {}
    if d.chance(0.5):
        attrs["strides"] = [d.one_of([1, 2, 2, 3]) for _ in range(n)]
    if dilate and d.chance(0.3):
        attrs["dilations"] = [d.one_of([1, 2, 3]) for _ in range(n)]
    choice = d.rng.random()
    if auto and choice < 0.2:
        attrs["auto_pad"] = d.one_of(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif choice < 0.75:
        symmetric = [d.integer(0, max(0, k - 1)) for k in kernel]
        attrs["pads"] = symmetric * 2 if d.chance(0.5) else symmetric + [d.integer(0, max(0, k - 1)) for k in kernel]
    return attrs


def _reach(kernel: list[int], attrs: Mapping[str, object]) -> int:
    dilations = attrs.get("dilations", [1] * len(kernel))
    return max((k - 1) * s + 1 for k, s in zip(kernel, dilations, strict=True))  # type: ignore[call-overload]


def conv(d: Draft) -> object:
    n = d.one_of([1, 2, 2, 2, 3])
    kernel = [d.one_of([1, 1, 2, 3, 3, 5]) if n < 3 else d.one_of([1, 2, 3]) for _ in range(n)]
    if d.chance(0.4):
        kernel = [kernel[0]] * n
    groups = d.one_of([1, 1, 1, 1, 2, 3])
    per_in, per_out = d.one_of([1, 2, 3, 4, 8, 33]), d.one_of([1, 2, 3, 5, 8, 17, 33])
    if d.chance(0.15):
        groups, per_in, per_out = d.one_of([3, 8, 16, 17]), 1, d.one_of([1, 1, 2])  # depthwise
    elif d.wild:
        groups = 1  # narrow groups are computed as one with zeros between them, which a NaN gets across
    attrs = geometry(d, n, kernel)
    x = image(d, groups * per_in, _reach(kernel, attrs), n)
    w = d.weight(x.dtype, (groups * per_out, per_in, *kernel), 0.85)
    bias = [d.weight(x.dtype, (groups * per_out,), 0.85)] if d.chance(0.6) else []
    if groups > 1:
        attrs["group"] = groups
    if d.chance(0.7):
        attrs["kernel_shape"] = kernel
    (y,) = d.emit("Conv", [x, w, *bias], attrs)
    return _behind(d, y)


def _behind(d: Draft, y: Val) -> Val:
    """Often what stands behind a convolution: a norm, a residual, an activation."""
    if d.chance(0.25) and y.dtype == np.float32:
        c = (y.dims[1],)
        scale, bias, mean = (d.new(y.dtype, c, 1.0) for _ in range(3))
        (y,) = d.emit("BatchNormalization", [y, scale, bias, mean, d.new(y.dtype, c, 1.0, "positive")])
    if d.chance(0.15):
        (y,) = d.emit("Add", [y, d.like(y, constant=0.0)])
    if d.chance(0.4):
        (y,) = d.emit(d.one_of(["Relu", "Sigmoid", "LeakyRelu", "Tanh"]), [y])
    return y


def conv_transpose(d: Draft) -> object:
    n = d.one_of([1, 2, 2, 2, 3])
    kernel = [d.one_of([1, 2, 3, 4]) for _ in range(n)]
    groups = d.one_of([1, 1, 1, 2, 3])
    per_in, per_out = d.one_of([1, 2, 3, 4, 8, 17]), d.one_of([1, 2, 3, 5, 8, 17])
    attrs = geometry(d, n, kernel)
    strides = attrs.get("strides", [1] * n)
    dilations = attrs.get("dilations", [1] * n)
    if d.chance(0.4):
        room = [max(s, g) for s, g in zip(strides, dilations, strict=True)]  # type: ignore[call-overload]
        attrs["output_padding"] = [d.integer(0, r - 1) for r in room]
    x = image(d, groups * per_in, 1, n)
    if d.chance(0.15) and x.is_static:
        sizes = [(x.shape[2 + k] - 1) * strides[k] + (kernel[k] - 1) * dilations[k] + 1 for k in range(n)]  # type: ignore[index]
        attrs["output_shape"] = [max(1, s - d.integer(0, 2)) for s in sizes]
        attrs.pop("pads", None)
        attrs.pop("output_padding", None)
    w = d.weight(x.dtype, (groups * per_in, per_out, *kernel), 0.85)
    bias = [d.weight(x.dtype, (groups * per_out,), 0.85)] if d.chance(0.5) else []
    if groups > 1:
        attrs["group"] = groups
    return d.emit("ConvTranspose", [x, w, *bias], attrs)


def _pool(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        n = d.one_of([1, 2, 2, 2, 3])
        kernel = [d.one_of([1, 2, 3, 3, 4]) for _ in range(n)]
        dilate = d.opset >= (10 if op == "MaxPool" else 19 if op == "AveragePool" else 18)
        attrs = geometry(d, n, kernel, dilate)
        if d.opset >= (10 if op != "LpPool" else 18) and d.chance(0.4):
            attrs["ceil_mode"] = 1
        if op == "AveragePool" and d.chance(0.5):
            attrs["count_include_pad"] = 1
        if op == "LpPool":
            attrs["p"] = d.integer(1, 3)
        types: list[object] = FLOATS
        if op == "MaxPool" and d.opset >= 12 and d.chance(0.15):
            types = [np.int8, np.uint8]
        x = image(d, d.integer(1, 5), _reach(kernel, attrs), n, types)
        attrs["kernel_shape"] = kernel
        if op == "MaxPool" and d.chance(0.35):
            if d.chance(0.3):
                attrs["storage_order"] = 1
            return d.emit(op, [x], attrs, [d.chance(0.8), True])
        return d.emit(op, [x], attrs)

    return generate


def max_unpool(d: Draft) -> object:
    sides = [tuple(2 * max(1, s) for s in d.dim(small=True)) for _ in range(2)]
    x = d.new(np.float32, (d.dim(True), d.fixed(d.integer(1, 3)), *sides), 0.1)
    (values, places) = d.emit("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [2, 2]}, 2)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if d.chance(0.4) and values.is_static:
        whole = [*values.shape[:2], *(2 * s + d.integer(0, 1) for s in values.shape[2:])]
        return d.emit("MaxUnpool", [values, places, d.ints(whole)], attrs)
    return d.emit("MaxUnpool", [values, places], attrs)


def _global(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        x = d.tensor([d.one_of(FLOATS)], range(3, 6), small=True)
        return d.emit(op, [x], {"p": d.integer(1, 3)} if op == "GlobalLpPool" else {})

    return generate


def conv_integer(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    kernel = [d.integer(1, 3) for _ in range(2)]
    attrs = geometry(d, 2, kernel)
    x = image(d, d.one_of([1, 2, 3, 4, 17]), _reach(kernel, attrs), 2, [np.uint8])
    w = d.weight(np.uint8, (d.one_of([1, 2, 3, 9, 33]), *x.dims[1:2], *kernel), 0.9)
    zero = [d.scalar(d.integer(0, 200), np.uint8)] if d.chance(0.6) else []
    if zero and d.chance(0.5):
        zero.append(d.scalar(d.integer(0, 200), np.uint8))
    return d.emit("ConvInteger", [x, w, *zero], attrs)


def deform_conv(d: Draft) -> object:
    if d.opset < 19:
        raise Rejected("from 19 on")
    groups, offsets = d.one_of([1, 1, 2]), d.one_of([1, 1, 2])
    c = groups * offsets * d.integer(1, 2)
    k = [d.integer(1, 3), d.integer(1, 3)]
    strides, pads = [d.integer(1, 2) for _ in k], [d.integer(0, 1) for _ in range(4)]
    x = d.new(np.float32, (d.integer(1, 2), c, d.integer(3, 7), d.integer(3, 8)), 0.1)
    out = [(x.shape[2 + i] + pads[i] + pads[2 + i] - k[i]) // strides[i] + 1 for i in range(2)]
    w = d.weight(np.float32, (groups * d.integer(1, 3), c // groups, *k), 0.8)
    shift = d.new(np.float32, (x.shape[0], offsets * k[0] * k[1] * 2, *out), 0.2)
    operands: list[Val | None] = [x, w, shift]
    if d.chance(0.5):
        operands.append(d.weight(np.float32, (w.shape[0],), 0.8))
        if d.chance(0.5):
            operands.append(d.new(np.float32, (x.shape[0], offsets * k[0] * k[1], *out), 0.2))
    attrs = {"group": groups, "offset_group": offsets, "strides": strides, "pads": pads, "kernel_shape": k}
    return d.emit("DeformConv", operands, attrs)


def col2im(d: Draft) -> object:
    if d.opset < 18:
        raise Rejected("from 18 on")
    n = d.one_of([1, 2, 2])
    size, block = [d.integer(3, 8) for _ in range(n)], [d.integer(1, 3) for _ in range(n)]
    pads, strides = [d.integer(0, 1) for _ in range(2 * n)], [d.integer(1, 2) for _ in range(n)]
    dilations = [d.one_of([1, 1, 2]) for _ in range(n)]
    steps = [(size[i] + pads[i] + pads[n + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(n)]
    if min(steps) < 1:
        raise Rejected("no step fits")
    x = d.new(np.float32, (d.dim(True), d.integer(1, 3) * int(np.prod(block)), int(np.prod(steps))), 0.1)
    attrs = {"pads": pads, "strides": strides, "dilations": dilations}
    return d.emit("Col2Im", [x, d.ints(size), d.ints(block)], attrs)


GENERATORS: Mapping[str, object] = {
    "Conv": conv, "ConvAgain": conv, "ConvTranspose": conv_transpose, "ConvInteger": conv_integer,
    "DeformConv": deform_conv, "Col2Im": col2im, "MaxUnpool": max_unpool,
    **{op: _pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: _global(op) for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")},
}  # fmt: skip
