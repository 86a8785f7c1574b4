"""The window functions of signal processing: Hann, Hamming and Blackman."""

from __future__ import annotations

import math

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import Lower, LowerContext
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, index_value, op


def _window(name: str, coefficients: tuple[float, ...]) -> Lower:
    """``sum over k of (-1)^k a_k cos(2 pi k n / N)``."""

    def lower(c: LowerContext) -> tuple[Tensor, ...]:
        out = c.output()
        size = out.shape[0]
        real = out.dtype if out.dtype == dtypes.float64 else dtypes.float32

        def body(n: IntExpr) -> Val:
            period = index_value(size if c.attr_int("periodic", 1) else size - 1).cast(real)
            total = constant(coefficients[0], real)
            for k, a in enumerate(coefficients[1:], 1):
                angle = index_value(n).cast(real) * (2.0 * math.pi * k) / period
                total = total + op("cos", angle) * (a if k % 2 == 0 else -a)
            return total.cast(out.dtype)

        return (compute(c.name(name), (size,), body),)

    return lower


LOWER: dict[str, Lower] = {
    "HannWindow": _window("hann", (0.5, 0.5)),
    "HammingWindow": _window("hamming", (25 / 46, 21 / 46)),
    "BlackmanWindow": _window("blackman", (0.42, 0.5, 0.08)),
}
