"""Quantizations and dequantizations: moved, joined, made unsigned, and their scales folded into factors.

What only moves numbers moves bytes. A quantization takes its scale into the factors before it: what is rounded is then
one product and one sum, as in onnxruntime's kernels of quantized operators.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import InternalError
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule
from tilewright.graph_ir.rules.integer_products import BYTES, dequantized, is_single, per_tensor, zero_of
from tilewright.graph_ir.rules.noops import can_pass_through

# -- what only moves numbers ---------------------------------------------------------------------------------------
_READERS = ("DequantizeLinear", "ConvInteger", "MatMulInteger")
_MOVES = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Slice", "DepthToSpace", "SpaceToDepth")


def _move_guard(m: Match) -> str | None:
    if m.dtype("q") not in BYTES or not per_tensor(m, "d") or len(m.root.outputs) > 1:
        return NOT_HERE
    if m.editor.constant(m["q"]) is not None:
        return NOT_HERE
    scale = m.editor.array(m["s"])
    if m.root.op == "MaxPool" and (scale is None or not bool((scale > 0).all())):
        return "the scale may be negative"
    return None


def _moved(m: Match) -> str:
    node = m.node("d")
    q = m.op(m.root.op, m["q"], *m.root.inputs[1:], **dict(m.root.attrs))
    attrs = {k: v for k, v in node.attrs if k != "axis"}
    return m.op("DequantizeLinear", q, *node.inputs[1:], **attrs)


def _parameter(m: Match, name: str) -> float | None:
    """A constant scale or zero point, 0 if it is absent; None if it is not one number."""
    array = m.editor.array(name) if name else np.zeros(())
    return float(array.reshape(())) if array is not None and array.size == 1 else None


def _same_parameters(m: Match) -> str | None:
    """Guard: what is quantized was dequantized with the same scale, above 0, and the same zero point."""
    if m.dtype("q") != m.editor.value(m.output).dtype or {m.dtype("s"), m.dtype("t")} != {dtypes.float32}:
        return NOT_HERE
    zero = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    s, t, z, y = (_parameter(m, x) for x in (m["s"], m["t"], zero_of(m, "d"), zero))
    return NOT_HERE if s is None or z is None or s != t or z != y or s <= 0 else None


def _undone(m: Match) -> str | None:
    refusal = _same_parameters(m)
    return can_pass_through(m, "q") if refusal is None else refusal


# -- what moves numbers before they are quantized -------------------------------------------------------------------
_MORE = ("Concat", "Pad", "Resize")
"""What moves at least as many numbers as it reads."""
_PAD_VALUE = 2


def _sources(node: Node) -> tuple[str, ...]:
    """What a node moves: all operands of Concat, the first one of others."""
    return tuple(node.inputs) if node.op == "Concat" else node.inputs[:1]


def _moves_numbers(m: Match, node: Node) -> str | None:
    """None if the results are elements of what is moved, or one constant, and quantizing them keeps their order."""
    if len(node.outputs) > 1:
        return NOT_HERE
    if node.op == "MaxPool":
        scale = m.editor.array(m.root.inputs[1])
        return None if scale is not None and bool((scale > 0).all()) else "the scale may be negative"
    if node.op == "Pad" and len(node.inputs) > _PAD_VALUE and node.inputs[_PAD_VALUE]:
        return None if m.editor.constant(node.inputs[_PAD_VALUE]) is not None else "what is padded with is no constant"
    if node.op == "Resize":
        copies = node.attr("mode", "nearest") == "nearest"
        outside = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
        return None if copies and not outside else "what is resized is no copy"
    return None


def _quantize_before_guard(m: Match) -> str | None:
    ed, node = m.editor, m.node("move")
    if m.editor.value(m.output).dtype not in BYTES or not all(is_single(m, x) for x in m.root.inputs[1:] if x):
        return NOT_HERE
    source = ed.producer(m["x"])
    if node.op != "Concat" and (source is None or source.op == "DequantizeLinear"):
        return NOT_HERE  # of the input of a network as many numbers are quantized as are needed; bytes are moved so
    if node.op not in _MORE and ed.use_count(m["x"]) > 1:
        return "something else reads what is moved"
    return _moves_numbers(m, node)


def _quantize_before(m: Match) -> str:
    node = m.node("move")
    inputs, count = list(node.inputs), len(_sources(node))
    if node.op == "Pad":
        inputs += [""] * (_PAD_VALUE + 1 - len(inputs))
        inputs[_PAD_VALUE] = inputs[_PAD_VALUE] or m.const(np.zeros((), np.float32))
    for n, x in enumerate(inputs):
        if n < count or (node.op == "Pad" and n == _PAD_VALUE):
            inputs[n] = m.op("QuantizeLinear", x, *m.root.inputs[1:], **dict(m.root.attrs))
    return m.op(node.op, *inputs, **dict(node.attrs))


def _clip_guard(m: Match) -> str | None:
    """Guard: the way from bytes to the same bytes leads over a Clip or Relu with constant bounds."""
    if (why := _same_parameters(m)) is not None:
        return why
    bounds = [_parameter(m, b) for b in m.node("clip").inputs[1:] if b]
    return NOT_HERE if any(b is None or np.isnan(b) for b in bounds) else None


def _clip(m: Match) -> str:
    """Bytes clipped where the bounds, quantized, lie."""
    node, dtype, s = m.node("clip"), m.dtype("q").numpy, m.array("s").reshape(())
    info, zero = np.iinfo(dtype), _parameter(m, zero_of(m, "d")) or 0.0
    given = [_parameter(m, b) if b else None for b in (*node.inputs[1:], "", "")[:2]]
    if node.op == "Relu":
        given[0] = 0.0

    def quantized(bound: float | None, default: int) -> str:
        if bound is None:
            return m.const(np.asarray(default, dtype))
        return m.const(np.clip(np.rint(np.float32(bound) / s) + zero, info.min, info.max).astype(dtype))

    return m.op("Clip", m["q"], quantized(given[0], info.min), quantized(given[1], info.max))


# -- signed bytes --------------------------------------------------------------------------------------------------
_ZERO_OF_X = 2
"""The operand that is the zero point of the first one, of DequantizeLinear and of the products of integers."""


def _own_zero(m: Match) -> str:
    """The zero point of the root, "" if it has none."""
    return m.root.inputs[_ZERO_OF_X] if len(m.root.inputs) > _ZERO_OF_X else ""


def _moved_by_128(m: Match, zero: float, hint: str) -> str:
    """A zero point of signed bytes for unsigned ones."""
    return m.editor.add_constant(np.asarray(zero + 128).astype(np.uint8), f"{hint}.moved")


def _signed_guard(m: Match) -> str | None:
    ed, q = m.editor, m.root.inputs[0]
    if ed.value(q).dtype != dtypes.int8 or m.constant("z").size != 1 or ed.is_output(q):
        return NOT_HERE
    readers = ed.users(q)
    if any(u.op not in _READERS or u.inputs[0] != q or q in u.inputs[1:] for u in readers):
        return "something else reads the signed bytes"
    return None if _parameter(m, _own_zero(m)) is not None else "the zero point is not one constant"


def _unsigned(m: Match) -> str:
    node = m.node("quantize")
    z = _moved_by_128(m, _parameter(m, m["z"]) or 0.0, m["z"])
    attrs = {k: v for k, v in node.attrs if k != "output_dtype"}
    q = m.op("QuantizeLinear", *node.inputs[:2], z, **attrs)
    own = _own_zero(m)
    zero = _moved_by_128(m, _parameter(m, own) or 0.0, own or m.output)
    return m.op(m.root.op, q, m.root.inputs[1], zero, *m.root.inputs[3:], **dict(m.root.attrs))


# -- scales --------------------------------------------------------------------------------------------------------
_LINEAR = ("Relu", "Add", "Sub", "LeakyRelu", "Identity", "Clip")
_MAX_DEPTH = 6


def _quotient(ed: GraphEditor, name: str, by: np.ndarray) -> np.ndarray | None:
    """A constant divided by a scale; None if it is none, or a number leaves the range of float32."""
    c = ed.constant(name)
    if c is None or c.dtype != np.float32 or c.size >= 1 << 20:
        return None
    with np.errstate(all="ignore"):
        found: np.ndarray = (c.array.astype(np.float64) / by).astype(np.float32)
    small = np.abs(found) < np.finfo(np.float32).tiny
    fits = np.array_equal(np.isfinite(found), np.isfinite(c.array)) and not bool((small & (c.array != 0)).any())
    return found if fits else None


def _factors(ed: GraphEditor, node: Node, by: np.ndarray) -> tuple[int, ...]:
    """The operands that divide the result if they are divided: one of a product, the scale of a dequantization, the
    weights and the bias of a convolution. None where they cannot be divided."""
    if node.op == "Conv":
        places = tuple(k for k, c in enumerate(node.inputs) if k and c)
        return places if all(_quotient(ed, node.inputs[k], by) is not None for k in places) else ()
    places = {"DequantizeLinear": (1,), "Mul": (0, 1)}.get(node.op, ())
    return tuple(k for k in places if _quotient(ed, node.inputs[k], by) is not None)[:1]


def _linear(ed: GraphEditor, name: str, by: np.ndarray, depth: int = 0) -> bool:
    """True if ``name`` is made of products with constants by what keeps factors, and nothing else reads the way."""
    if not name or (depth and _quotient(ed, name, by) is not None):
        return True  # an absent bound, a constant
    node = ed.producer(name)
    if node is None or node.domain or depth > _MAX_DEPTH or ed.is_output(name):
        return False
    if _factors(ed, node, by):
        return node.op == "DequantizeLinear" or ed.use_count(name) == 1
    return node.op in _LINEAR and ed.use_count(name) == 1 and all(_linear(ed, i, by, depth + 1) for i in node.inputs)


def _has_product(ed: GraphEditor, name: str) -> bool:
    """True if a sum of products is among what ``name`` is made of, or a sum of dequantized numbers, which onnxruntime
    computes so, too: other elementwise operators between bytes round as they are defined."""
    node = ed.producer(name) if name else None
    if node is None:
        return False
    if node.op == "Conv":
        return True
    if node.op == "Add" and any(n is not None and n.op == "DequantizeLinear" for n in map(ed.producer, node.inputs)):
        return True
    if node.op == "Mul":
        sources = [ed.producer(i) for i in node.inputs]
        return any(n is not None and n.op == "Cast" and ed.value(n.inputs[0]).dtype == dtypes.int32 for n in sources)
    return node.op in _LINEAR and any(_has_product(ed, i) for i in node.inputs)


def _divided(m: Match, name: str, by: np.ndarray) -> str:
    """``name / by``, the division in its constants."""
    ed = m.editor
    if not name:
        return name
    constant, node = _quotient(ed, name, by), ed.producer(name)
    if constant is not None:
        return ed.add_constant(constant, f"{name}.divided")
    if node is None:
        raise InternalError(f"{m.root.name}: '{name}' has no factor")
    inputs = list(node.inputs)
    for i in _factors(ed, node, by) or range(len(inputs)):
        inputs[i] = _divided(m, inputs[i], by)
    return m.op(node.op, *inputs, **dict(node.attrs))


def _scale_guard(m: Match) -> str | None:
    s = m.array("s").astype(np.float64)
    if s.size != 1 or m.constant("s").dtype != np.float32 or not np.isfinite(s).all() or float(s.reshape(())) <= 0:
        return NOT_HERE
    if float(s.reshape(())) == 1.0 or m.dtype("x") != dtypes.float32 or not m.editor.value(m.output).dtype.is_integer:
        return NOT_HERE
    linear = _has_product(m.editor, m["x"]) and _linear(m.editor, m["x"], s.reshape(()))
    return None if linear else NOT_HERE


def _scale_inward(m: Match) -> str:
    by = m.array("s").astype(np.float64).reshape(())
    one = m.const(np.ones((), np.float32))
    return m.op("QuantizeLinear", _divided(m, m["x"], by), one, *m.root.inputs[2:], **dict(m.root.attrs))


def _weights_guard(m: Match) -> str | None:
    """Guard: a convolution of float32 is the only reader of numbers dequantized with one scale."""
    scale = _parameter(m, m["s"])
    if scale is None or not np.isfinite(scale) or scale in (0.0, 1.0) or m.dtype("w") != dtypes.float32:
        return NOT_HERE
    if m.dtype("s") != dtypes.float32 or m.editor.use_count(m.root.inputs[0]) != 1:
        return NOT_HERE
    return None if _quotient(m.editor, m["w"], np.asarray(1 / scale)) is not None else NOT_HERE


def _scale_into_weights(m: Match) -> str:
    node, scale = m.node("d"), m.array("s").astype(np.float64).reshape(())
    w = _divided(m, m["w"], 1 / scale)
    attrs = {k: v for k, v in node.attrs if k != "axis"}
    x = m.op("DequantizeLinear", node.inputs[0], m.const(np.ones((), np.float32)), *node.inputs[2:], **attrs)
    return m.op("Conv", x, w, *m.root.inputs[2:], **dict(m.root.attrs))


def _clamps_at_zero(m: Match) -> str | None:
    dtype = m.editor.value(m.output).dtype
    zero = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    array = m.editor.array(zero) if zero else np.zeros((), dtype.numpy)
    scale = m.editor.array(m["s"])
    if not dtype.is_integer or array is None or scale is None or not bool((scale > 0).all()):
        return NOT_HERE
    return None if bool((array == np.iinfo(dtype.numpy).min).all()) else NOT_HERE


def _without_relu(m: Match) -> str:
    return m.op("QuantizeLinear", m["x"], *m.root.inputs[1:], **dict(m.root.attrs))


UNSIGNED: tuple[Rule, ...] = (
    Rule(
        "unsigned_bytes", "f(Quantize(x, s, z), z') --> f(Quantize(x, s, z + 128), z' + 128) for signed bytes",
        P(_READERS, P("QuantizeLinear", "x", "s", C("z"), at="quantize"), rest=True), _unsigned, _signed_guard,
    ),
)  # fmt: skip
"""Dot products take one operand unsigned."""

MOVES: tuple[Rule, ...] = (
    Rule(
        "dequantize_later", "move(s q) --> s move(q) for what moves numbers or takes the largest",
        P(_MOVES, P("DequantizeLinear", "q", "s", rest=True, at="d"), rest=True), _moved, _move_guard,
    ),
    Rule(
        "quantize_before", "Quantize(move(x)) --> move(Quantize(x)) for what moves numbers or takes the largest",
        P("QuantizeLinear", P((*_MOVES, *_MORE), "x", rest=True, at="move"), rest=True),
        _quantize_before, _quantize_before_guard, exclusive=True,
    ),
    Rule(
        "clipped_bytes", "Quantize(Clip(Dequantize(q, s, z)), s, z) --> Clip(q)",
        P("QuantizeLinear", P(("Clip", "Relu"), dequantized("q", "s", "d"), rest=True, at="clip"), "t", rest=True),
        _clip, _clip_guard,
    ),
    Rule(
        "quantized_before", "Quantize(Dequantize(q, s, z), s, z) --> q",
        P("QuantizeLinear", P("DequantizeLinear", "q", "s", rest=True, at="d"), "t", rest=True),
        lambda m: m["q"], _undone,
    ),
)  # fmt: skip
"""Before constants are folded, so that bytes stay bytes."""

SCALES: tuple[Rule, ...] = (
    Rule(
        "relu_by_saturation", "Quantize(Relu(x), s, lowest) --> Quantize(x, s, lowest)",
        P("QuantizeLinear", P("Relu", "x"), "s", rest=True), _without_relu, _clamps_at_zero,
    ),
    Rule(
        "scale_before_sums", "Quantize(a x + b y, s) --> Quantize(a/s x + b/s y, 1)",
        P("QuantizeLinear", "x", C("s"), rest=True), _scale_inward, _scale_guard, Exactness.REASSOCIATING,
    ),
    Rule(
        "scale_into_weights", "Conv(s q, w) --> Conv(q, s w)",
        P("Conv", P("DequantizeLinear", "q", C("s"), rest=True, at="d"), C("w"), rest=True),
        _scale_into_weights, _weights_guard, Exactness.REASSOCIATING,
    ),
)  # fmt: skip
"""Once the scales are constants."""
