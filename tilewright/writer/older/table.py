"""The table of older forms. An operator that is not here, or not for an opset, has the same form there."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.writer.forms import Downgrade
from tilewright.writer.older import comparisons, images, norms, operands, quantization, rows, shapes, standard

_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod SumSquare"

_DEFINED = {
    "Bernoulli": 15, "BlackmanWindow": 17, "CausalConvWithState": 27, "Celu": 12,
    "CenterCropPad": 18, "Gelu": 20,
    "HammingWindow": 17, "HannWindow": 17, "HardSwish": 14,
    "MeanVarianceNormalization": 9, "Mish": 18, "RMSNormalization": 23, "Range": 11, "Shrink": 9, "Swish": 24,
    "SwiGLU": 28, "ThresholdedRelu": 10,
}  # fmt: skip
"""Operators that others define, and the first opset that has them in the newest form."""

OLDER: Mapping[str, tuple[Downgrade, ...]] = {
    **{op: (Downgrade(since, standard.by_definition),) for op, since in _DEFINED.items()},
    **{f"Reduce{kind}": (Downgrade(18, operands.reduce),) for kind in _REDUCTIONS.split()},
    "ReduceSum": (Downgrade(13, operands.reduce),),
    "Squeeze": (Downgrade(13, operands.squeeze),),
    "Unsqueeze": (Downgrade(13, operands.unsqueeze),),
    "Slice": (Downgrade(10, operands.slice_),),
    "Split": (Downgrade(18, operands.split),),
    "Pad": (Downgrade(19, operands.pad),),
    "TopK": (Downgrade(11, operands.top_k),),
    "DFT": (Downgrade(20, operands.dft, 17),),
    "Softmax": (Downgrade(13, rows.along_the_last_axis, changed=True),),
    "LogSoftmax": (Downgrade(13, rows.along_the_last_axis, changed=True),),
    "Hardmax": (Downgrade(13, rows.along_the_last_axis, changed=True),),
    "GreaterOrEqual": (Downgrade(12, comparisons.or_equal("Greater")),),
    "LessOrEqual": (Downgrade(12, comparisons.or_equal("Less")),),
    "Equal": (Downgrade(11, comparisons.equal),),
    "Max": (Downgrade(12, comparisons.extremum("Greater")),),
    "Min": (Downgrade(12, comparisons.extremum("Less")),),
    "Sum": (Downgrade(8, comparisons.sums),),
    "Mean": (Downgrade(8, comparisons.sums),),
    "Clip": (Downgrade(12, comparisons.clip),),
    "Resize": (Downgrade(19, images.resize),),
    "AffineGrid": (Downgrade(20, images.affine_grid),),
    "GridSample": (Downgrade(20, images.grid_sample, 16, changed=True),),
    "RoiAlign": (Downgrade(16, images.roi_align, 10, changed=True),),
    "GroupNormalization": (Downgrade(21, norms.group_norm),),
    "Shape": (Downgrade(15, shapes.shape),),
    "Reshape": (Downgrade(14, shapes.reshape),),
    "ConstantOfShape": (Downgrade(9, shapes.constant_of_shape),),
    "CastLike": (Downgrade(15, shapes.cast_like),),
    "Trilu": (Downgrade(14, shapes.trilu),),
    "Gemm": (Downgrade(11, shapes.gemm),),
    "ScatterElements": (Downgrade(11, shapes.scatter, 9),),
    "OptionalGetElement": (Downgrade(18, shapes.element_of_optional, 15),),
    "Mod": (Downgrade(28, shapes.modulo, 10),),
    "Pow": (Downgrade(12, shapes.power),),
    "BatchNormalization": (Downgrade(14, shapes.batch_norm),),
    "RNN": (Downgrade(14, shapes.batch_axis_first),),
    "GRU": (Downgrade(14, shapes.batch_axis_first),),
    "LSTM": (Downgrade(14, shapes.batch_axis_first),),
    "QuantizeLinear": (Downgrade(23, quantization.quantize, 10),),
    "DequantizeLinear": (Downgrade(23, quantization.dequantize, 10),),
}
"""By operator, the form for opsets before each ``below``; the first that holds counts."""
