"""Quantized operators: conversions, integer products and convolutions, and what onnxruntime's quantizer adds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val
from tilewright.tests.fuzz_graphs.families.windows import geometry

SHARE = 1.0


def _scale(d: Draft, shape: tuple[int, ...] = ()) -> Val:
    return d.given(d.rng.uniform(0.02, 0.3, shape).astype(np.float32), 0.9)


def _zero(d: Draft, t: np.dtype, shape: tuple[int, ...] = ()) -> Val:
    low, high = (100, 150) if t == np.uint8 else (-10, 10)
    return d.given(np.asarray(d.rng.integers(low, high, shape)).astype(t), 0.9)


def quantize(d: Draft) -> object:
    x = d.tensor([np.float32], range(5))
    t = np.dtype(d.one_of([np.uint8, np.int8]))
    if d.opset >= 13 and x.rank > 0 and d.chance(0.3):
        axis = d.integer(0, x.rank - 1)
        n = x.dims[axis]
        if len(set(n)) == 1 and n[0] > 0:
            return d.emit("QuantizeLinear", [x, _scale(d, n[:1]), _zero(d, t, n[:1])], {"axis": axis})
    zero = [_zero(d, t)] if t != np.uint8 or d.chance(0.8) else []
    return d.emit("QuantizeLinear", [x, _scale(d), *zero])


def dequantize(d: Draft) -> object:
    t = np.dtype(d.one_of([np.uint8, np.int8, np.int32]))
    x = d.tensor([t], range(5))
    if d.opset >= 13 and x.rank > 0 and d.chance(0.3):
        axis = d.integer(0, x.rank - 1)
        n = x.dims[axis]
        if len(set(n)) == 1 and n[0] > 0:
            return d.emit("DequantizeLinear", [x, _scale(d, n[:1])], {"axis": axis})
    zero = [_zero(d, t)] if t != np.int32 and d.chance(0.8) else []
    return d.emit("DequantizeLinear", [x, _scale(d), *zero])


def round_trip(d: Draft) -> object:
    """Quantize, Dequantize, as a QDQ model has it at each edge."""
    x = d.tensor([np.float32], range(1, 5))
    t = np.dtype(d.one_of([np.uint8, np.int8]))
    if d.opset < 10:
        raise Rejected("from 10 on")
    scale, zero = _scale(d), _zero(d, t)
    (q,) = d.emit("QuantizeLinear", [x, scale, zero])
    return d.emit("DequantizeLinear", [q, scale, zero])


def dynamic(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("from 11 on")
    x = d.tensor([np.float32], range(1, 4), ok=lambda v: v.size > 0)
    return d.emit("DynamicQuantizeLinear", [x], {}, 3)


def qlinear_matmul(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    ta, tb = np.dtype(d.one_of([np.uint8, np.int8])), np.dtype(d.one_of([np.uint8, np.int8]))
    a = d.tensor([ta], range(2, 4))
    n = d.integer(1, 9)
    b = d.weight(tb, (a.dims[-1], n))
    per = (n,) if d.chance(0.3) else ()
    return d.emit("QLinearMatMul", [a, _scale(d), _zero(d, ta), b, _scale(d, per), _zero(d, tb, per), _scale(d),
                                    _zero(d, ta)])  # fmt: skip


def qlinear_conv(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    t, tw = np.dtype(d.one_of([np.uint8, np.int8])), np.dtype(d.one_of([np.uint8, np.int8]))
    kernel = [d.integer(1, 3) for _ in range(2)]
    attrs = geometry(d, 2, kernel)
    groups, per_in, per_out = d.one_of([1, 1, 2, 3]), d.one_of([1, 2, 3, 4, 17]), d.one_of([1, 3, 5, 33])
    if groups > 1:
        attrs["group"] = groups
    x = d.new(t, (d.dim(True), d.fixed(groups * per_in), d.fixed(d.integer(7, 12)), d.fixed(d.integer(7, 12))), 0.1)
    w = d.weight(tw, (groups * per_out, per_in, *kernel))
    per = (groups * per_out,) if d.chance(0.4) else ()
    bias = [d.weight(np.int32, (groups * per_out,))] if d.chance(0.5) else []
    zero = _zero(d, tw, per) if not per else d.given(np.zeros(per, tw), 0.9)
    operands = [x, _scale(d), _zero(d, t), w, _scale(d, per), zero, _scale(d), _zero(d, t), *bias]
    return d.emit("QLinearConv", operands, attrs)


def _dequantized_weight(d: Draft, shape: tuple[int, ...], channels: int) -> Val:
    """A dequantized constant, with one scale or one for each index of axis ``channels``."""
    t = np.dtype(d.one_of([np.uint8, np.int8]))
    per = (shape[channels],) if d.opset >= 13 and d.chance(0.5) else ()
    zero = d.given(np.zeros(per, t), 1.0) if per or d.chance(0.5) else _zero(d, t)
    attrs = {"axis": channels} if per else {}
    return d.emit(
        "DequantizeLinear",
        [d.weight(t, shape), d.given(d.rng.uniform(0.02, 0.3, per).astype(np.float32), 1.0), zero],
        attrs,
    )[0]


def _quantized_again(d: Draft, x: Val) -> object:
    """The end of a layer of a QDQ model: an activation, and the way to bytes and back."""
    if d.chance(0.5):
        (x,) = d.emit("Relu", [x])
    if d.chance(0.3):
        return [x]
    if d.chance(0.3):
        x = _function(d, _bytes(d, _function(d, x) if d.chance(0.3) else x))
    scale, zero = _scale(d), _zero(d, np.dtype(d.one_of([np.uint8, np.int8])))
    (q,) = d.emit("QuantizeLinear", [x, scale, zero])
    return d.emit("DequantizeLinear", [q, scale, zero])


def _bytes(d: Draft, x: Val) -> Val:
    scale, zero = _scale(d), _zero(d, np.dtype(d.one_of([np.uint8, np.int8])))
    (q,) = d.emit("QuantizeLinear", [x, scale, zero])
    return d.emit("DequantizeLinear", [q, scale, zero])[0]


def _function(d: Draft, x: Val) -> Val:
    """A function of each number alone, with pairs inside where it has parts, as onnxruntime's quantizer puts them."""
    kind = d.one_of(["Sigmoid", "Tanh", "Elu", "silu", "hard", "gelu"])
    if kind in ("Sigmoid", "Tanh", "Elu"):
        return d.emit(kind, [x])[0]
    if kind == "gelu":
        (e,) = d.emit("Erf", [x])
        (grown,) = d.emit("Add", [e, d.given(np.asarray(1, np.float32), 0.9)])
        return d.emit("Mul", [x, grown])[0]
    (gate,) = d.emit("Sigmoid" if kind == "silu" else "HardSigmoid", [x])
    return d.emit("Mul", [x, _bytes(d, gate) if d.chance(0.5) else gate])[0]


def qdq_function(d: Draft) -> object:
    """Functions of one byte, one behind the other, which a function of floats may make."""
    if d.opset < 10:
        raise Rejected("from 10 on")
    x = d.tensor([np.float32], range(1, 5))
    x = _bytes(d, _function(d, x) if d.chance(0.3) else x)
    for _ in range(d.integer(1, 2)):
        x = _bytes(d, _function(d, x))
    return [x]


def _moved(d: Draft, x: Val) -> Val:
    """What moves numbers, or takes the largest."""
    kinds = ["Transpose", "Concat", "Pad", *(["MaxPool", "Resize"] if x.rank == 4 else [])]
    kind = d.one_of(kinds)
    if kind == "Transpose":
        return d.emit("Transpose", [x], {"perm": [int(a) for a in d.rng.permutation(x.rank)]})[0]
    if kind == "Concat":
        other = d.one_of([x, _bytes(d, x), d.emit("Abs", [x])[0]])
        return d.emit("Concat", [x, other], {"axis": d.integer(0, x.rank - 1)})[0]
    if kind == "Pad":
        pads = d.given(d.rng.integers(0, 3, 2 * x.rank), 1.0)
        value = [d.given(np.asarray(d.rng.uniform(-2, 2), np.float32), 1.0)] if d.chance(0.5) else []
        return d.emit("Pad", [x, pads, *value])[0]
    if kind == "MaxPool":
        return d.emit("MaxPool", [x], {"kernel_shape": [2, 2], "strides": [d.integer(1, 2)] * 2})[0]
    scales = d.given(np.array([1, 1, d.integer(1, 3), d.integer(1, 3)], np.float32), 1.0)
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return d.emit("Resize", [x, None, scales], attrs)[0]


def qdq_move(d: Draft) -> object:
    """Numbers that are made, moved and quantized, with pairs between or not."""
    if d.opset < 13:
        raise Rejected("from 13 on")
    x = d.tensor([np.float32], range(2, 5), ok=lambda v: v.size > 0)
    (x,) = d.emit(d.one_of(["Neg", "Relu", "Identity"]), [x])
    for _ in range(d.integer(1, 3)):
        x = _moved(d, _bytes(d, x) if d.chance(0.4) else x)
    return [_bytes(d, x)]


def qdq_matmul(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    x = d.tensor([np.float32], range(2, 4))
    w = _dequantized_weight(d, (x.dims[-1][0], d.integer(1, 20)), 1)
    return _quantized_again(d, d.emit("MatMul", [_bytes(d, x), w])[0])


def qdq_conv(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    depthwise = d.chance(0.4)
    kernel = [d.integer(1, 5 if depthwise else 3) for _ in range(2)]
    attrs = geometry(d, 2, kernel)
    groups, per_in, per_out = d.one_of([1, 1, 2]), d.integer(1, 9), d.one_of([1, 2, 3, 5, 17, 33])
    if depthwise:
        groups, per_in, per_out = d.integer(2, 70), 1, 1
    if groups > 1:
        attrs["group"] = groups
    size = (d.dim(True), d.fixed(groups * per_in), d.fixed(d.integer(7, 12)), d.fixed(d.integer(7, 12)))
    x = _bytes(d, d.new(np.dtype(np.float32), size, 0.1))
    w = _dequantized_weight(d, (groups * per_out, per_in, *kernel), 0)
    bias = [d.weight(np.float32, (groups * per_out,))] if d.chance(0.5) else []
    return _quantized_again(d, d.emit("Conv", [x, w, *bias], attrs)[0])


def nbits_matmul(d: Draft) -> object:
    """A product with a weight of 4 or 8 bits in blocks, of few rows and many."""
    bits, block, blocks = d.one_of([4, 8]), d.one_of([16, 32, 64]), d.integer(1, 9)
    rows = d.fixed(d.integer(4, 80)) if d.chance(0.3) else d.dim()  # many fill matrix tiles
    x = d.weight(np.float32, (rows, *([d.dim(True)] if d.chance(0.3) else []), d.fixed(block * blocks)), 0.1)
    return _nbits(d, x, bits, block, d.integer(1, 200))


def nbits_matmuls(d: Draft) -> object:
    """Several of one value, most of which are one product where its rows are few; some with a bias, or a
    function behind it."""
    bits, block = d.one_of([4, 4, 8]), d.one_of([16, 32])
    x = d.weight(np.float32, (d.fixed(d.integer(1, 6)), d.fixed(block * 16)), 0.1)
    made = []
    for _ in range(d.integer(2, 4)):
        n = d.integer(60, 200) // d.one_of([1, 8])
        y = _nbits(d, x, bits if d.chance(0.9) else 12 - bits, block, n)[0]
        if d.chance(0.5):
            y = d.emit("Add", [y, d.weight(np.float32, (d.fixed(n),), 0.95)])[0]
        made.append(d.emit(d.one_of(["Sigmoid", "Tanh"]), [y])[0] if d.chance(0.4) else y)
    return made[-1]


def _nbits(d: Draft, x: Val, bits: int, block: int, n: int) -> list[Val]:
    k = x.shape[-1]
    blocks = k // block  # from 16,384 elements on a weight stays packed
    w = d.given(d.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8), 1.0)
    scale = d.given(d.rng.uniform(0.02, 0.1, n * blocks).astype(np.float32), 1.0)
    zeros = d.rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
    operands = [x, w, scale, *([d.given(zeros, 1.0)] if d.chance(0.5) else [])]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    return d.emit("MatMulNBits", operands, attrs, domain="com.microsoft")


def _qlinear_binary(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        t = np.dtype(d.one_of([np.uint8, np.int8]))
        a = d.tensor([t], range(1, 5))
        b = d.broadcastable(a)
        return d.emit(op, [a, _scale(d), _zero(d, t), b, _scale(d), _zero(d, t), _scale(d), _zero(d, t)],
                      domain="com.microsoft")  # fmt: skip

    return generate


GENERATORS: Mapping[str, object] = {
    "QuantizeLinear": quantize, "DequantizeLinear": dequantize, "QDQ": round_trip, "DynamicQuantizeLinear": dynamic,
    "MatMulNBits": nbits_matmul, "MatMulsNBits": nbits_matmuls, "QDQMatMul": qdq_matmul, "QDQConv": qdq_conv,
    "QLinearMatMul": qlinear_matmul, "QLinearConv": qlinear_conv, "QDQFunction": qdq_function, "QDQMove": qdq_move,
    **{op: _qlinear_binary(op) for op in ("QLinearAdd", "QLinearMul")},
}  # fmt: skip
