"""What the graph fuzzer found, each cut down to its smallest graph: text of the graph, constants, sizes of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from tilewright.core import dtypes
from tilewright.tests.fuzz_graphs import data
from tilewright.tests.fuzz_graphs.check import Build, check_sample
from tilewright.tests.fuzz_graphs.sample import Sample

BUILDS = (Build("none", 1), Build("all", 2))


@dataclass(frozen=True, slots=True)
class Finding:
    """``graph``: a graph in the text form of ONNX, whose inputs have fixed or symbolic sizes. ``constants``: arrays by
    name. ``feed``: inputs by name, random where absent. ``sizes``: of the symbolic dims, one mapping per run."""

    what: str
    graph: str
    opset: int = 21
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    feed: Mapping[str, np.ndarray] = field(default_factory=dict)
    sizes: Sequence[Mapping[str, int]] = ({},)

    def sample(self) -> Sample:
        """The graph as the fuzzer has it."""
        rng = np.random.default_rng(0)
        graph: onnx.GraphProto = parser.parse_graph(self.graph)
        inputs: dict[str, tuple[int | str, ...]] = {}
        values: dict[str, tuple[object, ...]] = {n: (a,) * len(self.sizes) for n, a in self.constants.items()}
        for i in graph.input:
            if i.name in self.constants:
                continue
            dims = tuple(d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim)
            inputs[i.name] = dims
            dtype = dtypes.from_onnx(i.type.tensor_type.elem_type).numpy
            shapes = [tuple(s.get(d, d) if isinstance(d, str) else d for d in dims) for s in self.sizes]
            values[i.name] = tuple(
                self.feed[i.name] if i.name in self.feed else data.random_array(rng, dtype, shape) for shape in shapes
            )
        for t in graph.initializer:
            values[t.name] = (numpy_helper.to_array(t),) * len(self.sizes)
        constants = (*self.constants, *(t.name for t in graph.initializer))
        outputs = tuple(o.name for o in graph.output)
        runs = tuple(range(len(self.sizes)))
        return Sample(tuple(graph.node), inputs, constants, outputs, values, self.opset, runs)


def _random(shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


_NAN, _INF = np.nan, np.inf

FINDINGS = (
    Finding("packed weights of a narrow type are converted to the type that the kernel reads",
            "g (float16[7,16,3,1] x) => (float16[?,?,?,?] y) { y = Conv<group = 16>(x, w) }",
            constants={"w": _random((16, 1, 1, 1), np.float16)}),
    Finding("an LSTM clips the argument of its last activation too",
            "g (float[5,2,3] x) => (float[?,?,?,?] y) { y = LSTM<hidden_size = 4, clip = 0.5>(x, w, r) }",
            constants={"w": _random((1, 16, 3)) * 3, "r": _random((1, 16, 4)) * 3}),
    Finding("the defaults of attributes are float32 numbers, for doubles too",
            "g (double[9] x) => (double[9] y) { y = LeakyRelu(x) }"),
    Finding("recurrent layers of no sequences",
            "g (float[3,0,2] x) => (float[?,?,?,?] y, float[?,?,?] h) { y, h = RNN<hidden_size = 4>(x, w, r) }",
            constants={"w": _random((1, 4, 2)), "r": _random((1, 4, 4))}),
    Finding("a size that a scale makes zero: nothing is written",
            "g (float[1,2,3,1,3] x) => (float[?,?,?,?,?] y)"
            """{ y = Resize<mode = "linear">(x, "", s) }""",
            constants={"s": np.array([1, 1, 0.7, 0.5, 3], np.float32)}),
    Finding("thresholds of large integers", "g (uint32[4] x) => (uint32[4] y) { y = Shrink(x) }",
            feed={"x": np.array([2**32 - 1, 0, 3, 2**31], np.uint32)}),
    Finding("a deformed convolution is native code",
            "g (float[2,4,5,6] x, float[2,24,4,3] o, float[2,12,4,3] m) => (float[?,?,?,?] y)"
            """{ y = DeformConv<group = 2, offset_group = 2, pads = [1,0,0,1], strides = [1, 2]>(x, w, o, "", m) }""",
            constants={"w": _random((6, 2, 3, 2))}),
    Finding("softplus far below zero", "g (float[4] x) => (float[4] y) { y = Softplus(x) }",
            feed={"x": np.array([-7.710656, -20, -80, 3], np.float32)}),
    Finding("an image's rank that the block tells, or nothing",
            "g (float[1,6,16] x, int64[n] i, int64[n] j) => (float[?,?,?,?] y, float[?,?,?,?] z)"
            "<int64[2] b = {3, 1}> { y = Col2Im<pads = [0,0,1,1]>(x, i, b) z = Col2Im<pads = [0,0,1,1]>(x, i, j) }",
            feed={"i": np.array([3, 7]), "j": np.array([3, 1])}, sizes=({"n": 2},)),
    Finding("a pool of nothing is undone", "g (float[1,2,0] x, int64[1,2,0] i) => (float[1,2,?] y)"
            "{ y = MaxUnpool<kernel_shape = [2], strides = [2]>(x, i) }"),
    Finding("a power has the base's type", "g (float[3] x, float16[3] e) => (float[3] y, float16[3] z)"
            "{ y = Pow(x, e) z = Pow(e, x) }",
            feed={"x": np.array([2, 3, 0.5], np.float32), "e": np.array([0.5, 2, 3], np.float16)}),
    Finding("powers of integers wrap", "g (int64[4] x, uint64[4] e) => (int64[4] y) { y = Pow(x, e) }",
            feed={"x": np.array([2**40 + 7, 3, -7, -1]), "e": np.array([3, 21, 64, 7], np.uint64)}),
    Finding("a sixth is a float32 number, for doubles too",
            "g (double[9] x) => (double[9] y) { y = HardSwish(x) }", opset=17),
    Finding("the statistics of a layer of doubles are float32",
            "g (double[3,5] x, double[5] s) => (double[3,5] y, float[3,1] m, float[3,1] d)"
            "{ y, m, d = LayerNormalization(x, s) }"),
    Finding("the first NaN is the largest and the least element",
            "g (float[3,4] x) => (int64[?] y, int64[?] z, float[3,4] h)"
            "{ y = ArgMax<keepdims = 0>(x) z = ArgMin<keepdims = 0, select_last_index = 1>(x) h = Hardmax(x) }",
            feed={"x": np.array([[1, np.nan, 3, 0], [np.nan, 5, 4, np.inf], [2, np.nan, -np.inf, 1]], np.float32)}),
    Finding("the default epsilon of a normalization is a float32 number, for doubles too",
            "g (double[1,2,4] x) => (double[1,2,4] y) { y = BatchNormalization(x, s, s, s, v) }",
            constants={"s": np.array([0.5, 2]), "v": np.array([1e-3, 1e-4])}),
    Finding("distinct elements in the order of their first occurrence",
            "g (int64[9] x) => (int64[?] y) { y = Unique<sorted = 0>(x) }",
            feed={"x": np.array([3, -1, 3, 7, -1, 0, 9, 7, 2])}),
    Finding("the last piece of a Split is not wanted",
            """g (float[5] x, float[5] z) => (float[?] y, float[?] w)"""
            """{ y, "" = Split(x, s)  w, "" = Split<num_outputs = 2>(z) }""",
            constants={"s": np.array([2, 3])}),
    Finding("a backward slice that would begin before the first element begins at the first",
            "g (int32[5,8] x) => (int32[?,?] y) { y = Slice(x, s, e, a, t) }",
            constants={"s": np.array([-9, 3]), "e": np.array([-(2**62), -(2**63)]), "a": np.array([1, 0]),
                       "t": np.array([-1, -(2**63) + 1])}),
    Finding("a Slice that takes nothing at any size, and steps as long as an integer can be",
            "g (float[n,3] x) => (float[?,?] y, float[?,?] z) { y = Slice(x, s, e)  z = Slice(x, o, b, a, t) }",
            constants={"s": np.array([-5, -2]), "e": np.array([-(2**31), -(2**62)]), "o": np.array([0, -1]),
                       "b": np.array([2**63 - 1, -(2**63)]), "a": np.array([0, 1]),
                       "t": np.array([2**63 - 1, -(2**63)])},
            sizes=({"n": 3}, {"n": 8})),
    Finding("a Slice with starts of a symbolic number",
            "g (float[2,5] x, int64[n] s) => (float[?,?] y) { y = Slice(x, s, e, a) }",
            constants={"e": np.array([2, 4]), "a": np.array([0, 1])}, feed={"s": np.array([1, -3])},
            sizes=({"n": 2},)),
    Finding("Col2Im into a shape that the run gives",
            "g (float[1,8,6] x, int64[2] s) => (float[?,?,?,?] y) { z = Col2Im(x, s, b)  y = Relu(z) }",
            constants={"b": np.array([2, 2])}, feed={"s": np.array([3, 4])}),
    Finding("a transform along an axis that the run gives",
            """g (float[2,8,3,1] x, int64 a) => (float[?,?,?,?] y) { z = DFT<onesided = 1>(x, "", a)  y = Abs(z) }""",
            feed={"a": np.array(1)}),
    Finding("doubles are sampled at places that are doubles",
            "g (double[1,1,3,7] x, double[1,7,1,2] p) => (double[?,?,?,?] y)"
            "{ y = GridSample<align_corners = 1>(x, p) }"),
    Finding("one place between corners has the first number",
            "g (float[2,2,3] t) => (float[?,?,?,?] y) { y = AffineGrid<align_corners = 1>(t, s) }",
            constants={"s": np.array([2, 3, 1, 5])}),
    Finding("places of maxima by columns are those of the first in the order of rows",
            "g (uint8[n,2,4,4] x) => (uint8[?,?,?,?] y, int64[?,?,?,?] i)"
            "{ y, i = MaxPool<kernel_shape = [2, 3], storage_order = 1>(x) }",
            feed={"x": np.tile(np.array([3, 7, 7, 2], np.uint8), (3, 2, 4, 1))}, sizes=({"n": 3},)),
    Finding("the place of a NaN is its own, not the first of its window",
            "g (float[1,1,4,4] x) => (float[?,?,?,?] y, int64[?,?,?,?] i)"
            "{ y, i = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) }",
            feed={"x": np.array([[1, 2, 3, 4], [5, np.nan, 7, 8], [9, np.nan, np.nan, 3], [4, 5, 6, 7]],
                                np.float32).reshape(1, 1, 4, 4)}),
    Finding("regions with a number of samples of their own",
            "g (float[2,3,n,7] x, float[3,4] b) => (float[?,?,?,?] y)"
            "{ y = RoiAlign<output_height = 2, output_width = 3>(x, b, w) }",
            constants={"w": np.array([0, 1, 0])},
            feed={"b": np.array([[0, 0, 6, 5], [1, 1, 1.5, 1.2], [-3, -2, 30, 20]], np.float32)},
            sizes=({"n": 5}, {"n": 9})),
    Finding("maxima of regions", "g (float[2,3,6,7] x, float[3,5] b) => (float[?,?,?,?] y)"
            "{ y = MaxRoiPool<pooled_shape = [2, 3]>(x, b) }",
            feed={"b": np.array([[0, 0, 0, 6, 5], [1, 1, 1, 1, 1], [1, -3, -2, 30, 20]], np.float32)}),
    Finding("determinants of more than four rows", "g (float[2,n,n] x) => (float[2] y) { y = Det(x) }",
            sizes=({"n": 3}, {"n": 7})),
    Finding("weights of mel bins", "g (int64 n, float f) => (float[?,?] y) { y = MelWeightMatrix(n, d, r, f, t) }",
            feed={"n": np.array(5), "f": np.array(100, np.float32)},
            constants={"d": np.array(32), "r": np.array(8000), "t": np.array(3900, np.float32)}),
    Finding("blocks of columns whose sizes the run gives",
            "g (float[2,12,3] x, int64[2] s, int64[2] b) => (float[?,?,?,?] y)"
            "{ y = Col2Im<strides = [2, 2], pads = [0, 1, 1, 1]>(x, s, b) }",
            feed={"s": np.array([2, 5]), "b": np.array([3, 2])}),
    Finding("interpolated integers are rounded and stay in their range",
            "g (uint8[1,1,9] x) => (uint8[?,?,?] y, uint8[?,?,?] z)"
            "<float[3] s = {1, 1, 0.6}, float[3] u = {1, 1, 2.5}>"
            """{ y = Resize<mode = "linear", antialias = 1>(x, "", s)  z = Resize<mode = "cubic">(x, "", u) }""",
            feed={"x": np.array([0, 255, 255, 0, 0, 250, 7, 9, 255], np.uint8).reshape(1, 1, 9)}),
    Finding("doubles are interpolated as doubles",
            "g (double[1,1,n,7] x) => (double[?,?,?,?] y, double[?,?,?,?] z) <float[4] s = {1, 1, 1.5, 0.7}>"
            """{ y = Resize<mode = "linear">(x, "", s)"""
            """  z = Resize<mode = "cubic", coordinate_transformation_mode = "align_corners">(x, "", s) }""",
            sizes=({"n": 3}, {"n": 8})),
    Finding("a part of an image that the run gives, at any size",
            "g (float[1,2,n,5] x, float[4] r, float[2] s) => (float[?,?,?,?] y, float[?,?,?,?] z)"
            """{ y = Resize<mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize", axes = [2, 3],"""
            """    extrapolation_value = 7.0>(x, r, s)"""
            """  z = Resize<coordinate_transformation_mode = "tf_crop_and_resize", axes = [2, 3]>(x, r, s) }""",
            feed={"r": np.array([-0.1, 0.2, 0.8, 1.3], np.float32), "s": np.array([1.5, 2], np.float32)},
            sizes=({"n": 3}, {"n": 8}, {"n": 1})),
    Finding("nothing gets from one channel to another where all sizes are given by the run",
            "g (float[1,2,3] x, int64[3] s) => (float[?,?,?] y)"
            """{ y = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, "", "", s) }""",
            feed={"x": np.array([[[np.nan, 1, 2], [3, 4, 5]]], np.float32), "s": np.array([1, 2, 5])}),
    Finding("a filter does not read what it weighs with zero",
            "g (float[1,1,n] x) => (float[?,?,?] y) <float[3] s = {1, 1, 0.7}>"
            """{ y = Resize<mode = "cubic", antialias = 1>(x, "", s) }""",
            feed={"x": np.array([1, 2, np.nan, 3, 4, 5, 6, 7, 8], np.float32).reshape(1, 1, 9)}, sizes=({"n": 9},)),
    Finding("limits of suppression are scalars",
            "g (float[1,3,4] b, float[1,1,3] s, int64 m) => (int64[?,3] y) { y = NonMaxSuppression(b, s, m) }",
            feed={"m": np.array(2)}),
    Finding("a number that is none is quantized to the lowest integer", "g (float[4] x) => (int8[4] y)"
            "<float s = {0.5}, int8 z = {5}> { y = QuantizeLinear(x, s, z) }",
            feed={"x": np.array([np.nan, 1, np.inf, np.nan], np.float32)}),
    Finding("a scale of a NaN",
            "g (float[4] x) => (uint8[4] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }",
            feed={"x": np.array([np.nan, 1, 3, 2], np.float32)}),
    Finding("the logarithm of a softmax that is too small for a number",
            "g (float[2,3] x) => (float[2,3] y) { y = LogSoftmax(x) }",
            feed={"x": np.array([[0, -150, -800], [3, 2, 1]], np.float32)}),
    Finding("a shape up to before its first axis",
            "g (float[n,16,5] x) => (int64[?] y, int64[?] z) { y = Shape<end = -4>(x)  z = Shape<start = -5>(x) }",
            sizes=({"n": 3},)),
    Finding("one-hot values that differ by more than their own rounding",
            "g (int64[5] x) => (float[?,?] y) { y = OneHot(x, d, v) }",
            constants={"d": np.array(3), "v": np.array([-0.01766202, -0.00017012283], np.float32)},
            feed={"x": np.array([-4, -3, 0, 2, 3])}),
    Finding("moves of no elements",
            """g (int8[0,n,5] x, int32[0,4,7] z) => (int8[?,?] y, int32[?,?] w)"""
            """{ y = Flatten(x)  w = GatherND(z, i) }""",
            constants={"i": np.zeros((0, 2), np.int64)}, sizes=({"n": 3},)),
    Finding("negative pads beside positive ones",
            "g (float[2,5] x) => (float[?,?] y, float[?,?] z) { y = Pad(x, p, v)  z = Pad(x, q, v) }",
            constants={"p": np.array([2, -1, -1, 3]), "q": np.array([3, 0, -4, -2]), "v": np.array(7, np.float32)}),
    Finding("a slope that is no number, for what needs none",
            "g (float[4] x) => (float[4] y) { y = PRelu(x, s) }",
            constants={"s": np.array([np.nan], np.float32)}, feed={"x": np.array([0, 1, -0.0, -1], np.float32)}),
    Finding("what pads repeat is what negative ones leave",
            """g (float[5,4] x, float[n] z) => (float[?,?] y, float[?] w, float[?] v)"""
            """{ y = Pad<mode = "wrap">(x, p)  w = Pad<mode = "wrap">(z, q)  v = Pad<mode = "reflect">(z, r) }""",
            constants={"p": np.array([2, -2, -1, 3]), "q": np.array([3, -1]), "r": np.array([-1, 3])},
            sizes=({"n": 5}, {"n": 4})),
    Finding("a softmax of no elements, of rows from the second axis on",
            "g (float[2,3,0] x) => (float[?,?,?] y) { y = LogSoftmax<axis = 1>(x) }", opset=11),
    Finding("a size that is a formula of what only the run knows",
            "g (int64 n, float[1,33,1] x, int64 s) => (float[?,?] y, float[?,?,?] z, float[?,?,?,?] u)"
            "<int64[2] a = {3, 16}, int64[2] b = {2, 4}> { m = MelWeightMatrix(d, n, r, f, t)"
            "  w = ConstantOfShape(a)  v = ConstantOfShape(b)  y = Gemm(m, w)"
            """  q = DFT<onesided = 1>(x, n, o)  z = MatMul(q, v)  p = STFT(x, s, "", n)  u = MatMul(p, v) }""",
            constants={"d": np.array(3), "r": np.array(16000), "f": np.array(100, np.float32),
                       "t": np.array(3900, np.float32), "o": np.array(1)},
            feed={"n": np.array(16), "s": np.array(3)}),
    Finding("an error function of integers", "g (int32[14] x) => (int32[14] y) { y = Erf(x) }", opset=9,
            feed={"x": np.array([-(2**31), *range(-6, 7)], np.int32)}),
    Finding("attention to nothing",
            "g (float[2,8,8] q, float[2,8,0] k, float[2,0,8] v) => (float[?,?,?] y) <float c = {2}>"
            "{ r = MatMul(q, k)  s = Mul(r, c)  p = Softmax(s)  y = MatMul(p, v) }"),
    Finding("the mean of integers whose sum is the least one", "g (int32[3] x) => (int32[1] y) { y = ReduceMean(x) }",
            feed={"x": np.array([-2, 2**31 - 1, 3], np.int32)}),
    Finding("an image of nothing in the form of another",
            "g (float[0,3,4,1] x) => (float[?,?,?,?] y)"
            """{ y = Resize<mode = "linear">(x, "", "", s) }""", constants={"s": np.array([0, 3, 2, 5])}),
    Finding("a ratio is kept of the axes that have elements",
            """g (float[1,3,0,4] x) => (float[?,?,?,?] y) { y = Resize<mode = "linear", axes = [2, 3],"""
            """ keep_aspect_ratio_policy = "not_smaller">(x, "", "", s) }""", opset=19,
            constants={"s": np.array([5, 2])}),
    Finding("a grid of as many axes as its matrices have rows",
            "g (float[1,3,4] t, int64[n] s) => (float[?,?,?,?,?] y) { y = AffineGrid(t, s) }",
            feed={"s": np.array([1, 3, 3, 2, 2])}, sizes=({"n": 5},)),
    Finding("a cell that is infinite, where no gate looks at it",
            """g (float[2,1,2] x, float[1,1,2] c) => (float[?,?,?,?] y) { y = LSTM<hidden_size = 2>"""
            """(x, w, r, "", "", "", c) }""",
            constants={"w": _random((1, 8, 2)), "r": _random((1, 8, 2))},
            feed={"c": np.array([[[-np.inf, 1]]], np.float32)}),
    Finding("a scatter of maxima hands a NaN on",
            """g (float[4] x, float[4] u) => (float[4] y) { y = ScatterElements<reduction = "max">(x, i, u) }""",
            opset=18, constants={"i": np.array([0, 1, 2, 2]), "u": np.array([1, np.nan, 5, np.nan], np.float32)},
            feed={"x": np.array([np.nan, 1, 2, np.nan], np.float32)}),
    Finding("a block of a fused loop over symbolic sizes has a bound",
            """g (float[m,3,n] x) => (float[?,?,?] y) { y = Einsum<equation = "abc,abd->acd">(x, w) }""",
            constants={"w": _random((3, 3, 1))}, sizes=({"m": 3, "n": 2}, {"m": 3, "n": 40})),
    Finding("the places of no extremes", "g (uint8[2,3,0,0] x) => (int64[?,?,?] y, int64[?,?,?,?] z)"
            "{ y = ArgMax<axis = 2, keepdims = 0>(x)  z = ArgMin<axis = -1>(x) }"),
    Finding("the maxima of no images", "g (float[0,2,0] x) => (float[?,?,?] y) { y = GlobalMaxPool(x) }"),
    Finding("a constant image of nothing", """g () => (float[?,?,?,?] y) { y = Resize(x, "", s) }""",
            constants={"x": np.zeros((0, 2, 2, 5), np.float32), "s": np.array([1, 1, 1, 0.5], np.float32)}),
    Finding("a softmax of rows from the second axis on, where a symbolic size is zero",
            "g (float16[3,2,n] x) => (float16[?,?,?] y) { y = LogSoftmax(x) }", opset=11,
            sizes=({"n": 0}, {"n": 4})),
    Finding("indices of a part of the elements", "g (float[2,4,3] x, int64[1,4,2] i) => (float[?,?,?] y)"
            "{ y = GatherElements<axis = -3>(x, i) }", feed={"i": np.array([[[0, -1], [1, 1], [-2, 0], [0, 1]]])}),
    Finding("transposed windows with every attribute at once",
            "g (float[2,4,5,3] x, float[1,4,n,7] z) => (float[?,?,?,?] y, float[?,?,?,?] v)"
            "{ y = ConvTranspose<strides = [3,2], dilations = [2,2], group = 2, pads = [1,0,0,2],"
            "    output_padding = [2,1]>(x, w, b)"
            """  v = ConvTranspose<strides = [3,2], dilations = [2,2], group = 2, auto_pad = "SAME_UPPER","""
            "    output_padding = [1,1]>(z, w, b) }",
            constants={"w": _random((4, 3, 3, 2)), "b": _random((6,))}, sizes=({"n": 1}, {"n": 6})),
    Finding("transposed windows that are shorter than their strides, padded by rule",
            "g (float[1,3,n,5] x) => (float[?,?,?,?] y)"
            """{ y = ConvTranspose<strides = [3,3], auto_pad = "SAME_LOWER">(x, w) }""",
            constants={"w": _random((3, 17, 2, 1))}, sizes=({"n": 1}, {"n": 7})),
    Finding("different pads at the ends of dilated windows",
            "g (float[2,6,n,9] x, float[2,6,7,9] z) => (float[?,?,?,?] y, float[?,?,?,?] v)"
            "{ y = Conv<strides = [2,1], dilations = [2,3], pads = [3,0,1,4]>(x, w)"
            "  v = Conv<strides = [1,2], dilations = [3,2], pads = [0,4,5,1], group = 3>(z, u) }",
            constants={"w": _random((17, 6, 3, 2)), "u": _random((9, 2, 3, 2))}, sizes=({"n": 3}, {"n": 8})),
    Finding("means and norms of windows that stick out at the end",
            "g (float[1,2,n,8] x, float[1,2,6,8] z)"
            "  => (float[?,?,?,?] y, float[?,?,?,?] v, float[?,?,?,?] u, float[?,?,?,?] t, float[?,?,?,?] s)"
            "{ y = AveragePool<kernel_shape = [3,3], strides = [2,3], pads = [1,0,0,1], ceil_mode = 1,"
            "    count_include_pad = 1>(x)"
            "  v = AveragePool<kernel_shape = [3,2], strides = [2,3], pads = [1,1,1,0], dilations = [2,1],"
            "    ceil_mode = 1>(x)"
            "  u = LpPool<kernel_shape = [3,3], strides = [2,3], pads = [1,0,0,1], ceil_mode = 1, p = 3>(x)"
            "  t = AveragePool<kernel_shape = [3,3], strides = [2,3], pads = [1,0,0,1], ceil_mode = 1,"
            "    count_include_pad = 1>(z)"
            "  s = LpPool<kernel_shape = [3,3], strides = [2,3], pads = [1,0,0,1], dilations = [1,2],"
            "    ceil_mode = 1>(z) }",
            sizes=({"n": 6}, {"n": 7}, {"n": 3})),
    Finding("places of maxima of dilated windows that stick out",
            "g (float[2,3,n,7] x, float[2,3,6,7] z)"
            "  => (float[?,?,?,?] y, int64[?,?,?,?] i, float[?,?,?,?] v, int64[?,?,?,?] j)"
            "{ y, i = MaxPool<kernel_shape = [3,2], strides = [2,3], pads = [1,0,1,1], dilations = [2,2],"
            "    ceil_mode = 1, storage_order = 1>(x)"
            "  v, j = MaxPool<kernel_shape = [3,2], strides = [2,3], pads = [1,0,1,1], dilations = [2,2],"
            "    ceil_mode = 1>(z) }",
            sizes=({"n": 5}, {"n": 8})),
    Finding("the largest of all, where some are no numbers and all are infinite",
            "g (float[2,2,3] x) => (float[?,?,?] y, float[?,?] z)"
            "{ y = GlobalMaxPool(x)  z = ReduceMax<keepdims = 0>(x, a) }", constants={"a": np.array([2])},
            feed={"x": np.array([[[1, _NAN, 3], [-_INF] * 3], [[_NAN] * 3, [_INF, -_INF, 2]]], np.float32)}),
    Finding("the first of infinite numbers",
            "g (float[3,5] x) => (float[?,?] v, int64[?,?] i, float[?,?] w, int64[?,?] j)"
            "{ v, i = TopK(x, k)  w, j = TopK<largest = 0>(x, k) }", constants={"k": np.array([3])},
            feed={"x": np.array([[1, _INF, -_INF, _INF, 0], [-_INF] * 5, [3, -_INF, 2, 2, _INF]], np.float32)}),
    Finding("between numbers of which some are none or infinite",
            "g (float[1,1,n,4] x, float[1,2,4,2] p) => (float[?,?,?,?] a, float[?,?,?,?] b, float[?,?,?,?] c,"
            "  float[?,?,?,?] d, float[?,?,?,?] e, float[?,?,?,?] f) <float[4] s = {1, 1, 2, 1.5}>"
            """{ a = Resize<mode = "linear">(x, "", s)  b = Resize(x, "", s)"""
            """  c = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(x, "", s)"""
            """  d = GridSample<mode = "linear">(x, p)"""
            """  e = GridSample<mode = "nearest", padding_mode = "border">(x, p)"""
            """  f = GridSample<mode = "linear", padding_mode = "reflection", align_corners = 1>(x, p) }""",
            feed={"x": np.array([[1, _INF, 2, 3], [_NAN, 4, 5, 6], [7, 8, 9, -_INF]], np.float32).reshape(1, 1, 3, 4)},
            sizes=({"n": 3},)),
    Finding("samples at places that are infinite",
            "g (float[1,1,3,4] x, float[1,1,4,2] p) => (float[?,?,?,?] y, float[?,?,?,?] z)"
            """{ y = GridSample<mode = "linear">(x, p)  z = GridSample<mode = "nearest">(x, p) }""",
            feed={"p": np.array([[_INF, 0], [0, -_INF], [1e30, -1e30], [-1.2, 0.3]], np.float32).reshape(1, 1, 4, 2)}),
    Finding("an even number of neighbouring channels",
            "g (float[2,n,3,3] x, float[2,7,3,3] w) => (float[?,?,?,?] y, float[?,?,?,?] z, float[?,?,?,?] v)"
            "{ y = LRN<size = 4, alpha = 0.5>(x)  z = LRN<size = 2, alpha = 2.0, beta = 0.5, bias = 2.0>(x)"
            "  v = LRN<size = 4, alpha = 0.5>(w) }", sizes=({"n": 1}, {"n": 7})),
    Finding("one-hot values that are infinite or no numbers",
            "g (int64[5] x) => (float[?,?] y, float[?,?] z) { y = OneHot(x, d, v)  z = OneHot<axis = 0>(x, d, w) }",
            constants={"d": np.array(3), "v": np.array([-_INF, _INF], np.float32),
                       "w": np.array([_NAN, 1], np.float32)},
            feed={"x": np.array([-3, 0, 2, 1, -1])}),
    Finding("pools of all of one axis, without their last dimension",
            "g (float[2,3,n] x, float[1,3,5] w) => (float[?,?,?] y, float[?,?] z, float[?] u, float[?] v, float[?,?] t)"
            "{ y = GlobalAveragePool(x)  z = Squeeze(y, a)  m = GlobalMaxPool(x)  f = Squeeze(m, a)"
            "  u = ReduceSum<keepdims = 0>(f, b)  p = GlobalLpPool(w)  v = Squeeze(p)  t = Squeeze(p, c) }",
            constants={"a": np.array([2]), "b": np.array([1]), "c": np.array([-3])}, sizes=({"n": 1}, {"n": 5})),
    Finding("powers of the least and the greatest numbers",
            "g (float[6] x, float[6] e, double[6] d, double[6] h)"
            "  => (float[6] y, float[6] z, double[6] u, double[6] v, float[6] w)"
            "{ y = Pow(x, q)  z = Pow(x, e)  u = Pow(d, t)  v = Pow(d, h)  w = Pow(x, m) }",
            constants={"q": np.array(0.25, np.float32), "t": np.array(0.3), "m": np.array(-0.5, np.float32)},
            feed={"x": np.array([1e-45, 1e-40, 2, 2, 0, 3e38], np.float32),
                  "e": np.array([0.5, 0.9, -140, -149, 128, 1], np.float32),
                  "d": np.array([5e-324, 1e-310, 2, 2, 1e300, 1.7e308]),
                  "h": np.array([0.5, 0.3, -1074, -1060, 1.02, 1])}),
    Finding("remainders of the least and the greatest numbers",
            "g (double[8] x, double[8] m, float[8] a, float[8] b) => (double[8] y, float[8] z)"
            "{ y = Mod<fmod = 1>(x, m)  z = Mod<fmod = 1>(a, b) }",
            feed={"x": np.array([1e300, -1e300, 5e-324, 1e308, 1e-310, -7, _INF, 1e308]),
                  "m": np.array([3, 0.7, 1e-323, 1e-5, 3e-320, 1e-310, 2, 1e-322]),
                  "a": np.array([1e38, -1e38, 1e-45, 3e38, 1e-40, -7, _INF, 1e38], np.float32),
                  "b": np.array([3, 0.7, 3e-45, 1e-5, 3e-42, 1e-42, 2, 4e-45], np.float32)}),
    Finding("filters of symbolic sizes without what lies outside",
            "g (float[1,2,n,9] x) => (float[?,?,?,?] y, float[?,?,?,?] z, float[?,?,?,?] u)"
            """{ y = Resize<mode = "cubic", antialias = 1, exclude_outside = 1, axes = [2,3]>(x, "", s)"""
            """  z = Resize<mode = "linear", antialias = 1, axes = [-1,-2]>(x, "", "", t)"""
            """  u = Resize<mode = "cubic", exclude_outside = 1, cubic_coeff_a = -0.5, axes = [3]>(x, "", r) }""",
            constants={"s": np.array([0.6, 0.4], np.float32), "t": np.array([3, 5]), "r": np.array([1.7], np.float32)},
            sizes=({"n": 5}, {"n": 8})),
    Finding("a product that wraps, divided",
            "g (int64[2,n] x, int64[2] d) => (int64[2] y) { p = ReduceProd<keepdims = 0>(x, a)  y = Div(p, d) }",
            constants={"a": np.array([1])}, sizes=({"n": 3},),
            feed={"x": np.array([[2**40 + 7, 2**30 + 1, 3], [-(2**62), 7, 5]]), "d": np.array([3, -7])}),
    Finding("half-precision numbers next to the largest",
            "g (float16[2,3] x, float16[3,2] w) => (float16[2,3] y, float16[?,?] z, float16[?,?] u, float16[?] m)"
            "{ a = Mul(x, x)  y = Div(a, x)  z = MatMul(x, w)  u = Softmax(x)  m = ReduceMean<keepdims = 0>(x, r) }",
            constants={"r": np.array([1])},
            feed={"x": np.array([[300, 65504, -65504], [60000, 60000, 6e-8]], np.float16),
                  "w": np.array([[200, 1], [1, 1], [1, 0.5]], np.float16)}),
    Finding("negative pads that the run gives",
            "g (float[n,5] x, int64[4] p) => (float[?,?] y, float[?,?] z)"
            """{ y = Pad(x, p)  r = Relu(x)  z = Pad<mode = "edge">(r, p) }""",
            feed={"p": np.array([-1, 2, 0, -3])}, sizes=({"n": 3}, {"n": 2})),
    Finding("what is kept of other sizes than those of the first run",
            "g (float[n,4] x, bool[k] c, bool[m] f) => (float[?,?] y, float[?] z)"
            "{ y = Compress<axis = 0>(x, c)  r = Compress(x, f)  z = Relu(r) }",
            sizes=({"n": 5, "k": 3, "m": 7}, {"n": 2, "k": 2, "m": 1}, {"n": 8, "k": 8, "m": 32})),
    Finding("a look-up of a byte that a long function makes",
            "g (float[48,64] x) => (uint8[48,64] y)"
            "{ m = MatMul(x, w)  t = Tanh(m)  q = QuantizeLinear(t, s, z)  d = DequantizeLinear(q, s, z)"
            "  g = Sigmoid(d)  p = Mul(d, g)  y = QuantizeLinear(p, s, z) }",
            constants={"w": _random((64, 64)) / 8, "s": np.array(1 / 127, np.float32), "z": np.array(128, np.uint8)}),
)  # fmt: skip


@pytest.mark.parametrize("finding", FINDINGS, ids=lambda f: f.what)
def test_finding(finding: Finding) -> None:
    verdict = check_sample(finding.sample(), BUILDS)
    assert verdict.kind == "ok", verdict.message
