"""Convolutions and pools on (N, C, spatial...) arrays, with numpy windows instead of loops over places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.reference.quantize import saturate

Attrs = Mapping[str, Any]


Ints = Sequence[int]


def padding(attrs: Attrs, spatial: Ints, reach: Ints, strides: Ints) -> list[tuple[int, int]]:
    """(before, after) along each spatial axis, from ``pads`` or ``auto_pad``."""
    n = len(spatial)
    auto = attrs.get("auto_pad", "NOTSET")
    if auto == "VALID":
        return [(0, 0)] * n
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        out = []
        for size, r, s in zip(spatial, reach, strides, strict=True):
            whole = max((-(-size // s) - 1) * s + r - size, 0)
            small, big = whole // 2, whole - whole // 2
            out.append((small, big) if auto == "SAME_UPPER" else (big, small))
        return out
    pads = attrs.get("pads") or (0,) * (2 * n)
    return list(zip(pads[:n], pads[n:], strict=True))


def _windows(x: np.ndarray, counts: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> np.ndarray:
    """A view of the padded ``x`` with shape (N, C, counts..., kernel...)."""
    steps = x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *counts, *kernel),
        (
            *x.strides[:2],
            *(s * t for s, t in zip(steps, strides, strict=True)),
            *(s * d for s, d in zip(steps, dilations, strict=True)),
        ),
        writeable=False,
    )


def _geometry(attrs: Attrs, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    ones = (1,) * n
    return tuple(attrs.get("strides") or ones), tuple(attrs.get("dilations") or ones)


def convolve(x: np.ndarray, w: np.ndarray, attrs: Attrs, fill: Any = 0) -> np.ndarray:
    """Convolution without bias; ``fill`` is the value of the padding."""
    n = x.ndim - 2
    strides, dilations = _geometry(attrs, n)
    group = int(attrs.get("group", 1))
    kernel = w.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = padding(attrs, x.shape[2:], reach, strides)
    if any(p != (0, 0) for p in pads):
        clipped = [(max(a, 0), max(b, 0)) for a, b in pads]
        cuts = [slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(pads, x.shape[2:], strict=True)]
        x = np.pad(x[(slice(None), slice(None), *cuts)], [(0, 0), (0, 0), *clipped], constant_values=fill)
    counts = [(size - r) // s + 1 for size, r, s in zip(x.shape[2:], reach, strides, strict=True)]
    per_in, per_out = w.shape[1], w.shape[0] // group
    out = np.zeros((x.shape[0], w.shape[0], *counts), dtype=np.result_type(x, w))
    if per_in == 1 and group > 1:
        tall = w.reshape(group, per_out, *kernel)
        target = out.reshape(x.shape[0], group, per_out, *counts)
        for offset in itertools.product(*map(range, kernel)):
            at = tuple(
                slice(o * d, o * d + (c - 1) * s + 1, s)
                for o, d, c, s in zip(offset, dilations, counts, strides, strict=True)
            )
            tap: tuple[Any, ...] = (slice(None), slice(None), *offset)
            factor = tall[tap].reshape(1, group, per_out, *(1,) * n)
            target += x[(slice(None), slice(None), *at)][:, :, None] * factor
        return out
    view = _windows(x, counts, kernel, strides, dilations)
    axes = [1, *range(2 + n, 2 + 2 * n)]
    for g in range(group):
        part = view[:, g * per_in : (g + 1) * per_in]
        filters = w[g * per_out : (g + 1) * per_out]
        result = contract(part, filters, axes, range(1, w.ndim))
        out[:, g * per_out : (g + 1) * per_out] = np.moveaxis(result, -1, 1)
    return out


def contract(a: np.ndarray, b: np.ndarray, axes_a: Sequence[int], axes_b: Sequence[int]) -> np.ndarray:
    """``np.tensordot``, which multiplies by a factor of one element that is zero as if NaN times zero were zero."""
    free_a, free_b = ([k for k in range(x.ndim) if k not in axes] for x, axes in ((a, axes_a), (b, axes_b)))
    rows, columns = [a.shape[k] for k in free_a], [b.shape[k] for k in free_b]
    depth = math.prod(a.shape[k] for k in axes_a)
    left = a.transpose(*free_a, *axes_a).reshape(math.prod(rows), depth)
    return np.asarray(left @ b.transpose(*axes_b, *free_b).reshape(depth, math.prod(columns))).reshape(*rows, *columns)


def _bias(y: np.ndarray, b: np.ndarray | None) -> np.ndarray:
    return y if b is None else y + b.reshape(1, -1, *(1,) * (y.ndim - 2))


def _conv(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, w = inputs[:2]
    b = inputs[2] if len(inputs) > 2 else None
    return [_bias(convolve(x, w, attrs), b)]


def _conv_integer(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, w = (a.astype(np.int32) for a in inputs[:2])
    if len(inputs) > 2 and inputs[2] is not None:
        x = x - inputs[2].astype(np.int32).reshape(())
    if len(inputs) > 3 and inputs[3] is not None:
        w = w - inputs[3].astype(np.int32).reshape(-1, *(1,) * (w.ndim - 1))
    return [convolve(x, w, attrs).astype(np.int32)]


def _qlinear_conv(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, xs, xz, w, ws, wz, ys, yz = inputs[:8]
    b = inputs[8] if len(inputs) > 8 else None
    tall = (-1, *(1,) * (w.ndim - 1))
    xi = x.astype(np.int32) - xz.astype(np.int32).reshape(())
    wi = w.astype(np.int32) - wz.astype(np.int32).reshape(tall)
    acc = _bias(convolve(xi, wi, attrs).astype(np.int32), b)
    scale = (xs.reshape(()) * ws.reshape(-1) / ys.reshape(())).astype(np.float32)
    scaled = np.rint(acc.astype(np.float32) * scale.reshape(1, -1, *(1,) * (x.ndim - 2)))
    return [saturate(scaled + yz.astype(np.float32).reshape(()), yz.dtype)]


def _conv_transpose(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, w = inputs[:2]
    b = inputs[2] if len(inputs) > 2 else None
    n = x.ndim - 2
    strides, dilations = _geometry(attrs, n)
    group = int(attrs.get("group", 1))
    kernel = w.shape[2:]
    extra = attrs.get("output_padding") or (0,) * n
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(size - 1) * s + r for size, s, r in zip(x.shape[2:], strides, reach, strict=True)]
    pads, sizes = transpose_padding(attrs, x.shape[2:], full, strides, extra)
    room = [max(f, size + before) for f, size, (before, _) in zip(full, sizes, pads, strict=True)]
    per_in = w.shape[0] // group
    y = np.zeros((x.shape[0], w.shape[1] * group, *room), dtype=x.dtype)
    for g in range(group):
        part = x[:, g * per_in : (g + 1) * per_in]
        filters = w[g * per_in : (g + 1) * per_in]
        target = y[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        for offset in itertools.product(*map(range, kernel)):
            at = tuple(
                slice(o * d, o * d + (size - 1) * s + 1, s)
                for o, d, size, s in zip(offset, dilations, x.shape[2:], strides, strict=True)
            )
            tap = filters[(slice(None), slice(None), *offset)]
            target[(slice(None), slice(None), *at)] += np.moveaxis(contract(part, tap, [1], [0]), -1, 1)
    cut = tuple(slice(before, before + size) for (before, _), size in zip(pads, sizes, strict=True))
    return [_bias(y[(slice(None), slice(None), *cut)], b)]


def transpose_padding(
    attrs: Attrs, spatial: Sequence[int], full: Sequence[int], strides: Sequence[int], extra: Sequence[int]
) -> tuple[list[tuple[int, int]], list[int]]:
    """Padding cut from a transposed convolution's full result, and the output sizes."""
    n = len(spatial)
    given = attrs.get("output_shape")
    auto = attrs.get("auto_pad", "NOTSET")
    if given or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = list(given[-n:]) if given else [d * s for d, s in zip(spatial, strides, strict=True)]
        out = []
        for f, e, size in zip(full, extra, sizes, strict=True):
            whole = max(f + e - size, 0)
            small, big = whole // 2, whole - whole // 2
            out.append((small, big) if auto == "SAME_UPPER" else (big, small))
        return out, sizes
    pads = (0,) * (2 * n) if auto == "VALID" else attrs.get("pads") or (0,) * (2 * n)
    pairs = list(zip(pads[:n], pads[n:], strict=True))
    return pairs, [f + e - a - b for f, e, (a, b) in zip(full, extra, pairs, strict=True)]


def _col2im(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    """Columns of blocks added up where they overlap."""
    x, size, block = inputs[0], inputs[1].tolist(), inputs[2].tolist()
    n = len(size)
    strides, dilations = _geometry(attrs, n)
    pads = attrs.get("pads") or (0,) * (2 * n)
    room = [s + a + b for s, a, b in zip(size, pads[:n], pads[n:], strict=True)]
    steps = [(r - d * (k - 1) - 1) // s + 1 for r, d, k, s in zip(room, dilations, block, strides, strict=True)]
    if min(steps) < 0 or x.shape[2] != np.prod(steps) or x.shape[1] % np.prod(block):
        raise ValueError(f"expected columns of blocks {block} at {steps} places, got {x.shape[1:]}")
    parts = x.reshape(x.shape[0], x.shape[1] // int(np.prod(block)), *block, *steps)
    y = np.zeros((*parts.shape[:2], *room), x.dtype)
    for offset in itertools.product(*map(range, block)):
        at = (
            slice(o * d, o * d + (c - 1) * s + 1, s) if c else slice(0)
            for o, d, c, s in zip(offset, dilations, steps, strides, strict=True)
        )
        y[(slice(None), slice(None), *at)] += parts[(slice(None), slice(None), *offset)]
    cut = (slice(a, a + s) for a, s in zip(pads[:n], size, strict=True))
    return [np.ascontiguousarray(y[(slice(None), slice(None), *cut)])]


def _pool_view(attrs: Attrs, x: np.ndarray, fill: Any) -> tuple[np.ndarray, list[tuple[int, int]], list[int]]:
    """Windows of ``x`` padded with ``fill`` (also where ceil_mode looks past the end): view, pads, window counts."""
    n = x.ndim - 2
    kernel = attrs["kernel_shape"]
    strides, dilations = _geometry(attrs, n)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = padding(attrs, x.shape[2:], reach, strides)
    counts, ends = [], []
    for size, r, s, (before, after) in zip(x.shape[2:], reach, strides, pads, strict=True):
        free = size + before + after - r
        count = free // s + 1
        if attrs.get("ceil_mode") and attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
            count = -(-free // s) + 1
            if (count - 1) * s >= size + before:
                count -= 1
        counts.append(count)
        ends.append((before, max(after, (count - 1) * s + r - size - before)))
    padded = np.pad(x, [(0, 0), (0, 0), *ends], constant_values=fill)
    return _windows(padded, counts, kernel, strides, dilations), pads, counts


def _max_pool(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
    x = inputs[0]
    n = x.ndim - 2
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    view, _, counts = _pool_view(attrs, x, low)
    tail = tuple(range(2 + n, 2 + 2 * n))
    y = view.max(axis=tail)
    if n_outputs == 1:
        return [y]
    flat = np.arange(int(np.prod(x.shape)), dtype=np.int64).reshape(x.shape)
    if attrs.get("storage_order"):
        order = (0, 1, *range(x.ndim - 1, 1, -1))
        flat = np.arange(flat.size, dtype=np.int64).reshape([x.shape[i] for i in order]).transpose(np.argsort(order))
    places, _, _ = _pool_view(attrs, flat, -1)
    flat_view = (*x.shape[:2], *counts, int(np.prod(view.shape[2 + n :])))
    values, inside = view.reshape(flat_view), places.reshape(flat_view)
    top = y[..., None]
    best = np.argmax(((values == top) | (np.isnan(values) & np.isnan(top))) & (inside >= 0), axis=-1)
    return [y, np.take_along_axis(inside, best[..., None], axis=-1)[..., 0]]


def _average_pool(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x = inputs[0]
    n = x.ndim - 2
    view, pads, counts = _pool_view(attrs, x, 0)
    tail = tuple(range(2 + n, 2 + 2 * n))
    ones = np.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if attrs.get("count_include_pad"):
        ones = np.pad(ones, [(0, 0), (0, 0), *pads], constant_values=1)
        strides, dilations = _geometry(attrs, n)
        kernel = attrs["kernel_shape"]
        need = [(c - 1) * s + (k - 1) * d + 1 for c, s, k, d in zip(counts, strides, kernel, dilations, strict=True)]
        more = [(0, max(want - have, 0)) for want, have in zip(need, ones.shape[2:], strict=True)]
        weight = _windows(np.pad(ones, [(0, 0), (0, 0), *more]), counts, kernel, strides, dilations)
    else:
        weight = _pool_view(attrs, ones, 0)[0]
    return [(view.sum(axis=tail) / weight.sum(axis=tail)).astype(x.dtype)]


def _lp_pool(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x = inputs[0]
    n = x.ndim - 2
    p = attrs.get("p", 2)
    view = _pool_view(attrs, np.abs(x), 0)[0]
    return [(np.power(view, p).sum(axis=tuple(range(2 + n, 2 + 2 * n))) ** (1.0 / p)).astype(x.dtype)]


def _global(reduce: Callable[..., np.ndarray]) -> Callable[[Attrs, Sequence[Any], int], list[object]]:
    def run(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
        x = inputs[0]
        if 0 in x.shape[:2]:  # no channels, whatever the images: numpy has no maximum of nothing, for nobody either
            return [np.zeros((*x.shape[:2], *[1] * (x.ndim - 2)), x.dtype)]
        return [reduce(x, axis=tuple(range(2, x.ndim)), keepdims=True).astype(x.dtype)]

    return run


def _global_lp(attrs: Attrs, inputs: Sequence[Any], _: int) -> list[object]:
    x, p = inputs[0], attrs.get("p", 2)
    total = (np.abs(x) ** p).sum(axis=tuple(range(2, x.ndim)), keepdims=True)
    return [(total ** (1.0 / p)).astype(x.dtype)]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "Col2Im": _col2im,
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
    "QLinearConv": _qlinear_conv,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "LpPool": _lp_pool,
    "GlobalAveragePool": _global(np.mean),
    "GlobalMaxPool": _global(np.max),
    "GlobalLpPool": _global_lp,
}
