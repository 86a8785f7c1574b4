"""What exporters spell out in many nodes, through the whole pipeline: the nodes before and after, and what fired."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.graph_ir.passes.base import Level
from tilewright.tests.graph_ir.exported import FORMS, Case, read, require_rewritten, rewritten
from tilewright.tests.graph_ir.rewriting import ops
from tilewright.tests.graph_ir.rules.test_weights import numbers
from tilewright.tests.replay.outputs import TARGETS

INTS = "int64[1] i0 = {0}, int64[1] i1 = {1}, int64[1] i2 = {2}, int64 zero = {0}, int64 one = {1}"
NORM = f"{numbers('gain', 4)}, {numbers('shift', 4)}, float two = {{2}}, float eps = {{1e-5}}"
NORM_BODY = (
    "mu = ReduceMean<axes=[-1]>($) ce = Sub($, mu) sq = Pow(ce, two) va = ReduceMean<axes=[-1]>(sq) ve = Add(va, eps)"
    " sd = Sqrt(ve) no = Div(ce, sd) ga = Mul(no, gain) y = Add(ga, shift)"
)
ROWS = "agraph (float[$B,$N,4] x) => (float[$B,$N,4] y)"
HEADS = "float[$B,2,$N,4]"


def norm_of(x: str) -> str:
    return NORM_BODY.replace("$", x)


CASES = [
    Case(
        "a_known_size_beside_symbolic_ones",
        f"agraph (float[$B,$N,12] x) => (float[$B,$N,4,3] y) <{INTS}, int64[2] part = {{4,3}}>"
        " { s = Shape(x) b = Gather(s, i0) n = Gather(s, i1) h = Gather(s, i2) three = Slice(part, i1, i2)"
        " four = Div(h, three) t = Concat<axis=0>(b, n, four, three) y = Reshape(x, t) }",
        ("fold_constants",),
        "Reshape",
        level=Level.BASIC,
    ),
    Case(
        "the_mask_of_a_padded_batch",
        f"agraph (float[$B,$N,$N] x) => (float[$B,$N,$N] y) <{INTS}, float low = {{-10000}}, float none = {{0}},"
        f" int64[1] m1 = {{-1}}>"
        " { s = Shape(x) n = Slice(s, i1, i2) l = Squeeze(n, i0) dims = Shape(n) ones = ConstantOfShape<value ="
        " int64[1] {1}>(dims)"
        " k = Mul(ones, m1) e = Equal(n, k) size = Where(e, ones, n) r = Range(zero, l, one) both ="
        " Concat<axis=0>(size, n)"
        " rows = Unsqueeze(r, i1) wide = Expand(rows, both) columns = Unsqueeze(r, i0) seen = LessOrEqual(columns,"
        " wide)"
        " m = Where(seen, none, low) y = Add(x, m) }",
        ("fold_constants",),
        "Add",
        "Shape Slice Squeeze Range Unsqueeze Unsqueeze LessOrEqual Where Add",
    ),
    Case(
        "a_matrix_for_rows_of_a_batch",
        f"{ROWS} <{numbers('w', 4, 4)}, {numbers('b', 4)}, int64[2] flat = {{-1,4}}>"
        " { s = Shape(x) f = Reshape(x, flat) g = Gemm(f, w, b) y = Reshape(g, s) }",
        ("gemm_bias", "matmul_of_rows"),
        "MatMul Add",
    ),
    Case(
        "batchnorm_behind_a_layer",
        f"agraph (float[$N,4] x) => (float[$N,2] y) <{numbers('w', 2, 4)}, {numbers('b', 2)}, float[2] v = {{1,2}}>"
        " { g = Gemm<transB=1>(x, w, b) y = BatchNormalization(g, b, b, b, v) }",
        ("batchnorm_into_conv",),
        "MatMul Add",
    ),
    Case(
        "layer_norm_of_opset_12",
        f"{ROWS} <{NORM}> {{ {norm_of('x')} }}",
        ("layer_norm", "layer_norm_scale", "layer_norm_bias"),
        "LayerNormalization",
    ),
    Case(
        "skip_layer_norm",
        f"agraph (float[$B,$N,4] x, float[$B,$N,4] z) => (float[$B,$N,4] y) <{NORM}> {{ a = Add(x, z)"
        f" {norm_of('a')} }}",
        ("layer_norm",),
        "Add LayerNormalization",
    ),
    Case(
        "embeddings_of_bert",
        f"agraph (int64[$B,$N] x) => (float[$B,$N,4] y) <{NORM}, {INTS}, {numbers('words', 5, 4)},"
        f" {numbers('places', 1, 8, 4)}>"
        f" {{ e = Gather(words, x) s = Shape(x) n = Slice(s, i1, i2) p = Slice(places, i0, n, i1) a = Add(e, p)"
        f" {norm_of('a')} }}",
        ("layer_norm",),
        "Gather Add LayerNormalization",
        "Gather Shape Slice Slice Add LayerNormalization",
    ),
    Case(
        "gelu_of_torch",
        f"{ROWS} <float r = {{1.4142135}}, float u = {{1}}, float h = {{0.5}}>"
        " { a = Div(x, r) b = Erf(a) c = Add(b, u) d = Mul(x, c) y = Mul(d, h) }",
        ("gelu_erf",),
        "Gelu",
    ),
    Case(
        "attention_of_torch",
        f"agraph ({HEADS} q, {HEADS} k, {HEADS} v, float[$B,1,1,$N] m) => ({HEADS} y) <float d = {{2}}>"
        " { t = Transpose<perm=[0,1,3,2]>(k) a = MatMul(q, t) b = Div(a, d) c = Add(b, m) s = Softmax<axis=-1>(c)"
        " w = Dropout(s) y = MatMul(w, v) }",
        ("div_power_of_two", "identity", "attention"),
        "FusedAttention",
    ),
    Case(
        "attention_of_scaled_dot_product",
        f"agraph ({HEADS} q, {HEADS} k, {HEADS} v) => ({HEADS} y) <float d = {{0.7}}, float o = {{0}}>"
        " { t = Transpose<perm=[0,1,3,2]>(k) u = Mul(q, d) z = Mul(t, d) a = MatMul(u, z) s = Softmax<axis=-1>(a)"
        " nan = IsNaN(s) none = CastLike(o, s) w = Where(nan, none, s) y = MatMul(w, v) }",
        ("scale_after_matmul_left", "scale_after_matmul_right", "mul_mul", "attention"),
        "FusedAttention",
    ),
    Case(
        "residual_block",
        f"agraph (float[$B,4,$H,$W] x) => (float[$B,4,$H,$W] y) <{numbers('w', 4, 4, 3, 3)}, {numbers('b', 4)},"
        f" float[4] v = {{1,2,3,4}}>"
        " { c = Conv<pads=[1,1,1,1]>(x, w) n = BatchNormalization(c, b, b, b, v) a = Add(n, x) y = Relu(a) }",
        ("batchnorm_into_conv",),
        "Conv Add Relu",
    ),
    Case(
        "what_is_the_same_and_what_is_nothing",
        f"{ROWS} <{INTS}> {{ i = Identity(x) a = Exp(i) d = Dropout(x) b = Exp(d) unused = Sigmoid(b) t ="
        f" Transpose<perm=[1,0,2]>(a)"
        " u = Transpose<perm=[1,0,2]>(t) y = Add(u, b) }",
        ("identity", "share_common", "transpose_transpose"),
        "Exp Add",
        level=Level.BASIC,
    ),
    Case(
        "a_condition_on_a_rank",
        f"{ROWS} <{INTS}> {{ s = Shape(x) r = Size(s) three = Add(i1, i2) c = Equal(r, three)"
        " y = If(c) <then_branch = then () => (float[?,?,4] p) { p = Relu(x) }, else_branch = otherwise () =>"
        " (float[?,?,4] q) { q = Neg(x) }> }",
        ("fold_constants", "resolve_if"),
        "Relu",
        level=Level.BASIC,
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fires(case: Case, form: str) -> None:
    require_rewritten(case, form)


def test_inputs_that_share_a_batch_share_its_symbol() -> None:
    text = (
        "agraph (float[n,3] x, float[m,3] z) => (float[n,6] y, float[q] w) <int64[1] flat = {-1}>"
        " { a = Relu(x) b = Relu(z) y = Concat<axis=1>(a, b) c = Exp(b) w = Reshape(c, flat) }"
    )
    before, after, report = rewritten(Case("", text, (), "", enabled=("share_symbols",)), "dynamic")
    assert report.fired("share_symbols") == 1
    assert ops(after) == ops(before)
    assert [str(before.values[k].type) for k in ("x", "z", "w")] == ["float32[n, 3]", "float32[m, 3]", "float32[m*3]"]
    assert [str(after.values[k].type) for k in ("x", "z", "w")] == ["float32[n, 3]", "float32[n, 3]", "float32[n*3]"]
    assert not after.assumptions


def test_sizes_that_may_repeat_keep_their_symbols() -> None:
    text = "agraph (float[n,3] x, float[m,3] z) => (float[n,3] y) { y = Add(x, z) }"
    _, after, report = rewritten(Case("", text, (), "", enabled=("share_symbols",)), "dynamic")
    assert not report.fired("share_symbols")
    assert report.refusals("share_symbols") == ("n or m may be 1 and repeat",)
    assert str(after.values["z"].type) == "float32[m, 3]"


def test_a_size_that_depends_on_data_keeps_its_symbol() -> None:
    """Nothing else would compare it with the input's."""
    text = (
        "agraph (float[n] x, float[m,3] z) => (float[p,q] y) { k = NonZero(x) t = Transpose(k) f = Cast<to=1>(t)"
        " y = Concat<axis=1>(f, z) }"
    )
    graph = read(text, "dynamic")
    (assumption,) = graph.assumptions
    _, after, report = rewritten(Case("", text, (), "", enabled=("share_symbols",), sizes=()), "dynamic")
    assert not report.fired("share_symbols")
    assert after.assumptions == (assumption,)
    assert "no equation between sizes of inputs" in report.refusals("share_symbols")[0]


def test_a_batch_of_rows_is_one_product_with_a_matrix() -> None:
    """One loop over all rows, ``B*S`` of them, whether the sizes are numbers or not."""
    text = f"agraph (float[$B,$N,16] x) => (float[$B,$N,4] y) <{numbers('w', 16, 4)}> {{ y = MatMul(x, w) }}"
    for form, rows in (("static", "range(10)"), ("dynamic", "b*n")):
        lowered = tilewright.compile(read(text, form), target=TARGETS["avx2"], stop_after="lower", progress=False)
        (func,) = lowered.funcs.values()
        first = next(line for line in str(func).splitlines() if line.lstrip().startswith("for "))
        assert rows in first, first


def test_the_mask_chain_is_one_constant_when_the_length_is_static() -> None:
    case = next(c for c in CASES if c.name == "the_mask_of_a_padded_batch")
    before, after, _ = rewritten(case, "static")
    assert len(before.nodes) == 16
    (mask,) = (c.array for c in after.constants.values())
    assert np.array_equal(mask == 0, np.tri(5, dtype=bool))
