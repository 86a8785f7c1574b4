"""Models whose operands broadcast along dims that only a call tells, each with the sizes that the dims have or 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np
import onnx
from onnx import TensorProto, helper

Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Pattern:
    """``text``: a graph in ONNX's text form, whose dims take the value in ``sizes`` or 1. ``valid``: which choices the
    operators allow, where that is fewer than numpy does. ``tolerance``: of floats."""

    text: str
    sizes: Sizes
    valid: Callable[[Sizes], bool] = lambda s: True
    opset: int = 21
    tolerance: float = 1e-4

    def model(self) -> onnx.ModelProto:
        header = f'<ir_version: 10, opset_import: ["" : {self.opset}]>\n'
        return onnx.parser.parse_model(f"{header}g {self.text}")

    def choices(self) -> Iterator[Sizes]:
        """Every dim with its size or 1."""
        for picked in product((False, True), repeat=len(self.sizes)):
            yield {k: n if p else 1 for (k, n), p in zip(self.sizes.items(), picked, strict=True)}


TWO = {"a": 3, "b": 17, "c": 3, "d": 17}
PATTERNS: dict[str, Pattern] = {
    "add": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { z = Add(x, y) }", TWO),
    "ranks": Pattern("(float[b] x, float[a,c,d] y) => (float[] z) { z = Mul(x, y) }", {"a": 2, "b": 5, "c": 3, "d": 5}),
    "scalar_rank": Pattern("(float x, float[a,b] y, float[c] v) => (float[] z) { s = Sub(x, y) z = Div(s, v) }",
                           {"a": 3, "b": 17, "c": 17}),
    "empty": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { z = Add(x, y) }", {"a": 0, "b": 5, "c": 0, "d": 5}),
    "constant": Pattern("(float[a,b] x) => (float[] z) <float[3] w = {1, 2, 3}> { z = Add(x, w) }", {"a": 4, "b": 3}),
    "constant_column": Pattern("(float[a,b] x, float[c] y) => (float[] z) <float[3,1] w = {1, 2, 3}> "
                               "{ s = Sub(w, x) z = Mul(y, s) }", {"a": 3, "b": 9, "c": 9}),
    "max_of_three": Pattern("(float[a] x, float[b] y, float[c,d] v) => (float[] z) { z = Max(x, y, v) }",
                            {"a": 33, "b": 33, "c": 2, "d": 33}),
    "mean_of_four": Pattern("(float[a] x, float[b] y, float[c] v, float[d] w) => (float[] z) { z = Mean(x, y, v, w) }",
                            dict.fromkeys("abcd", 7)),
    "sum_and_min": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { s = Sum(x, y, x) z = Min(s, y) }", TWO),
    "where": Pattern("(bool[a,b] x, float[c,d] y, float[e] v) => (float[] z) { z = Where(x, y, v) }",
                     TWO | {"e": 17}),
    "chain": Pattern("(float[a,b] x, float[c,d] y) => (float[] z, float[] s) "
                     "{ s = Add(x, y) r = Relu(s) m = Mul(r, x) t = Tanh(y) z = Sub(m, t) }", TWO),
    "one_after_the_other": Pattern("(float[a] x, float[b] y, float[c] v, float[d] w) => (float[] z) "
                                   "{ s = Add(x, y) t = Mul(s, v) z = Sub(w, t) }", dict.fromkeys("abcd", 17)),
    "derived_sizes": Pattern(
        "(float[a] x, float[b] y) => (float[] z) <int64[1] s = {2}, int64[1] e = {1000000}, int64[1] t = {3},"
        " int64[1] k = {0}> { p = Slice(x, s, e, k, t) z = Min(p, y) }", {"a": 23, "b": 7}),
    "integers": Pattern("(int64[a,b] x, int64[c,d] y) => (int64[] z) { s = Mod(x, y) t = BitwiseXor(s, x) "
                        "z = Mul(t, y) }", TWO),
    "unsigned": Pattern("(uint8[a,b] x, uint8[c,d] y) => (uint8[] z) { s = BitShift <direction=\"LEFT\"> (x, y) "
                        "z = BitwiseOr(s, y) }", TWO),
    "logic": Pattern("(float[a,b] x, float[c,d] y, bool[e] v) => (bool[] z) { g = Greater(x, y) e1 = Equal(x, y) "
                     "o = Or(g, e1) z = Xor(o, v) }", TWO | {"e": 17}),
    "power": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { s = Abs(x) z = Pow(s, y) }", TWO),
    "half": Pattern("(float16[a,b] x, float16[c,d] y) => (float16[] z) { s = Add(x, y) z = Mul(s, y) }", TWO,
                    tolerance=1e-2),
    "slope": Pattern("(float[a,b,h] x, float[c,d] y) => (float[] z) { z = PRelu(x, y) }",
                     {"a": 2, "b": 5, "h": 9, "c": 5, "d": 9},
                     lambda s: s["c"] in (1, s["b"]) and s["d"] in (1, s["h"])),
    "expand_like": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { s = Shape(y) e = Expand(x, s) r = Exp(e) "
                           "z = Mul(r, y) }", TWO),
    "shape_of_result": Pattern("(float[a,b] x, float[c,d] y) => (float[] z, int64[] s) { t = Add(x, y) s = Shape(t) "
                               "o = ConstantOfShape(s) z = Sub(t, o) }", TWO),
    "flattened": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) <int64[1] m = {-1}> { t = Add(x, y) "
                         "f = Reshape(t, m) z = Relu(f) }", TWO),
    "heads": Pattern("(float[a,b,12] x, float[c,d,12] y) => (float[] z) <int64[4] m = {0, 0, 3, 4}> { t = Add(x, y) "
                     "f = Reshape(t, m) z = Transpose <perm=[0,2,1,3]> (f) }", TWO),
    "turned": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { t = Transpose <perm=[1,0]> (x) s = Add(t, y) "
                      "z = Transpose <perm=[1,0]> (s) }", {"a": 17, "b": 3, "c": 3, "d": 17}),
    "concatenated": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { s = Add(x, y) t = Mul(y, x) "
                            "z = Concat <axis=0> (s, t) }", TWO),
    "reduced": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) <int64[1] k = {1}> { s = Mul(x, y) "
                       "z = ReduceSum <keepdims=0> (s, k) }", TWO),
    "softmax": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) { s = Add(x, y) z = Softmax <axis=1> (s) }", TWO),
    "centred": Pattern("(float[a,b] x, float[c,d] y) => (float[] z) <int64[1] k = {-1}> { s = Add(x, y) "
                       "m = ReduceMean(s, k) z = Sub(s, m) }", TWO),
    "batch": Pattern("(float[a,5,4] x, float[b,4,6] y) => (float[] z) { z = MatMul(x, y) }", {"a": 3, "b": 3}),
    "batches": Pattern("(float[a,b,5,4] x, float[c,d,4,20] y) => (float[] z) { s = MatMul(x, y) z = Relu(s) }",
                       {"a": 2, "b": 3, "c": 2, "d": 3}),
    "batch_of_matrix": Pattern("(float[a,b,4] x, float[c,4,b] y, float[d,e] v) => (float[] z) { p = MatMul(x, y) "
                               "z = Add(p, v) }", {"a": 3, "b": 5, "c": 3, "d": 5, "e": 5}),
    "bias": Pattern("(float[a,4] x, float[b,3] y) => (float[] z) <float[4,3] w = {1,2,3,4,5,6,7,8,9,10,11,12}> "
                    "{ p = MatMul(x, w) z = Add(p, y) }", {"a": 9, "b": 9}),
    "gemm": Pattern("(float[a,4] x, float[b,4] y, float[c,d] v) => (float[] z) { z = Gemm <transB=1, beta=0.5> "
                    "(x, y, v) }", {"a": 9, "b": 5, "c": 9, "d": 5},
                    lambda s: s["c"] in (1, s["a"]) and s["d"] in (1, s["b"])),
    "einsum": Pattern("(float[a,5,4] x, float[b,4,c] y, float[d] v) => (float[] z) "
                      "{ p = Einsum <equation=\"bij,bjk->bik\"> (x, y) z = Mul(p, v) }",
                      {"a": 3, "b": 3, "c": 7, "d": 7}),
    "attention": Pattern(
        "(float[a,2,s,8] q, float[b,2,t,8] k, float[b,2,t,8] v, float[c,1,d,e] m) => (float[] z) "
        "{ kt = Transpose <perm=[0,1,3,2]> (k) p = MatMul(q, kt) w = Add(p, m) f = Softmax <axis=-1> (w) "
        "z = MatMul(f, v) }", {"a": 2, "b": 2, "c": 2, "s": 5, "t": 7, "d": 5, "e": 7}),
    "layer_norm": Pattern("(float[a,b,c] x, float[d] y, float[e] v) => (float[] z) "
                          "{ z = LayerNormalization <axis=-1> (x, y, v) }", {"a": 2, "b": 3, "c": 9, "d": 9, "e": 9},
                          lambda s: s["d"] in (1, s["c"]) and s["e"] in (1, s["c"])),
    "norm_by_hand": Pattern(
        "(float[a,b] x, float[c] y, float[d] v) => (float[] z) <int64[1] k = {-1}, float two = {2.0}, float e = {1e-5}>"
        " { m = ReduceMean(x, k) s = Sub(x, m) q = Pow(s, two) r = ReduceMean(q, k) t = Add(r, e) u = Sqrt(t)"
        " n = Div(s, u) w = Mul(n, y) z = Add(w, v) }", {"a": 3, "b": 9, "c": 9, "d": 9}),
    "quantize": Pattern("(float[a,b] x, float[c] y) => (float[] z) { s = Abs(y) q = QuantizeLinear <axis=1> (x, s) "
                        "z = DequantizeLinear <axis=1> (q, s) }", {"a": 3, "b": 9, "c": 9},
                        lambda s: s["c"] in (1, s["b"]), tolerance=0.1),
    "integer_product": Pattern(
        "(uint8[n,a,4] x, int8[n,4,b] y, uint8[m,c,1] p, int8[d] q) => (int32[] z) { z = MatMulInteger(x, y, p, q) }",
        {"n": 2, "m": 2, "a": 3, "b": 5, "c": 3, "d": 5},
        lambda s: s["m"] in (1, s["n"]) and s["c"] in (1, s["a"]) and s["d"] in (1, s["b"])),
    "integer_convolution": Pattern(
        "(uint8[a,2,6,6] x, uint8[3,2,3,3] y, uint8 p, uint8[d] q) => (int32[] z) { z = ConvInteger(x, y, p, q) }",
        {"a": 2, "d": 3}),
    "scaled_image": Pattern(
        "(float[a,2,h,w] x, float[b,c,1,1] y) => (float[] z) <float[3,2,1,1] k = {1, 2, 3, 4, 5, 6}> "
        "{ s = Mul(x, y) z = Conv(s, k) }", {"a": 2, "b": 2, "c": 2, "h": 5, "w": 6}),
    "image_scaled": Pattern(
        "(float[a,2,h,w] x, float[b,c,1,d] y) => (float[] z) <float[3,2,3,3] k = {"
        + ", ".join(str(v % 7 - 3) for v in range(54)) + "}> "
        "{ s = Conv <pads=[1,1,1,1]> (x, k) r = Relu(s) z = Add(r, y) }",
        {"a": 2, "b": 2, "c": 3, "h": 5, "w": 6, "d": 6}),
    "chosen_elements": Pattern(
        "(float[a] x, bool[a] k, float[b] y) => (float[] z) { p = Compress(x, k) s = Relu(p) z = Add(s, y) }",
        {"a": 4, "b": 2}),
    "strings": Pattern("(string[a,b] x, string[c,d] y) => (string[] z) { z = StringConcat(x, y) }", TWO),
    "branches": Pattern(
        "(float[a] x, float[b] y, bool k) => (float[] z) { z = If (k) <then_branch = t () => (float[] p) "
        "{ p = Add(x, y) }, else_branch = e () => (float[] q) { q = Mul(x, x) }> }", {"a": 5, "b": 5}),
    "branch_that_concatenates": Pattern(
        "(float[a,b] x, float[c,d] y, bool k) => (float[] z) { z = If (k) <then_branch = t () => (float[] p) "
        "{ p = Concat<axis=0>(x, y) }, else_branch = e () => (float[] q) { q = Mul(x, x) }> }", TWO),
    "loop": Pattern(
        "(float[a] x, float[b] y, int64 n) => (float[] z, float[] w) { z, w = Loop (n, , x) <body = body "
        "(int64 i, bool c, float[] s) => (bool d, float[] t, float[] u) { d = Identity(c) t = Add(s, y) "
        "u = ReduceSum<keepdims=0>(t) }> }", {"a": 5, "b": 5}),
    "loop_around_operands": Pattern(
        "(float[a] x, float[b] y, float[e] q, int64 n) => (float[] z) { z = Loop (n, , x) <body = body "
        "(int64 i, bool c, float[] s) => (bool d, float[] t) { d = Identity(c) p = Mul(y, q) "
        "v = ReduceSum<keepdims=0>(p) t = Add(s, v) }> }", {"a": 5, "b": 5, "e": 5}),
    "loop_over_chosen_elements": Pattern(
        "(float[a] x, bool[a] k, float[b] y, int64 n) => (float[] z, float[] v) { p = Compress(x, k) q = Loop (n, , p) "
        "<body = body (int64 i, bool c, float[] s) => (bool d, float[] t) { d = Identity(c) t = Add(s, y) }> "
        "z = Relu(q) v = Mul(p, p) }", {"a": 4, "b": 2}),
    "scan": Pattern(
        "(float[a] x, float[t,b] y, float[e] q) => (float[] z, float[] w) { z, w = Scan (x, y) <num_scan_inputs=1, "
        "body = body (float[] s, float[] r) => (float[] o, float[] u) { o = Identity(s) m = Add(s, r) u = Mul(m, q) }>"
        " }", {"a": 5, "b": 5, "e": 5, "t": 3}),
    "scan_that_grows": Pattern(
        "(float[a] x, float[t,b] y, float[e] q) => (float[] z, float[] w) { z, w = Scan (x, y) <num_scan_inputs=1, "
        "body = body (float[] s, float[] r) => (float[] o, float[] u) { o = Add(s, r) u = Mul(r, q) }> }",
        {"a": 5, "b": 5, "e": 5, "t": 3}),
    "branch_on_a_sum": Pattern(
        "(float[a] x, float[b] y, float[e] q, bool k) => (float[] z) { h = Add(x, y) z = If (k) <then_branch = t () => "
        "(float[] p) { p = Add(h, q) }, else_branch = e () => (float[] r) { r = Mul(h, h) }> }",
        {"a": 5, "b": 5, "e": 5}),
    "branch_in_a_loop": Pattern(
        "(float[a] x, float[b] y, bool k, int64 n) => (float[] z) { z = Loop (n, , x) <body = body "
        "(int64 i, bool c, float[] s) => (bool d, float[] t) { d = Identity(c) t = If (k) <then_branch = f () => "
        "(float[] p) { p = Add(s, y) }, else_branch = e () => (float[] q) { q = Mul(s, s) }> }> }", {"a": 5, "b": 5}),
}  # fmt: skip


def feed_for(model: onnx.ModelProto, sizes: Sizes, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random inputs of the model for these sizes; integers from 1 to 5."""
    feed = {}
    for i in model.graph.input:
        dims = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]
        feed[i.name] = _random(i.type.tensor_type.elem_type, dims, rng)
    return feed


def _random(kind: int, dims: list[int], rng: np.random.Generator) -> np.ndarray:
    if kind == TensorProto.STRING:
        return rng.choice(np.array(["p", "qu", ""], dtype=object), dims)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    if dtype.kind == "f":
        return rng.standard_normal(dims).astype(dtype)
    return rng.integers(0, 2, dims).astype(bool) if dtype.kind == "b" else rng.integers(1, 6, dims).astype(dtype)
