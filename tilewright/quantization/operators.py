"""Operators of ONNX as the quantizer sees them."""

from __future__ import annotations

from collections.abc import Mapping

LAYERS = ("Conv", "Gemm", "MatMul")
"""Products with a constant weight."""

MATRIX_PRODUCTS = ("Gemm", "MatMul")
"""Those of matrices, whose weights can be stored in blocks."""

ACTIVATIONS = ("Relu", "Clip")
"""Computed by the kernel of the layer before: the result is quantized behind them."""

MOVES = ("MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze")
"""Their results are elements of their first operand, so that both have one scale."""

FUNCTIONS = (
    "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Softplus", "Mish",
)  # fmt: skip
"""Of one activation, with a scale on each side: a table of 256 bytes computes them."""

JOINS = ("Add", "Mul", "Concat")
"""Of several activations, each with a scale of its own."""

AVERAGES = ("AveragePool", "GlobalAveragePool", "ReduceMean")
"""Of integers, with a scale of its own behind it."""

QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulNBits", "MatMulBnb4")
"""What only quantized models have, with all that :func:`is_quantized` finds by its name."""

SCALED_WEIGHTS: Mapping[str, tuple[int, int]] = {"Conv": (0, 1), "Gemm": (1, 0), "MatMul": (1, 0)}
"""Axes of output and input channels of a weight; those of a Gemm with ``transB`` are swapped."""


def is_quantized(op: str) -> bool:
    """True for an operator that only quantized models have."""
    return op in QUANTIZED or op.startswith(("QLinear", "QGemm", "QAttention", "GatherBlockQuant")) or "Integer" in op
