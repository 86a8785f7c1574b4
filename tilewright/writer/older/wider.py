"""Element types that stand for others, where an opset has an operator for the one and not for the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.core.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
)

_NARROW = (bfloat16, float16)
_SMALL = (int8, uint8, int16, uint16)


def arithmetic(dtype: DType) -> tuple[DType, ...]:
    """Narrow floats are computed in float32 and rounded, as everywhere here."""
    return (float32,) if dtype in _NARROW else ()


def wrapping(dtype: DType) -> tuple[DType, ...]:
    """Sums and products of small integers wrap around in the same way when the wider result is cast."""
    if dtype in _SMALL:
        return (int32, int64)
    return (int64,) if dtype == uint32 else arithmetic(dtype)


def holding(dtype: DType) -> tuple[DType, ...]:
    """What only moves or compares elements may have any type that holds them."""
    if dtype in _SMALL:
        return (int32, int64, float32, float64)
    if dtype in (int32, uint32):
        return (int64, float64)
    if dtype == bool_:
        return (uint8, int32, float32)
    return (float32, float64) if dtype in _NARROW else ()


_MOVING = """
    Abs ArgMax ArgMin Concat DepthToSpace Equal Expand Flatten Gather GatherElements GatherND GlobalMaxPool Greater
    GreaterOrEqual Less LessOrEqual Max MaxPool Min OneHot Pad ReduceMax ReduceMin Relu Reshape ReverseSequence
    ScatterElements ScatterND Sign Slice SpaceToDepth Split Squeeze Tile TopK Transpose Trilu Unsqueeze Where
"""
_WRAPPING = "Add Sub Mul Div Neg Sum ReduceSum ReduceProd MatMul Gemm CumSum"
_ARITHMETIC = """
    Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv ConvTranspose Cos Cosh Elu Erf
    Exp Floor Gelu GlobalAveragePool GlobalLpPool GroupNormalization HardSigmoid HardSwish Hardmax
    InstanceNormalization IsInf IsNaN LRN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization LpPool Mean
    MeanVarianceNormalization Mish Mod PRelu Pow RMSNormalization Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMean ReduceSumSquare Resize Round Selu Shrink Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu
"""

WIDER: Mapping[str, Callable[[DType], tuple[DType, ...]]] = {
    **dict.fromkeys(_MOVING.split(), holding),
    **dict.fromkeys(_WRAPPING.split(), wrapping),
    **dict.fromkeys(_ARITHMETIC.split(), arithmetic),
}
"""Operator -> element type of the first operand -> types for it, the best first."""
