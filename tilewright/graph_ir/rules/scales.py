"""Per-channel scales and shifts folded into the weights of the convolution or product next to them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, fixed_shape, int_attr, ints_attr

_CONVS = ("Conv", "ConvTranspose")
_EPSILON = float(np.float32(1e-5))


def _batchnorm_terms(m: Match) -> tuple[np.ndarray, np.ndarray]:
    """``(k, b)`` with ``BatchNormalization(x) == x * k + b`` per channel, in float64."""
    eps = m.root.attr("epsilon", _EPSILON)
    scale, shift, mean, var = (m.array(k).astype(np.float64) for k in ("scale", "shift", "mean", "var"))
    with np.errstate(all="ignore"):  # what a variance below zero gives, it gives in the run, too
        k = scale / np.sqrt(var + float(eps))  # type: ignore[arg-type]
        return k, shift - mean * k


def _inference(m: Match) -> str | None:
    if int_attr(m.root, "training_mode", 0):
        return "training_mode is set"
    return None


def _scale_weight(m: Match, k: np.ndarray) -> np.ndarray:
    """The convolution's or Gemm's weight with output channel ``c`` multiplied by ``k[c]``."""
    node, w = m.node("dot"), m.array("w")
    k = k.astype(np.float64)
    if node.op == "Gemm":
        shaped = k[:, None] if int_attr(node, "transB", 0) else k[None, :]
    elif node.op == "Conv":
        shaped = k.reshape((-1,) + (1,) * (w.ndim - 1))
    else:
        groups = int_attr(node, "group", 1)
        per_input = np.repeat(k.reshape(groups, -1), w.shape[0] // groups, axis=0)
        shaped = per_input.reshape(per_input.shape + (1,) * (w.ndim - 2))
    return np.asarray(w * shaped, dtype=w.dtype)


def _channels(m: Match) -> int:
    node, w = m.node("dot"), m.constant("w")
    if node.op == "Gemm":
        return int(w.shape[0 if int_attr(node, "transB", 0) else 1])
    if node.op == "Conv":
        return int(w.shape[0])
    return int(w.shape[1]) * int_attr(node, "group", 1)


def _old_bias(m: Match) -> np.ndarray | None:
    """The bias as one number per channel (zeros if absent); None if it is computed or of another shape."""
    node, n = m.node("dot"), _channels(m)
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    if not name:
        return np.zeros(n)
    array = m.editor.array(name)
    if array is None or array.size not in (1, n) or array.shape[-1:] not in ((n,), (1,), ()):
        return None
    beta = node.attr("beta", 1.0) if node.op == "Gemm" else 1.0
    return np.broadcast_to(array.astype(np.float64).reshape(-1) * float(beta), (n,))  # type: ignore[arg-type]


def _is_plain(m: Match) -> bool:
    """Floating-point weights and the layout of ONNX."""
    return m.dtype("w").is_float and m.node("dot").attr("data_layout", "NCHW") == "NCHW"


def _foldable(m: Match) -> str | None:
    if not _is_plain(m):
        return NOT_HERE
    if _old_bias(m) is None:
        return "the bias is not one constant number a channel"
    return None


def _overflow(m: Match, like: str, *terms: np.ndarray, weight: np.ndarray | None = None) -> str | None:
    """Why ``terms`` cannot be constants of the type of ``like``, nor the first of them times a weight: they leave its
    range, which the unfolded sum need not."""
    limit = float(ml_dtypes.finfo(m.dtype(like).numpy).max)  # type: ignore[no-untyped-call]
    sizes = [float(np.abs(t).max(initial=0)) for t in terms]
    if weight is not None and weight.size:
        sizes.append(sizes[0] * max(float(weight.max()), -float(weight.min())))
    return None if all(n <= limit for n in sizes) else f"a factor or a shift leaves the range of {m.dtype(like)}"


def _bn_foldable(m: Match) -> str | None:
    if (why := _inference(m) or _foldable(m)) is not None:
        return why
    k, b = _batchnorm_terms(m)
    old = _old_bias(m)
    return _overflow(m, "w", k, b if old is None else old * k + b, weight=m.array("w"))


def _rebuild(m: Match, k: np.ndarray | None, b: np.ndarray) -> str:
    """The node with weight scaled by ``k`` and the new bias ``b`` (both one number per channel)."""
    node = m.node("dot")
    w = m["w"] if k is None else m.const(_scale_weight(m, k))
    attrs = dict(node.attrs)
    if node.op == "Gemm":
        attrs["beta"] = 1.0
    return m.op(node.op, m["x"], w, m.const(b, like="w"), **attrs)


def _fold_batchnorm(m: Match) -> str:
    k, b = _batchnorm_terms(m)
    old = _old_bias(m)
    return _rebuild(m, k, b if old is None else old * k + b)


def _per_channel(m: Match) -> np.ndarray | None:
    """Constant ``c`` as one number per output channel of a convolution; None if it varies otherwise."""
    c, n, shape = m.array("c"), _channels(m), m.out_shape
    if shape is None or m.shape("dotted") != shape:
        return None
    padded = (1,) * (len(shape) - c.ndim) + c.shape
    if len(padded) != len(shape) or any(d != 1 for k, d in enumerate(padded) if k != 1) or padded[1] not in (1, n):
        return None
    return np.broadcast_to(c.astype(np.float64).reshape(-1), (n,))


def _channelwise(m: Match) -> str | None:
    m.names["dotted"] = m.node("dot").outputs[0]
    c = _per_channel(m)
    if c is None:
        return NOT_HERE
    old, why = _old_bias(m), _foldable(m)
    if old is None or why is not None:
        return why
    if m.root.op == "Add":
        return _overflow(m, "w", old + c)
    return _overflow(m, "w", c, old * c, weight=m.array("w"))


def _fold_scale(m: Match) -> str:
    k, old = _per_channel(m), _old_bias(m)
    if k is None or old is None:
        return m.output
    has_bias = len(m.node("dot").inputs) > 2 and m.node("dot").inputs[2]
    if not has_bias:
        return m.op(m.node("dot").op, m["x"], m.const(_scale_weight(m, k)), **dict(m.node("dot").attrs))
    return _rebuild(m, k, old * k)


def _fold_shift(m: Match) -> str:
    b, old = _per_channel(m), _old_bias(m)
    return m.output if b is None or old is None else _rebuild(m, None, old + b)


def _spatial(m: Match) -> str | None:
    if m.shape("x") is None or fixed_shape(m.shape("scale")) is None:
        return NOT_HERE
    return _inference(m) or _overflow(m, "x", *_batchnorm_terms(m))


def _batchnorm_as_affine(m: Match) -> str:
    k, b = _batchnorm_terms(m)
    rank = len(m.shape("x") or ())
    dims = (-1,) + (1,) * (rank - 2) if rank > 1 else (-1,)
    scaled = m.op("Mul", m["x"], m.const(k.reshape(dims), like="x"))
    return m.op("Add", scaled, m.const(b.reshape(dims), like="x"))


def _excited(m: Match) -> str | None:
    """Asks for a 1x1 convolution whose input is scaled by one number per channel, fewer weights than the input has
    elements, and one image, as each has a scale of its own."""
    x, s, w = m.shape("x"), m.shape("s"), m.constant("w").shape
    if x is None or s is None or not _is_plain(m) or int_attr(m.node("dot"), "group", 1) != 1:
        return NOT_HERE
    sizes, scales, ones = [d.value() for d in x], [d.value() for d in s], [1] * (len(w) - 2)
    if list(w[2:]) != ones or scales != [1, w[1], *ones] or sizes[:2] != [1, w[1]] or len(sizes) != len(w):
        return NOT_HERE
    out_channels, pixels = w[0], math.prod(d or 0 for d in sizes[2:])
    if pixels <= 1:
        return NOT_HERE
    if pixels < m.editor.ctx.costs.packed_weight * out_channels:
        return f"to scale {out_channels} weights a channel takes longer than {pixels} pixels"
    return None


def _excite_weight(m: Match) -> str:
    node = m.node("dot")
    bias = [b for b in node.inputs[2:3] if b]
    return m.op("Conv", m["x"], m.op("Mul", m["w"], m["s"]), *bias, **dict(node.attrs))


def _before(m: Match) -> np.ndarray | None:
    """The constant in front of a convolution as one number per input channel; None if it varies otherwise."""
    x, c, w = m.shape("x"), m.array("c"), m.constant("w")
    node = m.node("dot")
    if x is None or len(w.shape) != len(x) or x != m.editor.value(m.node("in").outputs[0]).shape or len(x) < 3:
        return None
    n = w.shape[1] * int_attr(node, "group", 1) if node.op == "Conv" else w.shape[0]
    padded = (1,) * (len(x) - c.ndim) + c.shape
    if len(padded) != len(x) or any(d != 1 for k, d in enumerate(padded) if k != 1) or padded[1] not in (1, n):
        return None
    flat = np.broadcast_to(c.astype(np.float64).reshape(-1), (n,))
    if m.node("in").op in ("Mul", "Add"):
        return flat
    with np.errstate(divide="ignore"):
        return 1.0 / flat if m.node("in").op == "Div" else -flat


def _in_front(m: Match) -> str | None:
    inner = m.node("in")
    if not _is_plain(m) or (inner.op in ("Div", "Sub") and inner.inputs[0] != m["x"]):
        return NOT_HERE
    c = _before(m)
    if c is None:
        return NOT_HERE
    if inner.op in ("Mul", "Div"):
        return _overflow(m, "w", c, weight=m.array("w"))
    node = m.node("dot")
    if node.attr("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or any(ints_attr(node, "pads") or ()):
        return "zeros around the image would be shifted, too"
    old, why = _old_bias(m), _foldable(m)
    return why if old is None or why is not None else _overflow(m, "w", old + _summed(m, c))


def _scale_inputs(m: Match) -> str:
    c, w, node = _before(m), m.array("w"), m.node("dot")
    if c is None:
        return m.output
    if node.op == "Conv":  # [outputs, inputs of a group, ...]: each group has its own part of the channels
        groups = int_attr(node, "group", 1)
        rows = np.repeat(c.reshape(groups, w.shape[1]), w.shape[0] // groups, axis=0)
    else:
        rows = c[:, None]
    weight = np.asarray(w * rows.reshape(rows.shape + (1,) * (w.ndim - 2)), dtype=w.dtype)
    return m.op(node.op, m["x"], m.const(weight), *node.inputs[2:], **dict(node.attrs))


def _summed(m: Match, c: np.ndarray) -> np.ndarray:
    """What a convolution without padding makes of an image that has ``c[k]`` everywhere in channel ``k``."""
    w, groups = m.array("w").astype(np.float64), int_attr(m.node("dot"), "group", 1)
    kernels = w.reshape(groups, w.shape[0] // groups, w.shape[1], -1).sum(axis=-1)
    return np.asarray((kernels * c.reshape(groups, 1, w.shape[1])).sum(axis=-1).reshape(-1))


def _shift_inputs(m: Match) -> str:
    c, old = _before(m), _old_bias(m)
    return m.output if c is None or old is None else _rebuild(m, None, old + _summed(m, c))


_BN = (C("scale"), C("shift"), C("mean"), C("var"))

RULES: tuple[Rule, ...] = (
    Rule(
        "batchnorm_into_conv",
        "BatchNormalization(Conv(x, w, b)) --> Conv(x, k*w, k*b + shift - k*mean), k = scale/sqrt(var+eps)",
        P("BatchNormalization", P((*_CONVS, "Gemm"), "x", C("w"), rest=True, at="dot"), *_BN),
        _fold_batchnorm,
        _bn_foldable,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "scale_into_conv",
        "Mul(Conv(x, w, b), c) --> Conv(x, c*w, c*b), c one number per channel",
        P("Mul", P(_CONVS, "x", C("w"), rest=True, at="dot"), C("c")),
        _fold_scale,
        _channelwise,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "shift_into_conv",
        "Add(Conv(x, w, b), c) --> Conv(x, w, b + c), c one number per channel",
        P("Add", P(_CONVS, "x", C("w"), rest=True, at="dot"), C("c")),
        _fold_shift,
        _channelwise,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "scale_before_conv",
        "Conv(Mul(x, c), w, b) --> Conv(x, c*w, b), c one number per channel; also Div",
        P(_CONVS, P(("Mul", "Div"), "x", C("c"), at="in"), C("w"), rest=True, at="dot"),
        _scale_inputs,
        _in_front,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "shift_before_conv",
        "Conv(Add(x, c), w, b) --> Conv(x, w, b + sum(c*w)) without padding, c one number per channel; also Sub",
        P("Conv", P(("Add", "Sub"), "x", C("c"), at="in"), C("w"), rest=True, at="dot"),
        _shift_inputs,
        _in_front,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)

BATCHNORM_AS_AFFINE: tuple[Rule, ...] = (
    Rule(
        "batchnorm_as_affine",
        "BatchNormalization(x) --> Add(Mul(x, k), b)",
        P("BatchNormalization", "x", *_BN),
        _batchnorm_as_affine,
        _spatial,
        Exactness.REASSOCIATING,
    ),
)

WEIGHTS_AT_RUN_TIME: tuple[Rule, ...] = (
    Rule(
        "scale_of_input_into_weight",
        "Conv(Mul(x, s), w, b) --> Conv(x, Mul(w, s), b), s one number per channel (squeeze and excite), w 1x1",
        P("Conv", P("Mul", "x", "s"), C("w"), rest=True, at="dot"),
        _excite_weight,
        _excited,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
