"""Each form of an older opset computes what the newest one does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Constant, Graph
from tilewright.tests.writer.written import assert_written
from tilewright.writer import to_onnx
from tilewright.writer.older import OLDER

Build = Callable[[GraphBuilder], str | Sequence[str]]
RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def graph(build: Build) -> Graph:
    b = GraphBuilder("g")
    out = build(b)
    return b.build(*((out,) if isinstance(out, str) else out))


def one(
    op: str, dims: Sequence[str | int], *operands: np.ndarray | None, dtype: str = "float32", **attrs: object
) -> Build:
    """A node on one input and constants."""
    return lambda b: b.op(op, b.input("x", dtype, dims), *operands, **attrs)


def two(op: str, a: Sequence[str | int], c: Sequence[str | int], dtype: str = "float32", **attrs: object) -> Build:
    return lambda b: b.op(op, b.input("x", dtype, a), b.input("y", dtype, c), **attrs)


def several(op: str, count: int, dims: Sequence[str | int], *operands: np.ndarray | None, **attrs: object) -> Build:
    return lambda b: b.ops(op, b.input("x", "float32", dims), *operands, outputs=count, **attrs)


NM, N46 = ("n", "m"), ("n", 4, 6)
IMAGE = (2, 3, 6, 8)

FORMS: tuple[tuple[str, Build, int, str | None], ...] = (
    # operands that were attributes
    ("Squeeze", one("Squeeze", ("n", 1, 4, 1), i64(1, -1)), 12, "Squeeze"),
    ("Squeeze", one("Squeeze", (1, 1, 4)), 7, "Squeeze"),
    ("Unsqueeze", one("Unsqueeze", NM, i64(0, -1)), 9, "Unsqueeze"),
    *((f"Reduce{k}", one(f"Reduce{k}", (2, 4, 6), i64(-1, 0), keepdims=0), 11, f"Reduce{k}")
      for k in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")),
    ("ReduceLogSum", lambda b: b.op("ReduceLogSum", b.op("Exp", b.input("x", "float32", (2, 4))), i64(1)), 7,
     "Exp ReduceLogSum"),
    ("ReduceSum", one("ReduceSum", N46, i64(1)), 12, "ReduceSum"),
    ("ReduceSum", one("ReduceSum", N46), 8, "ReduceSum"),
    ("ReduceMean", one("ReduceMean", N46, noop_with_empty_axes=1), 11, "Identity"),
    ("ReduceL1", one("ReduceL1", N46, noop_with_empty_axes=1), 11, "Abs"),
    ("ReduceSumSquare", one("ReduceSumSquare", N46, noop_with_empty_axes=1), 11, "Mul"),
    ("Slice", one("Slice", N46, i64(1, -3), i64(100, -1), i64(2, 1)), 9, "Slice"),
    ("Slice", one("Slice", N46, i64(0), i64(-1), i64(-1), i64(2)), 10, "Slice"),
    ("Split", several("Split", 2, ("n", 6), axis=1, num_outputs=2), 12, "Split"),
    ("Split", several("Split", 3, ("n", 7), axis=1, num_outputs=3), 9, "Split"),
    ("Split", several("Split", 3, ("n", 7), axis=-1, num_outputs=3), 13, "Split"),
    ("Split", several("Split", 2, ("n", 7), i64(3, 4), axis=-1), 7, "Split"),
    ("Split", several("Split", 3, ("n", 2), axis=0, num_outputs=3), 13,
     "Shape Gather Add Div Mul Sub Concat Split"),
    ("Pad", one("Pad", ("n", 3), i64(1, 0, 2, -1), np.float32(1.5)), 10, "Pad"),
    ("Pad", one("Pad", ("n", 3), i64(1, 2), None, i64(-1)), 8, "Pad"),
    ("Pad", one("Pad", ("n", 3), i64(1, 2), None, i64(1), mode="edge"), 13, "Pad"),
    ("Pad", lambda b: b.op("Pad", b.input("x", "float32", ("n", 3)), b.input("p", "int64", (2,)), None, i64(1)), 13,
     "Concat Gather Pad"),
    ("TopK", several("TopK", 2, ("n", 9), i64(3), axis=-1), 8, "TopK"),
    ("TopK", several("TopK", 2, ("n", 9), i64(3), largest=0), 10, "Neg TopK Neg"),
    ("DFT", one("DFT", (2, 5, 3, 2), None, np.int64(1)), 17, "DFT"),
    # rows
    *((op, one(op, N46, axis=axis), opset, ops) for op in ("Softmax", "LogSoftmax", "Hardmax")
      for axis, opset, ops in ((-1, 12, op), *((a, k, f"Transpose {op} Transpose") for a, k in ((1, 9), (0, 11))))),
    # comparisons
    ("GreaterOrEqual", two("GreaterOrEqual", NM, ("m",)), 11, "Greater Equal Or"),
    ("LessOrEqual", two("LessOrEqual", NM, NM), 9, "Less Less Greater Or IsNaN IsNaN Or Or Not Or"),
    ("LessOrEqual", two("LessOrEqual", NM, NM, "int32"), 9, "Less Equal Or"),
    ("Equal", two("Equal", NM, NM), 10, "Less Greater Or IsNaN IsNaN Or Or Not"),
    ("Equal", two("Equal", NM, NM, "int8"), 7, "Cast Cast Equal"),
    ("Max", two("Max", NM, ("m",), "int64"), 11, "Greater Where"),
    ("Max", two("Max", NM, ("m",), "int32"), 11, "Cast Cast Max Cast"),
    ("Max", two("Max", NM, ("m",)), 8, "Max"),
    ("Max", two("Max", NM, NM), 7, "Max"),
    ("Min", two("Min", NM, ("m",), "int64"), 9, "Less Where"),
    ("Sum", lambda b: b.op("Sum", *(b.input(x, "float32", NM) for x in "xyz")), 7, "Sum"),
    ("Sum", lambda b: b.op("Sum", b.input("x", "float32", NM), b.input("y", "float32", ("m",)), f32(1)), 7, "Add Add"),
    ("Mean", two("Mean", NM, ("m",)), 7, "Add Div"),
    ("Clip", one("Clip", NM, np.float32(-0.5), np.float32(0.25)), 10, "Clip"),
    ("Clip", one("Clip", NM, np.float32(-0.5)), 8, "Max"),
    ("Clip", one("Clip", NM, None, np.float32(np.inf)), 8, "Min"),
    ("Clip", lambda b: b.op("Clip", *(b.input(x, "float32", d) for x, d in (("x", NM), ("low", ()), ("high", ())))), 9,
     "Max Min"),
    ("Clip", one("Clip", NM, np.int64(1), np.int64(3), dtype="int64"), 11, "Greater Where Less Where"),
    ("Clip", one("Clip", NM, np.int32(1), np.int32(3), dtype="int32"), 11,
     "Cast Cast Max Cast Cast Cast Min Cast"),
    ("Clip", one("Clip", NM), 7, "Identity"),
    # images
    ("Resize", one("Resize", IMAGE, None, np.array([1.5, 2], np.float32), axes=(2, 3), mode="linear"), 13, "Resize"),
    ("Resize", one("Resize", IMAGE, None, np.array([1.5, 2], np.float32), axes=(2, 3), mode="linear"), 11, "Resize"),
    ("Resize", one("Resize", IMAGE, None, None, i64(9, 5), axes=(-2, -1), mode="cubic"), 12,
     "Shape Concat Gather Resize"),
    ("Resize", lambda b: b.op(
        "Resize", b.input("x", "float32", IMAGE), None, b.op("Exp", b.input("s", "float32", (2,))), axes=(2, 3),
        mode="linear"), 13, "Exp Concat Resize"),
    ("Resize", one("Resize", ("n", "c", 4, 4), None, None, i64(9, 5), axes=(2, 3)), 17, "Shape Concat Gather Resize"),
    ("Resize", one("Resize", IMAGE, np.array([0.1, 0.2, 0.8, 0.9], np.float32), None, i64(4, 5), axes=(2, 3),
                   mode="linear", coordinate_transformation_mode="tf_crop_and_resize"), 13,
     "Shape Concat Gather Resize"),
    *(("Resize", one("Resize", IMAGE, None, np.array([1, 1, 2, 3], np.float32), mode=mode, nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric"), opset, "Resize" if opset == 10 else "Upsample")
      for mode in ("nearest", "linear") for opset in (7, 9, 10)),
    ("Resize", one("Resize", IMAGE, None, None, i64(2, 3, 12, 8), nearest_mode="floor",
                   coordinate_transformation_mode="asymmetric"), 9, "Upsample"),
    ("Resize", one("Resize", IMAGE, None, np.array([1, 1, 0.5, 0.5], np.float32), nearest_mode="ceil",
                   coordinate_transformation_mode="asymmetric"), 10, "Resize"),
    ("GridSample", lambda b: b.op("GridSample", b.input("x", "float32", IMAGE), b.input("g", "float32", (2, 4, 4, 2)),
                                  mode="linear"), 16, "GridSample"),
    ("RoiAlign", lambda b: b.op("RoiAlign", b.input("x", "float32", IMAGE), np.abs(f32(2, 4)), i64(0, 1),
                                coordinate_transformation_mode="output_half_pixel"), 10, "RoiAlign"),
    # shapes
    ("Shape", one("Shape", N46, start=1), 14, "Shape Slice"),
    ("Shape", one("Shape", N46, start=-2, end=-1), 10, "Shape Slice"),
    ("Shape", one("Shape", N46), 7, "Shape"),
    ("Reshape", one("Reshape", N46, i64(-1, 24), allowzero=1), 13, "Reshape"),
    ("ConstantOfShape", lambda b: b.op("ConstantOfShape", b.op("Shape", b.input("x", "float32", NM)),
                                       value=Constant(np.array([2.5], np.float32))), 8, "Shape Expand"),
    ("CastLike", lambda b: b.op("CastLike", b.input("x", "float32", NM), b.input("y", "int32", ("n",))), 13, "Cast"),
    ("Trilu", one("Trilu", ("n", 4, 5), np.int64(-1)), 13, "Where"),
    ("Trilu", one("Trilu", ("n", 4, 5), upper=0, dtype="bool"), 9, "And"),
    ("Gemm", two("Gemm", ("n", 4), (4, 3)), 10, "Gemm"),
    ("ScatterElements", lambda b: b.op("ScatterElements", b.input("x", "float32", (3, 4)), i64(1, 2)[:, None],
                                       b.input("u", "float32", (2, 1)), axis=-1), 10, "Scatter"),
    ("Pow", lambda b: b.op("Pow", b.input("x", "float32", NM), np.int64(3)), 11, "Cast Pow"),
    ("Pow", one("Pow", NM, np.float32(2)), 7, "Pow"),
    ("OptionalGetElement", one("OptionalGetElement", NM), 15, "Identity"),
    ("Mod", two("Mod", NM, NM, fmod=1), 10, "Mod"),
    ("BatchNormalization", one("BatchNormalization", ("n", 3, 4), f32(3), f32(3), f32(3), np.abs(f32(3))), 9,
     "BatchNormalization"),
    *((op, lambda b, op=op, gates=gates: b.ops(
        op, b.input("x", "float32", (2, "n", 4)), f32(1, gates * 3, 4), f32(1, gates * 3, 3), None, None, f32(2, 1, 3),
        outputs=2, hidden_size=3, layout=1), 13, f"Transpose Transpose {op} Transpose Transpose")
      for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4))),
    # operators that others define
    ("Gelu", one("Gelu", NM), 19, "Div Erf Sum Mul Mul"),
    ("Gelu", one("Gelu", NM, approximate="tanh"), 13, "Pow Mul Sum Mul Tanh Sum Mul Mul"),
    ("LayerNormalization", one("LayerNormalization", N46, f32(6), f32(6)), 16,
     "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add"),
    ("LayerNormalization", several("LayerNormalization", 3, N46, f32(4, 6), axis=1), 13, None),
    ("GroupNormalization", one("GroupNormalization", ("n", 6, 4), f32(6), f32(6), num_groups=2), 18,
     "Reshape InstanceNormalization Shape Reshape Mul Add"),
    ("RMSNormalization", one("RMSNormalization", N46, f32(6)), 22, None),
    ("MeanVarianceNormalization", one("MeanVarianceNormalization", (2, 3, 4), axes=(0, 2)), 8, None),
    ("Mish", one("Mish", NM), 17, "Softplus Tanh Mul"),
    ("HardSwish", one("HardSwish", NM), 13, "HardSigmoid Mul"),
    ("Swish", one("Swish", NM, alpha=0.5), 23, None),
    ("Celu", one("Celu", NM, alpha=0.5), 11, None),
    ("Shrink", one("Shrink", NM, bias=0.1), 9, "Shrink"),
    ("ThresholdedRelu", one("ThresholdedRelu", NM, alpha=0.3), 9, None),
    ("SwiGLU", two("SwiGLU", NM, NM), 23, None),
    ("CausalConvWithState", lambda b: b.ops("CausalConvWithState", b.input("x", "float32", (2, 3, 5)), f32(3, 1, 4),
                                            outputs=2), 26, None),
    ("AffineGrid", lambda b: b.op("AffineGrid", b.input("t", "float32", (2, 2, 3)), i64(2, 3, 4, 5)), 19, None),
    ("BlackmanWindow", one("BlackmanWindow", (), dtype="int64"), 16, None),
    ("HammingWindow", one("HammingWindow", (), dtype="int64", periodic=0), 16, None),
    ("HannWindow", one("HannWindow", (), dtype="int64"), 16, None),
    ("CenterCropPad", one("CenterCropPad", (5, 4), i64(3, 6)), 17, None),
    ("Range", lambda b: b.op("Range", np.int64(1), b.input("k", "int64", ()), np.int64(2)), 10, None),
    # element types
    ("Add", two("Add", NM, ("m",), "int8"), 13, "Cast Cast Add Cast"),
    ("Mul", two("Mul", NM, ("m",), "uint8"), 7, "Cast Cast Mul Cast"),
    ("Gelu", one("Gelu", NM, dtype="bfloat16"), 13, None),
    ("Relu", one("Relu", NM, dtype="int32"), 13, "Cast Relu Cast"),
    ("Pad", one("Pad", ("n", 3), i64(1, 0, 2, 1), dtype="bool"), 12, "Cast Pad Cast"),
    ("MaxPool", one("MaxPool", (1, 2, 5, 5), kernel_shape=(2, 2), dtype="int8"), 11, "Cast MaxPool Cast"),
    ("ReduceMax", one("ReduceMax", N46, i64(1), dtype="bool"), 18, "Cast ReduceMax Cast"),
    ("Less", two("Less", NM, NM, "int32"), 7, "Cast Cast Less"),
    # quantization
    ("QuantizeLinear", one("QuantizeLinear", N46, np.float32(0.1), np.uint8(3)), 10, "QuantizeLinear"),
    ("QuantizeLinear", one("QuantizeLinear", N46, np.float32(0.1), output_dtype=dtypes.int8), 13,
     "Sub Cast QuantizeLinear"),
    ("QuantizeLinear", one("QuantizeLinear", N46, np.abs(f32(4)), np.zeros(4, np.int8), axis=1), 13, "QuantizeLinear"),
    ("QuantizeLinear", one("QuantizeLinear", N46, np.abs(f32(4)), np.zeros(4, np.int8), axis=1), 11,
     "Reshape Div Round Cast Reshape Add Clip Cast"),
    ("QuantizeLinear", one("QuantizeLinear", N46, np.float32(0.1), np.int16(3)), 13, "Div Round Cast Add Clip Cast"),
    ("QuantizeLinear", one("QuantizeLinear", (2, 4, 6), np.abs(f32(2, 2, 6)), np.zeros((2, 2, 6), np.uint8), axis=1,
                           block_size=2), 13, "Gather Div Round Cast Gather Add Clip Cast"),
    ("DequantizeLinear", one("DequantizeLinear", N46, np.float32(0.1), np.uint8(3), dtype="uint8"), 10,
     "DequantizeLinear"),
    ("DequantizeLinear", one("DequantizeLinear", N46, np.float32(0.1), dtype="int32"), 10, "DequantizeLinear"),
    ("DequantizeLinear", one("DequantizeLinear", N46, f32(4), np.zeros(4, np.int8), axis=1, dtype="int8"), 12,
     "Cast Cast Reshape Sub Reshape Mul"),
    ("DequantizeLinear", one("DequantizeLinear", N46, f32(4).astype(np.float16), axis=1, dtype="int8"), 13,
     "Cast DequantizeLinear Cast"),
    ("DequantizeLinear", one("DequantizeLinear", N46, np.float16(0.1), output_dtype=dtypes.float32, dtype="int8"), 21,
     "Cast DequantizeLinear"),
    ("DequantizeLinear", one("DequantizeLinear", N46, np.float32(0.1), output_dtype=dtypes.float16, dtype="int8"), 21,
     "DequantizeLinear Cast"),
    ("DequantizeLinear", one("DequantizeLinear", N46, np.float32(0.1), np.uint16(7), dtype="uint16"), 13,
     "Cast Cast Sub Mul"),
    ("DequantizeLinear", one("DequantizeLinear", (2, 8), f32(2, 4), np.ones((2, 4), np.uint8), axis=1, block_size=2,
                             dtype="uint8"), 13, "Cast Cast Gather Sub Gather Mul"),
)  # fmt: skip


def _name(form: tuple[str, Build, int, str | None]) -> str:
    return f"{form[0]} in {form[2]}"


@pytest.mark.parametrize("form", FORMS, ids=_name)
def test_older_forms(form: tuple[str, Build, int, str | None]) -> None:
    op, build, opset, ops = form
    g = graph(build)
    assert_written(g, opset, ops, **({"n": 2} if op == "Split" else {}))


@pytest.mark.parametrize("dtype", ["int32", "uint32"])
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "Squeeze", "Unsqueeze", "Slice"])
def test_what_became_an_operand_widens_nothing(op: str, dtype: str) -> None:
    operands = [i64(0), i64(1), i64(1)] if op == "Slice" else [i64(1)]
    written = to_onnx(graph(one(op, (2, 1, 3), *operands, dtype=dtype)), 9)
    assert [n.op_type for n in written.graph.node] == [op]


def test_every_older_form_is_tested() -> None:
    assert {f[0] for f in FORMS} >= OLDER.keys() - _WITHOUT_NUMBERS


_WITHOUT_NUMBERS = {"Bernoulli"}
"""Operators whose results are random."""

REFUSALS: tuple[tuple[Build, int, str], ...] = (
    (lambda b: b.op("Squeeze", b.input("x", "float32", (1, 3)), b.input("a", "int64", (1,))), 12,
     r"node 'n_Squeeze_0' \(Squeeze\): opset 12 cannot say it: axes that the run gives; the lowest .* is 13"),
    (lambda b: b.op("Slice", *(b.input(x, t, d) for x, t, d in (
        ("x", "float32", (9,)), ("s", "int64", (1,)), ("e", "int64", (1,))))), 9, r"starts that the run gives.* 10"),
    (one("Slice", NM, i64(5), i64(0), i64(0), i64(-1)), 9, r"steps other than 1; .* 10"),
    (several("Split", 3, NM, axis=0, num_outputs=3), 12, r"parts of which the last may be smaller, .* 13"),
    (one("Pad", ("n", 3), i64(1, 0, 2, 1), mode="wrap"), 18, r"mode wrap; .* 19"),
    (lambda b: b.op("Pad", b.input("x", "float32", (3,)), i64(1, 1), b.input("v", "float32", ())), 10,
     r"a value that the run gives; .* 11"),
    (lambda b: b.op("Pad", b.input("x", "float64", (3,)), i64(1, 1), np.float64(0.1)), 10,
     r"a value that is no float32 number; .* 11"),
    (lambda b: b.ops("TopK", b.input("x", "float32", (3,)), b.input("k", "int64", (1,)), outputs=2), 9,
     r"k that the run gives; .* 10"),
    (lambda b: b.op("DFT", b.input("x", "float32", (2, 3, 2)), None, b.input("a", "int64", ())), 17,
     r"an axis that the run gives; .* 20"),
    (lambda b: b.op("ReduceMax", b.input("x", "float32", (2, 3)), b.input("a", "int64", (1,))), 17,
     r"axes that the run gives; .* 18"),
    (two("Max", NM, ("m",)), 7, r"operands of shapes that are not known to be the same; .* 8"),
    (two("Equal", NM, NM), 8, r"its IsNaN: it has no such operator; .* 9"),
    (one("Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), antialias=1), 17, r"antialias 1; .* 18"),
    (one("Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), mode="linear",
         coordinate_transformation_mode="half_pixel_symmetric"), 18, r"half_pixel_symmetric; .* 19"),
    (one("Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), mode="linear"), 10,
     r"coordinate_transformation_mode half_pixel; .* 11"),
    (one("Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), mode="cubic"), 9, r"mode cubic; .* 11"),
    (one("Resize", IMAGE, None, np.array([1, 1, 0.5, 1], np.float32), mode="linear",
         coordinate_transformation_mode="asymmetric"), 9, r"scales below 1; .* 10"),
    (one("Resize", IMAGE, None, np.array([1, 1, 2, 2], np.float32), nearest_mode="ceil",
         coordinate_transformation_mode="asymmetric"), 9,
     r"nearest_mode ceil with scales \[1.0, 1.0, 2.0, 2.0\]; .* 11"),
    (lambda b: b.op("Resize", b.input("x", "float32", IMAGE), None, b.input("s", "float32", (4,)),
                    coordinate_transformation_mode="asymmetric", nearest_mode="floor"), 10,
     r"scales that the run gives; .* 11"),
    (one("Resize", ("n", 3, 4, 4), None, None, i64(1, 3, 8, 8), nearest_mode="floor",
         coordinate_transformation_mode="asymmetric"), 9, r"sizes that the run gives; .* 11"),
    (lambda b: b.op("GridSample", b.input("x", "float32", (1, 1, 2, 2, 2)), b.input("g", "float32", (1, 2, 2, 2, 3))),
     19, r"an image of 3 dimensions; .* 20"),
    (lambda b: b.op("AffineGrid", b.input("t", "float32", (2, 2, 3)), i64(2, 3, 1, 5), align_corners=1), 19,
     r"aligned corners of an image that may have a size of 1; .* 20"),
    (lambda b: b.op("RoiAlign", b.input("x", "float32", IMAGE), np.abs(f32(2, 4)), i64(0, 1)), 15,
     r"coordinate_transformation_mode half_pixel; .* 16"),
    (lambda b: b.op("Reshape", b.input("x", "float32", NM), b.input("s", "int64", (2,)), allowzero=1), 13,
     r"sizes that may be 0; .* 14"),
    (one("Trilu", NM), 13, r"a matrix whose size the run gives; .* 14"),
    (lambda b: b.op("ScatterElements", b.input("x", "float32", (3,)), i64(1), f32(1), reduction="add"), 10,
     r"reduction add; .* 16"),
    (lambda b: b.op("Pow", b.input("x", "int32", NM), b.input("y", "float32", NM)), 11,
     r"int32 to the power of float32; .* 12"),
    (several("BatchNormalization", 3, ("n", 3), f32(3), f32(3), f32(3), np.abs(f32(3)), training_mode=1), 13,
     r"a normalization of training; .* 14"),
    (one("QuantizeLinear", NM, np.float32(1), output_dtype=dtypes.int4), 20, r"numbers of int4; .* 21"),
    (one("AveragePool", (1, 1, 8), kernel_shape=(2,), dilations=(2,)), 18, r"it knows no attribute dilations; .* 19"),
    (one("Mod", NM, np.float32(2)), 27, r"remainder of floats with the sign of the divisor; .* 28"),
    (one("Cast", NM, to=dtypes.int4), 20, r"output 0: expected a tensor of .*, got int4; .* 21"),
    (one("BitwiseNot", NM, dtype="int32"), 17, r"it has no such operator; .* 18"),
    (one("Abs", NM, dtype="bfloat16"), 12, r"its Cast: input 0: expected a tensor of .*, got bfloat16; .* 13"),
)  # fmt: skip


@pytest.mark.parametrize(("build", "opset", "reason"), REFUSALS, ids=[r[2][:40] for r in REFUSALS])
def test_refusals(build: Build, opset: int, reason: str) -> None:
    g = graph(build)
    with pytest.raises(UnsupportedError, match=reason) as caught:
        to_onnx(g, opset)
    lowest = int(str(caught.value).rsplit(" ", 1)[1])
    assert to_onnx(g, lowest).opset_import[0].version == lowest
