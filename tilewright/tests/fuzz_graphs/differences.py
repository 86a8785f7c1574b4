"""Where onnxruntime and the standard differ: who is right, and why. A difference without a rule here is a finding.

A rule matches one node with its input values. Each says in a sentence what onnxruntime does and what the standard
(or the reference implementation in the onnx package) says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

Inputs: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """A node with its values, what differs, and what onnxruntime gives."""

    node: onnx.NodeProto
    arrays: Inputs
    wrong: str
    ours: Mapping[str, object]
    theirs: Mapping[str, object]

    def attr(self, key: str, default: object = None) -> object:
        for a in self.node.attribute:
            if a.name == key:
                return helper.get_attribute_value(a)
        return default

    def ints(self, key: str) -> list[int]:
        value = self.attr(key, [])
        return [int(v) for v in value] if isinstance(value, list) else []

    def input(self, k: int) -> np.ndarray | None:
        if k >= len(self.node.input) or not self.node.input[k]:
            return None
        x = self.arrays[self.node.input[k]]
        return x if isinstance(x, np.ndarray) else None

    def has_odd(self, k: int = 0) -> bool:
        """True if a float input has a NaN or an infinity."""
        x = self.input(k)
        return x is not None and x.dtype.kind in "fV" and not bool(np.isfinite(x.astype(np.float64)).all())

    def largest_error(self) -> float:
        """The largest difference of floats on both sides, relative to 1 + the size; infinite where NaNs differ."""
        worst = 0.0
        for name, got in self.theirs.items():
            want = self.ours.get(name)
            if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray) or got.shape != want.shape:
                return float("inf")
            with np.errstate(all="ignore"):
                a, b = got.astype(np.float64), want.astype(np.float64)
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                off = np.where(same, 0.0, np.abs(a - b) / (1 + np.abs(b)))
            worst = max(worst, float(np.nan_to_num(off, nan=np.inf).max(initial=0.0)))
        return worst

    def has_huge(self) -> bool:
        """True if a float is not finite or so large that its square is not, or so small that its square is zero."""
        for k in range(len(self.node.input)):
            x = self.input(k)
            if x is None or x.size == 0 or x.dtype.kind not in "fV":
                continue
            top = {"float64": 1e150, "float16": 200.0}.get(x.dtype.name, 1e18)
            size = np.abs(x.astype(np.float64))
            if not bool((size < top).all()) or bool(((size > 0) & (size < 1 / top)).any()):
                return True
        return False

    def is_integer(self, k: int = 0) -> bool:
        x = self.input(k)
        return x is not None and x.dtype.kind in "iu"

    def is_empty(self, k: int = 0) -> bool:
        x = self.input(k)
        return x is not None and x.size == 0


@dataclass(frozen=True, slots=True)
class Difference:
    """``ops``: the operators it is about. ``when``: whether it explains a case. ``why``: who is right. ``types``: it is
    about shapes and element types, or about what one side refuses, too; else about values alone."""

    name: str
    ops: tuple[str, ...]
    when: Callable[[Case], bool]
    why: str
    types: bool = False


def _is_same_padded(c: Case) -> bool:
    dilated = any(d > 1 for d in c.ints("dilations"))
    return c.attr("auto_pad", b"") in (b"SAME_UPPER", b"SAME_LOWER") and (dilated or "shape" in c.wrong)


def _is_dilated_beyond_images(c: Case) -> bool:
    dilations = c.ints("dilations")
    return len(dilations) != 2 and any(d > 1 for d in dilations)


def _goes_back_to_the_largest_integer(c: Case) -> bool:
    ends, steps = c.input(2), c.input(4)
    if ends is None or steps is None:
        return False
    return bool(((steps < 0) & ((ends == 2**31 - 1) | (ends == 2**63 - 1))).any())


def _is_one_place_between_corners(c: Case) -> bool:
    size = c.input(1)
    return bool(c.attr("align_corners", 0)) and size is not None and 1 in size[2:]


def _is_empty_product(c: Case) -> bool:
    return any(x.size == 0 and x.ndim > 1 for k in range(5) if (x := c.input(k)) is not None)


def _is_cubic_at_the_border(c: Case) -> bool:
    return c.attr("mode") in (b"cubic", b"bicubic") and c.attr("padding_mode") == b"border"


def _is_resized_integer(c: Case) -> bool:
    return c.is_integer() and c.attr("mode", b"nearest") != b"nearest"


def _has_one_place(c: Case) -> bool:
    """True if some axis of the result has one element and more than one in the input."""
    x = c.input(0)
    y = c.ours.get(c.node.output[0])
    return isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and any(
        n > 1 and m == 1 for n, m in zip(x.shape, y.shape, strict=False)
    )  # fmt: skip


def _is_resized_by_a_fraction(c: Case) -> bool:
    x, scales = c.input(0), c.input(2)
    way = c.attr("coordinate_transformation_mode")
    if way not in (b"align_corners", b"tf_crop_and_resize", b"pytorch_half_pixel") or x is None:
        return False
    if way == b"pytorch_half_pixel" and not _has_one_place(c):
        return False
    if scales is None or scales.size == 0:
        return c.attr("keep_aspect_ratio_policy", b"stretch") != b"stretch"
    axes = c.ints("axes") or tuple(range(x.ndim))
    return any(float(s) * x.shape[a] % 1 for s, a in zip(scales, axes, strict=True))


def _is_nearly_a_tie(c: Case) -> bool:
    """True if a place of the nearest element is so near the middle of two, or an element, that float32 cannot tell."""
    x, scales, y = c.input(0), c.input(2), c.ours.get(c.node.output[0])
    if c.attr("mode", b"nearest") != b"nearest" or x is None or not isinstance(y, np.ndarray):
        return False
    axes = c.ints("axes") or range(x.ndim)
    if scales is None:  # sizes
        scales = np.array([y.shape[a] / max(x.shape[a], 1) for a in axes])
    for a, scale in zip(axes, scales.astype(np.float64), strict=False):
        if scale == 0:
            continue
        i = np.arange(y.shape[a])
        twice = 2 * np.concatenate([(i + 0.5) / scale - 0.5, i / scale])
        off = np.abs(twice - np.rint(twice))
        if bool(((off > 1e-12) & (off < 1e-6 * (1 + twice))).any()):
            return True
        if c.attr("coordinate_transformation_mode") == b"half_pixel_symmetric" and scale != 1:
            shift = x.shape[a] / 2 - len(i) / (2 * scale)  # that of the middle, a difference of rounded numbers
            places = (i + 0.5) / scale - 0.5 + shift
            if bool((np.abs(2 * places - np.rint(2 * places)) < 1e-6 * (1 + np.abs(places))).any()):
                return True
    return False


def _is_cut_at_scale_one(c: Case) -> bool:
    x, roi, y = c.input(0), c.input(1), c.ours.get(c.node.output[0])
    if c.attr("coordinate_transformation_mode") != b"tf_crop_and_resize" or x is None or roi is None:
        return False
    axes = c.ints("axes") or list(range(x.ndim))
    same = isinstance(y, np.ndarray) and [x.shape[a] == y.shape[a] for a in axes]
    return bool(same) and any(s and (b, e) != (0, 1) for s, (b, e) in zip(same, roi.reshape(2, -1).T, strict=True))


def _is_shorter_than_strides(c: Case) -> bool:
    """True if windows of SAME leave gaps."""
    if c.attr("auto_pad", b"") not in (b"SAME_UPPER", b"SAME_LOWER"):
        return False
    kernel = c.ints("kernel_shape")
    dilations = c.ints("dilations") or [1] * len(kernel)
    spans = ((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    return any(span < s for span, s in zip(spans, c.ints("strides"), strict=False))


def _is_power_out_of_range(c: Case) -> bool:
    base, exponent = c.input(0), c.input(1)
    if base is None or exponent is None or not c.is_integer():
        return False
    with np.errstate(all="ignore"):
        power = np.power(base.astype(np.float64), exponent.astype(np.float64))
    limits = np.iinfo(base.dtype)
    low, high = float(limits.min), float(limits.max)
    return not bool(((power > low) & (power < high)).all()) or bool((np.abs(power) > 2.0**53).any())


def _hands_on_its_number(c: Case) -> bool:
    body = c.attr("body")
    return isinstance(body, onnx.GraphProto) and body.input[0].name in [o.name for o in body.output]


def _is_close(c: Case) -> bool:
    return c.largest_error() < 2e-5


def _is_close_beside_shift(c: Case) -> bool:
    """Whether the difference is one of roundings of the mean times the scale, which are as large as the input's."""
    x, scale = c.input(0), c.input(1)
    if x is None or scale is None:
        return False
    epsilon = c.attr("epsilon", 1e-5)
    assert isinstance(epsilon, float)
    size = float(np.abs(x.astype(np.float64)).max(initial=0) * np.abs(scale.astype(np.float64)).max(initial=0))
    return c.largest_error() < 2e-5 + 2.0**-21 * size / max(epsilon, 1e-12) ** 0.5


def _is_close_in_each_step(c: Case) -> bool:
    x = c.input(0)
    return x is not None and c.largest_error() < 2e-5 * max(x.shape[c.attr("layout", 0) == 1], 1)


_ORDERED = tuple("MaxPool GlobalMaxPool ReduceMax ReduceMin ArgMax ArgMin TopK Max Min Hardmax Relu PRelu Clip Unique "
                 "MaxRoiPool RoiAlign Sign LeakyRelu ThresholdedRelu GlobalLpPool LpPool AveragePool "
                 "GlobalAveragePool Softmax LogSoftmax ScatterElements ScatterND".split())  # fmt: skip
_SQUARING = tuple("LayerNormalization RMSNormalization InstanceNormalization GroupNormalization BatchNormalization LRN "
                  "LpNormalization ReduceL2 ReduceSumSquare ReduceLogSum ReduceSum ReduceL1 ReduceMean LpPool "
                  "GlobalLpPool AveragePool GlobalAveragePool ReduceLogSumExp Softmax LogSoftmax CumSum CumProd Mean "
                  "Sum Det ReduceProd Resize GridSample".split())  # fmt: skip
_INTEGER_SUMS = tuple("ReduceSum ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd "
                      "Mean".split())  # fmt: skip
_PRODUCTS = tuple("MatMul Gemm Einsum Conv ConvTranspose DFT STFT Attention DeformConv".split())
_PARAMETERS = tuple("Shrink LeakyRelu Elu Selu ThresholdedRelu HardSigmoid Celu GridSample Resize Swish".split())
_RECURRENT = ("LSTM", "GRU", "RNN")
_WINDOWS = ("MaxPool", "AveragePool", "LpPool", "ConvTranspose")
_SMOOTH = tuple("LogSoftmax Softmax Sigmoid Tanh Erf Gelu Softplus Mish Selu Elu Exp Swish HardSwish Celu".split())

RULES: tuple[Difference, ...] = (
    Difference("approximate_functions", _SMOOTH, _is_close,
               "onnxruntime's polynomials are off by up to 1e-5 of 1; ours and numpy's are exact to a few units"),
    Difference("approximate_gates", _RECURRENT, _is_close_in_each_step,
               "likewise, and each step begins with the error of the one before"),
    Difference("power_of_mixed_types", ("Pow",), lambda c: "element type" in c.wrong,
               "the standard gives the base's type; onnxruntime computes float16 in float32 and returns that",
               types=True),
    Difference("attributes_in_doubles", _PARAMETERS, _is_close,
               "the standard's defaults are float32 numbers and so are they here; onnxruntime computes some doubles in "
               "float32"),
    Difference("same_padding_of_dilated_windows", _WINDOWS, _is_same_padded,
               "with auto_pad = SAME the standard gives ceil(size / stride); onnxruntime pads for the window as if it "
               "were not dilated",
               types=True),
    Difference("unpooled_into_a_shape", ("MaxUnpool",), lambda c: len(c.node.input) > 2,
               "indices are places in the input of the pool, from which the standard cuts or pads; onnxruntime takes "
               "them as places of the given shape",
               types=True),
    Difference("resized_integers", ("Resize",), _is_resized_integer,
               "the standard's reference rounds to the nearest integer; onnxruntime cuts the fraction off, or "
               "has fixed point numbers of few bits in filters"),
    Difference("resized_by_a_fraction", ("Resize",), _is_resized_by_a_fraction,
               "corners lie a scale times the size apart, which need not be whole (the standard's test cases have it "
               "so), nor 1 where one element comes out; onnxruntime takes the whole number of elements"),
    Difference("rounded_into_the_image", ("Resize",),
               lambda c: c.attr("coordinate_transformation_mode") == b"tf_crop_and_resize"
               and c.attr("mode", b"nearest") == b"nearest",
               "a place outside the image gives the extrapolation value; onnxruntime asks that of the rounded place"),
    Difference("ties_of_nearest", ("Resize",), _is_nearly_a_tie,
               "a scale is a float32 number that divides in doubles, as in the reference; onnxruntime divides in "
               "float32, which makes a tie of what is none"),
    Difference("cut_at_scale_one", ("Resize",), _is_cut_at_scale_one,
               "a region of an axis that keeps its size is cut out like others; onnxruntime leaves such an axis alone"),
    Difference("same_padding_of_short_windows", _WINDOWS[:3], _is_shorter_than_strides,
               "windows shorter than their stride need no padding; onnxruntime's pools pad by a negative number then, "
               "which cuts the image (its convolutions do not)"),
    Difference("one_place_between_corners", ("AffineGrid",), _is_one_place_between_corners,
               "of the numbers from -1 to 1 a single place has the first one; onnxruntime gives the last"),
    Difference("rounded_places", ("AffineGrid",), _is_close,
               "places are rounded: the middle may be 1e-16 for the reference and 0 for onnxruntime"),
    Difference("cubic_at_the_border", ("GridSample",), _is_cubic_at_the_border,
               "the standard's reference moves a place beyond the border onto it; onnxruntime keeps its fraction and "
               "weighs elements that are all the same or nearly"),
    Difference("empty_integer_products", ("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"),
               _is_empty_product,
               "a sum of nothing is zero; onnxruntime returns its buffer as it was"),
    Difference("dilated_col2im", ("Col2Im",), _is_dilated_beyond_images,
               "the window's elements lie a dilation apart, as in the reference; onnxruntime's code for other than two "
               "dimensions takes the dilations for 1"),
    Difference("ratio_of_negative_axes", ("Resize",),
               lambda c: "shape" in c.wrong and any(a < 0 for a in c.ints("axes")),
               "negative axes mean the same as positive ones; onnxruntime keeps the ratio of the positive ones only",
               types=True),
    Difference("empty_means", ("ReduceMean", "MeanVarianceNormalization"), Case.is_empty,
               "the mean of nothing is NaN (numpy, the reference); onnxruntime gives zero"),
    Difference("quantized_nan", ("QuantizeLinear", "DynamicQuantizeLinear", "Cast"),
               lambda c: c.has_odd() or c.has_huge(), "the standard leaves NaN and numbers out of range open"),
    Difference("shrink_in_float32", ("Shrink",), lambda c: c.is_integer() or c.has_huge(),
               "onnxruntime computes integers and doubles in float32 and converts, which wraps or overflows at the "
               "limits"),
    Difference("unique_nan", ("Unique",), Case.has_odd,
               "a NaN is another element than all numbers (numpy); onnxruntime's order finds it equal to every one and "
               "drops slices",
               types=True),
    Difference("handed_on_iteration", ("Loop",), _hands_on_its_number,
               "a body that returns its iteration number returns just that; onnxruntime counts on in the same buffer"),
    Difference("order_with_nan", _ORDERED, lambda c: c.has_odd() or (c.attr("reduction") is not None and c.has_odd(2)),
               "numpy's and the reference's maximum hands a NaN on, and its argmax gives the first NaN's place; "
               "onnxruntime skips a NaN or not, depending on its place in a vector"),
    Difference("recurrent_with_odd_values", _RECURRENT, lambda c: any(c.has_odd(k) for k in range(8)) or c.has_huge(),
               "onnxruntime clamps the arguments of its sigmoid and tanh, which makes a number of a NaN, also of one "
               "that comes of infinities of both signs in one sum"),
    Difference("recurrent_without_steps", _RECURRENT, Case.is_empty,
               "the last state of no steps is the first one; onnxruntime returns zeros or its buffer as it was"),
    Difference("edges_of_nothing", ("Pad",), lambda c: c.is_empty() and c.attr("mode", b"constant") != b"constant",
               "an axis of no elements has none to repeat, and is refused here; onnxruntime fills with something",
               types=True),
    Difference("clipped_cells", ("LSTM",), lambda c: c.attr("clip") is not None,
               "clip applies to the input of activations, of the last one, too; onnxruntime leaves that as it is"),
    Difference("normalized_by_shift", ("InstanceNormalization",), _is_close_beside_shift,
               "onnxruntime adds the bias minus the scaled mean, which cancels; here the difference to the mean comes "
               "first"),
    Difference("power_out_of_range", ("Pow",), _is_power_out_of_range,
               "the standard leaves numbers beyond the base's type open: those of integers wrap here; onnxruntime "
               "computes in doubles, which saturate and are exact up to 2^53 only"),
    Difference("overflow_in_norms", (*_SQUARING, "AffineGrid"), Case.has_huge,
               "squares and differences overflow or vanish, at another step on each side"),
    Difference("integer_sums", _INTEGER_SUMS, Case.is_integer,
               "the standard says nothing of overflow; we keep the type and wrap, as numpy does; onnxruntime "
               "saturates, widens or goes through floats"),
    Difference("variance_of_constants", ("MeanVarianceNormalization",), lambda c: True,
               "onnxruntime has no epsilon here, the standard's definition adds 1e-9 to the deviation"),
    Difference("double_by_float_tables", ("DFT", "BlackmanWindow", "HammingWindow", "HannWindow", "STFT"), _is_close,
               "onnxruntime takes sines and cosines in float32 for doubles too"),
    Difference("backward_slice_to_the_largest_integer", ("Slice",), _goes_back_to_the_largest_integer,
               "the standard clamps such an end to the last element, so that nothing is taken; onnxruntime goes to the "
               "first element, as if no end were given",
               types=True),
    Difference("products_of_infinities", _PRODUCTS, Case.has_huge,
               "infinities of both signs in one sum, or an overflow, that another order of summation meets or not"),
)  # fmt: skip


def explain_difference(
    node: onnx.NodeProto, arrays: Inputs, wrong: str, ours: Mapping[str, object], theirs: Mapping[str, object]
) -> str:
    """The name of the rule that explains why onnxruntime differs from the reference on this node, or ""."""
    case = Case(node, arrays, wrong, ours, theirs)
    of_values = "differ, first at" in wrong
    rules = (r for r in RULES if node.op_type in r.ops and (r.types or of_values))
    return next((r.name for r in rules if r.when(case)), "")
