"""Products of quantized matrices: QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul.

The integers are multiplied exactly (MatMulInteger); the sums are scaled by one float32 factor, as onnxruntime does.
"""

from __future__ import annotations

import numpy as np

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.frontend.ops.scales import as_real, rounded, scalar


def _gemm(call: Call, build: GraphBuilder) -> None:
    """(A' @ B' + C) * (alpha * a_scale * b_scale / y_scale), rounded if there is a zero point of the result."""
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = (call.input(i) for i in range(9))
    if call.int_attr("transA", 0):
        a = build.emit("Transpose", (a,), "turned", perm=(1, 0))
    if call.int_attr("transB", 0):
        b = build.emit("Transpose", (b,), "turned", perm=(1, 0))
    total = build.emit("MatMulInteger", (a, b, scalar(build, a_zero), b_zero), "products")
    if c:
        total = build.emit("Add", (total, c), "sums")
    alpha = build.constant(np.array(call.float_attr("alpha", 1.0), np.float32), "alpha")
    scale = build.emit("Mul", (build.emit("Mul", (alpha, scalar(build, a_scale)), "scaled"), b_scale), "scales")
    if y_scale:
        scale = build.emit("Div", (scale, scalar(build, y_scale)), "ratio")
    if y_zero:
        rounded(build, build.emit("Mul", (as_real(build, total), scale), "scaled"), scalar(build, y_zero), call.outputs)
    else:
        build.emit_to("Mul", (as_real(build, total), scale), call.outputs, {})


def real_product(build: GraphBuilder, a: str, b: str, a_scale: str, b_scale: str, a_zero: str, b_zero: str) -> str:
    """The float32 product of two quantized stacks of matrices; ``b`` in one scale, or one per column."""
    total = build.emit("MatMulInteger", (a, b, scalar(build, a_zero) if a_zero else "", b_zero), "products")
    scale = build.emit("Mul", (_factor(build, a_scale), _factor(build, b_scale)), "scales")
    return build.emit("Mul", (as_real(build, total), scale), "scaled")


def _factor(build: GraphBuilder, name: str) -> str:
    """A scale that adds no dimension to a result if it is one number."""
    array = build.constant_value(name)
    return scalar(build, name) if array is not None and array.size == 1 else name


def _to_float(call: Call, build: GraphBuilder) -> None:
    """MatMulIntegerToFloat: the product of the dequantized operands, plus a bias."""
    a, b, a_scale, b_scale, a_zero, b_zero, bias = (call.input(i) for i in range(7))
    _with_bias(build, real_product(build, a, b, a_scale, b_scale, a_zero, b_zero), bias, call.outputs)


def _dynamic(call: Call, build: GraphBuilder) -> None:
    """DynamicQuantizeMatMul: A is quantized by its own extrema first."""
    a, b, b_scale, b_zero, bias = (call.input(i) for i in range(5))
    q, a_scale, a_zero = dynamically_quantized(build, a)
    _with_bias(build, real_product(build, q, b, a_scale, b_scale, a_zero, b_zero), bias, call.outputs)


def dynamically_quantized(build: GraphBuilder, x: str) -> tuple[str, str, str]:
    """A float tensor as uint8, its scale and zero point."""
    names = (build.name("quantized"), build.name("scale"), build.name("zero"))
    build.emit_to("DynamicQuantizeLinear", (x,), names, {})
    return names


def _with_bias(build: GraphBuilder, product: str, bias: str, outputs: tuple[str, ...]) -> None:
    if bias:
        build.emit_to("Add", (product, bias), outputs, {})
    else:
        build.emit_to("Identity", (product,), outputs, {})


_MAKES = ("MatMulInteger", "Mul", "Cast", "Add", "Reshape", "Identity")

RULES: Family = {
    "QGemm": contrib(range(6), _gemm, (*_MAKES, "Transpose", "Div", "QuantizeLinear")),
    "MatMulIntegerToFloat": contrib(range(4), _to_float, _MAKES),
    "DynamicQuantizeMatMul": contrib(range(3), _dynamic, (*_MAKES, "DynamicQuantizeLinear")),
}
