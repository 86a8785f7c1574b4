"""Products of dequantized operands as products of integers.

``x ~ (q - z) s`` for a quantized ``q``, so that a product of two such operands is one of integers times both scales:
``MatMulInteger`` or ``ConvInteger``, exact in int32, then ``Cast`` and ``Mul``, which fuse with whatever follows.
Weights are constant. The operators on quantized tensors (``QLinearConv``, ``QLinearMatMul``) become the same.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import (
    NOT_HERE,
    C,
    Match,
    Operand,
    P,
    Rule,
    fixed_shape,
    int_attr,
    ints_attr,
    tensor_shape,
)
from tilewright.graph_ir.rules.products import product_and_bias

BYTES = (dtypes.int8, dtypes.uint8)
_LONGEST = (2**31 - 1) // (255 * 255)
"""Products of two bytes whose sum an int32 holds."""

_WINOGRAD = 1.0
"""The most that a product of bytes may take, in multiply-adds of float32, for Winograd's algorithm to be as fast in
whole numbers."""

_DEPTHWISE = 1.0
"""The most that a product of four bytes in a lane may take, in multiply-adds of float32, for depthwise convolutions to
gain by it: words of rows have gaps where a window has none, but what is read and stored are bytes."""

_FEWEST_CHANNELS = 16

MIN_CHANNELS = 4
"""Input channels of a group from which on any convolution is one of integers. With fewer, float32 is as exact: it holds
the sums of so few products of bytes."""


def dequantized(q: Operand, s: str, at: str) -> P:
    """The pattern of a DequantizeLinear of ``q`` with scale ``s``."""
    return P("DequantizeLinear", q, s, at=at, rest=True)


def zero_of(m: Match, at: str) -> str:
    """The zero point of a DequantizeLinear, "" if it has none."""
    inputs = m.node(at).inputs
    return inputs[2] if len(inputs) > 2 else ""


def is_single(m: Match, name: str) -> bool:
    """True if a value has one element."""
    shape = fixed_shape(tensor_shape(m.editor.value(name)))
    return shape is not None and all(d == 1 for d in shape)


def per_tensor(m: Match, at: str) -> bool:
    """True if a DequantizeLinear has one scale and one zero point for all."""
    zero = zero_of(m, at)
    return is_single(m, m.node(at).inputs[1]) and (not zero or is_single(m, zero))


def _along(m: Match, at: str, axis: int, rank: int) -> bool:
    """True if it has one scale and zero point for all or one for each index of ``axis``."""
    node = m.node(at)
    if int_attr(node, "block_size", 0):
        return False
    return per_tensor(m, at) or int_attr(node, "axis", 1) % rank == axis


def _bytes_times_bytes(m: Match, axis: int, length: int) -> str | None:
    """Guard for ``x`` and a constant ``w`` whose result has one column for each index of ``axis`` of ``w``."""
    if m.dtype("x") not in BYTES or m.dtype("w") not in BYTES:
        return "the operands are not of 8 bits"
    if {m.editor.value(m.output).dtype, m.dtype("sx"), m.dtype("sw")} != {dtypes.float32}:
        return "the result or a scale is not float32"
    if not per_tensor(m, "dx"):
        return "the left operand has more than one scale"
    if not _along(m, "dw", axis, len(m.constant("w").shape)):
        return f"the weight's scales are not one for all or one for each index of axis {axis}"
    return f"sums of {length} products, at most {_LONGEST} fit" if length > _LONGEST else None


def _conv_guard(m: Match) -> str | None:
    shape = m.constant("w").shape
    if len(shape) < 3:
        return NOT_HERE
    costs = m.editor.ctx.costs
    if int_attr(m.root, "group", 1) > 1 and shape[1] < MIN_CHANNELS:
        if not _is_depthwise(m, shape):
            return f"{shape[1]} input channels a group, at least {MIN_CHANNELS} are needed: sums are exact in float32"
        if costs.byte_words > _DEPTHWISE:
            return "this CPU computes depthwise convolutions faster in float32 than from products of bytes"
    if costs.byte_products > _WINOGRAD and _has_fast_algorithm(m, shape):
        return "this CPU computes it faster by Winograd's algorithm in float32 than from products of bytes"
    return _bytes_times_bytes(m, 0, int(np.prod(shape[1:])))


def _is_depthwise(m: Match, shape: tuple[int, ...]) -> bool:
    """True for one filter for each channel of an image, of neighbouring rows: words of bytes are made of four rows."""
    groups, dilations = int_attr(m.root, "group", 1), ints_attr(m.root, "dilations") or (1,)
    return len(shape) == 4 and shape[0] == groups and shape[1] == 1 and dilations[0] == 1


def _has_fast_algorithm(m: Match, shape: tuple[int, ...]) -> bool:
    """True for what Winograd's algorithm is worth: 3x3, no groups or dilations, stride 1, enough channels."""
    steps = (n for key in ("strides", "dilations") for n in ints_attr(m.root, key) or ())
    plain = {int_attr(m.root, "group", 1), *steps} == {1}
    return plain and shape[2:] == (3, 3) and min(shape[:2]) >= _FEWEST_CHANNELS


def _matmul_guard(m: Match) -> str | None:
    shape = m.constant("w").shape
    if len(shape) != 2 or m.shape("x") is None:
        return NOT_HERE
    return _bytes_times_bytes(m, 1, shape[0])


def _scaled(m: Match, product: str, columns: tuple[int, ...]) -> str:
    """The int32 product times both scales; ``columns``: the shape in which those of columns broadcast."""
    s = m["sw"]
    if not is_single(m, s) and len(columns) > 1:
        s = m.op("Reshape", s, m.const(list(columns)))
    return m.op("Mul", m.op("Cast", product, to=dtypes.float32), m.op("Mul", m["sx"], s))


def _conv(m: Match) -> str:
    spatial = (1,) * (len(m.constant("w").shape) - 2)
    y = m.op("ConvInteger", m["x"], m["w"], zero_of(m, "dx"), zero_of(m, "dw"), **dict(m.root.attrs))
    y = _scaled(m, y, (-1, *spatial))
    bias = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    return m.op("Add", y, m.op("Reshape", bias, m.const([-1, *spatial]))) if bias else y


def _matmul(m: Match) -> str:
    return _scaled(m, m.op("MatMulInteger", m["x"], m["w"], zero_of(m, "dx"), zero_of(m, "dw")), (-1,))


def _gemm_guard(m: Match) -> str | None:
    if m.dtype("x") not in BYTES or m.dtype("w") not in BYTES or int_attr(m.root, "transA", 0):
        return NOT_HERE
    return None


def _turn_guard(m: Match) -> str | None:
    """Blocks turn with their weight, if they are constants."""
    parameters = m.node("dw").inputs[1:]
    if int_attr(m.node("dw"), "block_size", 0) and any(x and m.editor.constant(x) is None for x in parameters):
        return "scales of blocks that are not constant"
    return None


def _turned(m: Match) -> str:
    """``Transpose(DequantizeLinear(w))`` with the weight turned."""
    constant, node = m.constant("w"), m.node("dw")
    perm = ints_attr(m.root, "perm") or tuple(reversed(range(len(constant.shape))))
    w = m.editor.add_constant(np.transpose(constant.array, perm), f"{m['w']}.T")
    axis = perm.index(int_attr(node, "axis", 1) % len(perm)) if not per_tensor(m, "dw") else 0
    parameters = list(node.inputs[1:])
    if int_attr(node, "block_size", 0):
        constants = ((x, m.editor.array(x)) for x in parameters)
        parameters = [x if a is None else m.const(np.transpose(a, perm)) for x, a in constants]
    return m.op("DequantizeLinear", w, *parameters, **dict(node.attrs) | {"axis": axis})


# -- weights alone -------------------------------------------------------------------------------------------------
_FEWEST_WEIGHTS = 1 << 14
"""Elements of a weight from which on it stays as small as it is stored."""


def _blocks(m: Match, name: str) -> np.ndarray | None:
    """A scale or zero point of ``w`` as one number for each block of rows and column; None if it is of another form."""
    array, (k, n) = m.editor.array(name), m.constant("w").shape
    node = m.node("dw")
    block, axis = int_attr(node, "block_size", 0), int_attr(node, "axis", 1) % 2
    if array is None:
        return None
    if array.size == 1:
        return np.broadcast_to(array.reshape(1, 1), (1, n))
    if block:
        return array if axis == 0 and array.ndim == 2 and k == array.shape[0] * block else None
    return np.broadcast_to(array.reshape((1, -1) if axis else (-1, 1)), (k if axis == 0 else 1, n))


def _weight_guard(m: Match) -> str | None:
    w = m.constant("w")
    if len(w.shape) != 2 or w.size < _FEWEST_WEIGHTS or m.dtype("w").bits > 8 or not m.dtype("w").is_integer:
        return NOT_HERE
    if {m.dtype("x"), m.dtype("sw")} != {dtypes.float32} or not m.shape("x"):
        return "the operand or the scale is not float32"
    names = [m["sw"], *([zero_of(m, "dw")] if zero_of(m, "dw") else [])]
    if any(_blocks(m, x) is None for x in names):
        return "the scales are not constants for whole blocks of rows"
    return None


def _weight_only(m: Match) -> str:
    scale, zero = _blocks(m, m["sw"]), zero_of(m, "dw")
    operands = [m["x"], m["w"], m.const(np.ascontiguousarray(scale))]
    if zero and scale is not None:
        blocks = _blocks(m, zero)
        operands.append(m.const(np.ascontiguousarray(np.broadcast_to(0 if blocks is None else blocks, scale.shape))))
    return m.op("MatMulDequantized", *operands)


# -- zero points of weights --------------------------------------------------------------------------------------
def _weight_zero(m: Match) -> np.ndarray | None:
    """The zero point of the weight so that it broadcasts with it; 0 if it is absent, None if it is not constant."""
    w, name = m.constant("w"), m.root.inputs[3] if len(m.root.inputs) > 3 else ""
    zero = m.editor.array(name) if name else np.zeros((), w.dtype)
    if zero is None or zero.size == 1:
        return None if zero is None else zero.reshape(())
    axis = 0 if m.root.op == "ConvInteger" else len(w.shape) - 1
    return zero.reshape([-1 if d == axis else 1 for d in range(len(w.shape))]) if zero.ndim == 1 else None


def _centred(m: Match, zero: np.ndarray) -> np.ndarray:
    """The constant weight less its zero point."""
    return np.asarray(m.constant("w").array.astype(np.int16) - zero.astype(np.int16))


def _centred_guard(m: Match) -> str | None:
    w, zero = m.constant("w"), _weight_zero(m)
    if zero is None:
        return "the weight's zero point is not constant, or one for each matrix"
    if w.size == 0 or w.dtype.itemsize != 1 or (w.dtype == np.int8 and not zero.any()):
        return NOT_HERE
    moved = _centred(m, zero)
    return None if moved.min() >= -128 and moved.max() <= 127 else "the weight less its zero point does not fit in int8"


def _without_weight_zero(m: Match) -> str:
    offset = _weight_zero(m)
    assert offset is not None  # by the guard
    w = m.editor.add_constant(_centred(m, offset).astype(np.int8), f"{m['w']}.centred")
    zero = [m.root.inputs[2]] if len(m.root.inputs) > 2 and m.root.inputs[2] else []
    return m.op(m.root.op, m["x"], w, *zero, **dict(m.root.attrs))


# -- operators on quantized tensors --------------------------------------------------------------------------------
def _single_scales(m: Match, *names: str) -> bool:
    return all(is_single(m, m[x]) for x in names)


def _qlinear_conv_guard(m: Match) -> str | None:
    w = m.shape("w")
    if w is None or fixed_shape(w) is None or m.dtype("x") not in BYTES or m.dtype("w") not in BYTES:
        return NOT_HERE
    if int(np.prod(fixed_shape(w)[1:])) > _LONGEST:  # type: ignore[index]
        return f"sums of more than {_LONGEST} products"
    return None if _single_scales(m, "sx", "zx", "sy", "zy") else "the input or the result has more than one scale"


def _requantized(m: Match, total: str, columns: tuple[int, ...]) -> str:
    """The int32 ``total`` times one factor a column, rounded."""
    factor = m.op("Div", m.op("Mul", m["sx"], m["sw"]), m["sy"])
    if not is_single(m, m["sw"]):
        factor = m.op("Reshape", factor, m.const(list(columns)))
    one = m.const(np.ones((), np.float32))
    return m.op("QuantizeLinear", m.op("Mul", m.op("Cast", total, to=dtypes.float32), factor), one, m["zy"])


def _qlinear_conv(m: Match) -> str:
    shape = m.shape("w")
    columns = (-1, *(1,) * (len(shape) - 2 if shape is not None else 0))
    y = m.op("ConvInteger", m["x"], m["w"], m["zx"], m["zw"], **dict(m.root.attrs))
    bias = m.root.inputs[8] if len(m.root.inputs) > 8 else ""
    if bias:
        y = m.op("Add", y, m.op("Reshape", bias, m.const(list(columns))))
    return _requantized(m, y, columns)


def _qlinear_matmul_guard(m: Match) -> str | None:
    if m.dtype("x") not in BYTES or m.dtype("w") not in BYTES:
        return NOT_HERE
    scale = m.shape("sw")
    if not _single_scales(m, "sx", "zx", "sy", "zy") or scale is None or len(scale) > 1:
        return "scales of rows or of single matrices"
    if not m.out_shape:
        return NOT_HERE
    return None if m.dtype("sx") == dtypes.float32 else "scales that are not float32"


def _qlinear_matmul(m: Match) -> str:
    return _requantized(m, m.op("MatMulInteger", m["x"], m["w"], m["zx"], m["zw"]), (-1,))


_X, _W = dequantized("x", "sx", "dx"), dequantized(C("w"), "sw", "dw")

PRODUCTS: tuple[Rule, ...] = (
    Rule(
        "integer_conv", "Conv(s x, t w, b) --> ConvInteger(x, w) s t + b",
        P("Conv", _X, _W, rest=True), _conv, _conv_guard, Exactness.REASSOCIATING,
    ),
    Rule(
        "integer_matmul", "MatMul(s x, t w) --> MatMulInteger(x, w) s t",
        P("MatMul", _X, _W), _matmul, _matmul_guard, Exactness.REASSOCIATING,
    ),
    Rule(
        "packed_weight", "MatMul(x, t w) --> MatMulDequantized(x, w, t)",
        P("MatMul", "x", _W), _weight_only, _weight_guard,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "quantized_gemm", "Gemm(s x, t w, c) --> Add(MatMul(s x, t w'), c)",
        P("Gemm", P("DequantizeLinear", "x", rest=True, at="dx"), P("DequantizeLinear", C("w"), rest=True), rest=True),
        product_and_bias, _gemm_guard, Exactness.REASSOCIATING,
    ),
    Rule(
        "turned_weight", "Transpose(s w) --> s Transpose(w)",
        P("Transpose", P("DequantizeLinear", C("w"), rest=True, at="dw")), _turned, _turn_guard,
    ),
    Rule(
        "qlinear_conv", "QLinearConv(x, w, b) --> QuantizeLinear(Cast(ConvInteger(x, w) + b) f)",
        P("QLinearConv", "x", "sx", "zx", "w", "sw", "zw", "sy", "zy", rest=True), _qlinear_conv, _qlinear_conv_guard,
    ),
    Rule(
        "qlinear_matmul", "QLinearMatMul(x, w) --> QuantizeLinear(Cast(MatMulInteger(x, w)) f)",
        P("QLinearMatMul", "x", "sx", "zx", "w", "sw", "zw", "sy", "zy"), _qlinear_matmul, _qlinear_matmul_guard,
    ),
    Rule(
        "centred_conv_weight", "ConvInteger(x, w, zx, z) --> ConvInteger(x, w - z, zx)",
        P("ConvInteger", "x", C("w"), rest=True), _without_weight_zero, _centred_guard,
    ),
    Rule(
        "centred_matmul_weight", "MatMulInteger(x, w, zx, z) --> MatMulInteger(x, w - z, zx)",
        P("MatMulInteger", "x", C("w"), rest=True), _without_weight_zero, _centred_guard,
    ),
)  # fmt: skip
"""While weights are as they are stored."""
