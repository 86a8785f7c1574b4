"""Elementwise operators and pools on quantized tensors, as onnxruntime's quantizer writes them (QOperator format).

Each becomes standard operators on integers and float32 in the order of onnxruntime's own arithmetic on x86-64, so that
results agree to the last bit. Where they do not (by one unit, for values next to halfway between two integers):

* QLinearMul and QLinearAdd, on CPUs without fused multiply-add: the two round once more often than the other;
* QLinearAveragePool sums exactly here; onnxruntime adds float32 numbers that are rounded already;
* QLinearSigmoid and QLinearSoftmax: exp is another approximation. QLinearSoftmax saturates here; onnxruntime lets an
  int8 result of 128 wrap around to -128.
"""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib, rename
from tilewright.frontend.ops.scales import (
    as_real,
    dequantized,
    requantized,
    rounded,
    rounded_with_zero,
    scalar,
    shifted,
    zero_point,
)

_SOFTMAX_COERCES = 13  # before this version Softmax worked on a matrix


def _add(call: Call, build: GraphBuilder) -> None:
    """a * (a_scale / c_scale) + (b * (b_scale / c_scale) + offset); the offset holds all zero points."""
    a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = (call.input(i) for i in range(8))
    to = scalar(build, c_scale)
    ratios = [build.emit("Div", (scalar(build, s), to), "ratio") for s in (a_scale, b_scale)]
    zeros = [as_real(build, zero_point(build, z, x)) for z, x in ((a_zero, a), (b_zero, b), (c_zero, a))]
    products = [build.emit("Mul", pair, "offset") for pair in zip(ratios, zeros[:2], strict=True)]
    offset = build.emit("Sub", (zeros[2], build.emit("Add", products)), "offset")
    left, right = (build.emit("Mul", (as_real(build, x), r), "term") for x, r in ((a, ratios[0]), (b, ratios[1])))
    total = build.emit("Add", (left, build.emit("Add", (right, offset))), "total")
    rounded(build, total, build.scalar_like(0.0, a, "no_zero_point"), call.outputs)


def _mul(call: Call, build: GraphBuilder) -> None:
    """(a - a_zero) * (b - b_zero), exactly, times a_scale * b_scale / c_scale."""
    a, a_scale, a_zero, b, b_scale, b_zero, c_scale, c_zero = (call.input(i) for i in range(8))
    both = build.emit("Mul", (scalar(build, a_scale), scalar(build, b_scale)), "scales")
    ratio = build.emit("Div", (both, scalar(build, c_scale)), "ratio")
    operands = [shifted(build, x, z, dtypes.float32) for x, z in ((a, a_zero), (b, b_zero))]
    product = build.emit("Mul", (build.emit("Mul", operands), ratio), "product")
    rounded_with_zero(build, product, zero_point(build, c_zero, a), call.outputs)


def _activation(call: Call, build: GraphBuilder) -> None:
    """LeakyRelu or Sigmoid of the dequantized value."""
    x, x_scale, x_zero, y_scale, y_zero = (call.input(i) for i in range(5))
    real = dequantized(build, x, x_scale, x_zero)
    if call.op == "QLinearLeakyRelu":
        y = build.emit("LeakyRelu", (real,), alpha=call.float_attr("alpha", 0.01))
    else:
        y = build.emit("Sigmoid", (real,))
    build.emit_to("QuantizeLinear", (y, scalar(build, y_scale), zero_point(build, y_zero, x)), call.outputs, {})


def _softmax(call: Call, build: GraphBuilder) -> None:
    """Softmax of the version ``opset``, in whole steps of the result: 1 / y_scale of them, rounded down."""
    x, x_scale, x_zero, y_scale, y_zero = (call.input(i) for i in range(5))
    coerced = call.int_attr("opset", _SOFTMAX_COERCES) < _SOFTMAX_COERCES
    axis = call.int_attr("axis", -1)
    real = dequantized(build, x, x_scale, x_zero)
    steps = build.emit("Floor", (build.emit("Reciprocal", (scalar(build, y_scale),)),), "steps")
    if not coerced:
        y = build.emit("Softmax", (real,), axis=axis)
    else:
        rows = build.emit("Softmax", (build.emit("Flatten", (real,), "flat", axis=axis),), "rows", axis=-1)
        y = build.emit("Reshape", (rows, build.emit("Shape", (x,), "shape")), "softmax", allowzero=1)
    rounded(build, build.emit("Mul", (y, steps), "scaled"), zero_point(build, y_zero, x), call.outputs)


def _concat(call: Call, build: GraphBuilder) -> None:
    """Every operand in the scale of the result, side by side."""
    if (len(call.inputs) - 2) % 3 or not all(call.inputs):
        call.error("a scale, a zero point and three inputs for each operand", f"{len(call.inputs)} inputs")
    y_scale, y_zero = call.input(0), call.input(1)
    operands = (call.inputs[i : i + 3] for i in range(2, len(call.inputs), 3))
    parts = [requantized(build, x, scale, zero, y_scale, y_zero) for x, scale, zero in operands]
    build.emit_to("Concat", parts, call.outputs, {"axis": call.int_attr("axis", 0)})


def _where(call: Call, build: GraphBuilder) -> None:
    condition, x, x_scale, x_zero, y, y_scale, y_zero, z_scale, z_zero = (call.input(i) for i in range(9))
    sides = [requantized(build, v, s, z, z_scale, z_zero) for v, s, z in ((x, x_scale, x_zero), (y, y_scale, y_zero))]
    build.emit_to("Where", (condition, *sides), call.outputs, {})


# -- pools ---------------------------------------------------------------------------------------------------------
def _rank(call: Call, build: GraphBuilder) -> int:
    rank = build.rank(call.input(0))
    if rank is None:
        raise UnsupportedError(f"node '{call.name}' ({call.op}): an input of unknown rank")
    if rank < 3:
        call.error("an input of rank >= 3", rank)
    return rank


def _is_channels_last(call: Call) -> bool:
    return bool(call.int_attr("channels_last", 0))


def _channels_first(build: GraphBuilder, x: str, rank: int) -> str:
    return build.emit("Transpose", (x,), "channels_first", perm=(0, rank - 1, *range(1, rank - 1)))


def _channels_last(build: GraphBuilder, x: str, rank: int, outputs: tuple[str, ...]) -> None:
    build.emit_to("Transpose", (x,), outputs, {"perm": (0, *range(2, rank), 1)})


def _average_pool(call: Call, build: GraphBuilder) -> None:
    """The average of the integers, then the scales."""
    x, x_scale, x_zero, y_scale, y_zero = (call.input(i) for i in range(5))
    rank, last = _rank(call, build), _is_channels_last(call)
    real = shifted(build, x, x_zero, dtypes.float32)
    attrs = {k: v for k, v in call.attrs.items() if k != "channels_last"}
    average = build.emit("AveragePool", (_channels_first(build, real, rank) if last else real,), "average", **attrs)
    if last:
        turned = build.name("channels_last")
        _channels_last(build, average, rank, (turned,))
        average = turned
    ratio = build.emit("Div", (scalar(build, x_scale), scalar(build, y_scale)), "ratio")
    scaled = build.emit("Mul", (average, ratio), "scaled")
    rounded_with_zero(build, scaled, zero_point(build, y_zero, x), call.outputs)


def _global_average_pool(call: Call, build: GraphBuilder) -> None:
    """The sum of the integers times x_scale / (y_scale * how many they are)."""
    x, x_scale, x_zero, y_scale, y_zero = (call.input(i) for i in range(5))
    rank = _rank(call, build)
    over = build.ints(range(1, rank - 1) if _is_channels_last(call) else range(2, rank), "axes")
    total = build.emit("ReduceSum", (shifted(build, x, x_zero, dtypes.int32), over), keepdims=1)
    sizes = build.emit("Gather", (build.emit("Shape", (x,), "shape"), over), "sizes", axis=0)
    count = as_real(build, build.emit("ReduceProd", (sizes,), "count", keepdims=0))
    ratio = build.emit("Div", (scalar(build, x_scale), build.emit("Mul", (scalar(build, y_scale), count))), "ratio")
    scaled = build.emit("Mul", (as_real(build, total), ratio), "scaled")
    rounded(build, scaled, zero_point(build, y_zero, x), call.outputs)


def _max_pool(call: Call, build: GraphBuilder) -> None:
    """NhwcMaxPool: MaxPool with channels last."""
    rank = _rank(call, build)
    best = build.emit("MaxPool", (_channels_first(build, call.input(0), rank),), "best", **call.attrs)
    _channels_last(build, best, rank, call.outputs)


def _convolution(call: Call, build: GraphBuilder) -> None:
    """QLinearConv of onnxruntime's own domain: ONNX's, with channels last by an attribute."""
    attrs = {k: v for k, v in call.attrs.items() if k != "channels_last"}
    if not _is_channels_last(call):
        build.emit_to("QLinearConv", call.inputs, call.outputs, attrs)
        return
    rank = _rank(call, build)
    x = _channels_first(build, call.input(0), rank)
    _channels_last(build, build.emit("QLinearConv", (x, *call.inputs[1:]), "convolved", **attrs), rank, call.outputs)


_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_SHIFTS = ("Cast", "Sub", "Mul", "Add", "Div", "Reshape", "QuantizeLinear")

RULES: Family = {
    "QuantizeLinear": contrib((0, 1), rename("QuantizeLinear"), ("QuantizeLinear",)),
    "DequantizeLinear": contrib((0, 1), rename("DequantizeLinear"), ("DequantizeLinear",)),
    "QLinearAdd": contrib((0, 1, 3, 4, 6), _add, _SHIFTS),
    "QLinearMul": contrib((0, 1, 3, 4, 6), _mul, _SHIFTS),
    "QLinearLeakyRelu": contrib((0, 1, 3), _activation, (*_LINEAR, "LeakyRelu", "Reshape")),
    "QLinearSigmoid": contrib((0, 1, 3), _activation, (*_LINEAR, "Sigmoid", "Reshape")),
    "QLinearSoftmax": contrib(
        (0, 1, 3), _softmax, (*_LINEAR, "Softmax", "Floor", "Reciprocal", "Mul", "Flatten", "Shape", "Reshape")
    ),
    "QLinearConcat": contrib((0, 1, 2, 3, 4), _concat, (*_LINEAR, "Concat", "Reshape")),
    "QLinearWhere": contrib(range(9), _where, (*_LINEAR, "Where", "Reshape")),
    "QLinearAveragePool": contrib((0, 1, 3), _average_pool, (*_SHIFTS, "AveragePool", "Transpose")),
    "QLinearGlobalAveragePool": contrib(
        (0, 1, 3), _global_average_pool, (*_SHIFTS, "ReduceSum", "Shape", "Gather", "ReduceProd")
    ),
    "NhwcMaxPool": contrib((0,), _max_pool, ("MaxPool", "Transpose")),
    "QLinearConv": contrib(range(8), _convolution, ("QLinearConv", "Transpose")),
}
