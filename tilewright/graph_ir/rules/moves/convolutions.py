"""What stands in front of a convolution and only moves or pads elements goes into its weight or its attributes."""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, int_attr, ints_attr


def _is_plain(m: Match) -> bool:
    """The layout of ONNX, and no padding that follows from the input's size."""
    node = m.node("conv")
    return node.attr("data_layout", "NCHW") == "NCHW" and node.attr("auto_pad", "NOTSET") == "NOTSET"


def _order(m: Match) -> np.ndarray | None:
    """The Gather's indices if they are a permutation of the channels."""
    indices, channels = m.array("indices"), m.constant("w").shape[1]
    if indices.ndim != 1 or indices.size != channels:
        return None
    places = indices.astype(np.int64) % channels
    return places if np.array_equal(np.sort(places), np.arange(channels)) else None


def _channels_move(m: Match) -> str | None:
    shape = m.shape("x")
    if shape is None or len(m.constant("w").shape) != len(shape) or int_attr(m.node("gather"), "axis", 0) != 1:
        return NOT_HERE
    if int_attr(m.node("conv"), "group", 1) != 1 or not _is_plain(m):
        return NOT_HERE
    return None if _order(m) is not None and shape[1].value() == m.constant("w").shape[1] else NOT_HERE


def _move_channels(m: Match) -> str:
    order, w, conv = _order(m), m.array("w"), m.node("conv")
    weight = np.empty_like(w)
    weight[:, order] = w
    return m.op("Conv", m["x"], m.const(weight), *conv.inputs[2:], **dict(conv.attrs))


def _is_blocked(m: Match) -> str | None:
    """Guard: a convolution with two spatial axes and no gaps; whole blocks."""
    x, w, conv = m.shape("x"), m.constant("w").shape, m.node("conv")
    if x is None or len(w) != 4 or x[1].value() is None or not _is_plain(m) or int_attr(conv, "group", 1) != 1:
        return NOT_HERE
    if any(d != 1 for d in ints_attr(conv, "dilations") or ()):
        return "a convolution with gaps has none that reads the pixels themselves"
    return None


def _by_pixels(m: Match) -> str:
    conv, w, b = m.node("conv"), m.array("w"), int_attr(m.node("blocks"), "blocksize", 1)
    out, depth, height, width = w.shape
    blocks = w.reshape(out, b, b, depth // (b * b), height, width)
    weight = blocks.transpose(0, 3, 4, 1, 5, 2).reshape(out, depth // (b * b), height * b, width * b)
    attrs = dict(conv.attrs)
    attrs |= {
        "strides": tuple(s * b for s in ints_attr(conv, "strides") or (1, 1)),
        "pads": tuple(p * b for p in ints_attr(conv, "pads") or (0, 0, 0, 0)),
        "kernel_shape": (height * b, width * b),
    }
    return m.op("Conv", m["x"], m.const(np.ascontiguousarray(weight)), *conv.inputs[2:], **attrs)


def _pads(m: Match) -> tuple[int, ...] | None:
    """Zeros in front of and behind each spatial axis; None if the Pad does anything else."""
    node, shape = m.node("pad"), m.shape("x")
    if shape is None or node.attr("mode", "constant") not in ("constant", None):
        return None
    pads = m.ints(node.inputs[1])
    axes = m.ints(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else tuple(range(len(shape)))
    if len(node.inputs) > 2 and node.inputs[2]:
        value = m.editor.array(node.inputs[2])
        if value is None or value.size != 1 or bool(value.reshape(-1)[0] != 0):
            return None
    if pads is None or axes is None or min(pads, default=0) < 0:
        return None
    both = {a % len(shape): (pads[k], pads[len(axes) + k]) for k, a in enumerate(axes)}
    if any(both.get(a, (0, 0)) != (0, 0) for a in (0, 1)):
        return None
    spatial = [both.get(a, (0, 0)) for a in range(2, len(shape))]
    return tuple(p[0] for p in spatial) + tuple(p[1] for p in spatial)


def _zeros_around(m: Match) -> str | None:
    if m.shape("x") is None or not _is_plain(m):
        return NOT_HERE
    return None if _pads(m) is not None else "the Pad adds other numbers than zeros, or around other axes"


def _pad_itself(m: Match) -> str:
    conv, new = m.node("conv"), _pads(m) or ()
    old = ints_attr(conv, "pads") or (0,) * len(new)
    attrs = dict(conv.attrs) | {"pads": tuple(a + b for a, b in zip(old, new, strict=True))}
    return m.op("Conv", m["x"], *conv.inputs[1:], **attrs)


RULES: tuple[Rule, ...] = (
    Rule(
        "channels_into_conv",
        "Conv(Gather(x, order, axis=1), w) --> Conv(x, w'), the channels of the weight moved instead",
        P("Conv", P("Gather", "x", C("indices"), at="gather"), C("w"), rest=True, at="conv"),
        _move_channels,
        _channels_move,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "space_to_depth_into_conv",
        "Conv(SpaceToDepth(x, b), w) --> Conv(x, w'), a kernel and strides b times as large",
        P("Conv", P("SpaceToDepth", "x", at="blocks"), C("w"), rest=True, at="conv"),
        _by_pixels,
        _is_blocked,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "pad_into_conv",
        "Conv(Pad(x, zeros), w) --> Conv(x, w) with larger pads",
        P("Conv", P("Pad", "x", "pads", rest=True, at="pad"), rest=True, at="conv"),
        _pad_itself,
        _zeros_around,
        exclusive=True,
    ),
)
