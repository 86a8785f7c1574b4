"""Constants that go into the weights of products, and chains of products, as exporters write them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tests.graph_ir.exported import FORMS, Case, require_kept, require_rewritten, rewritten


def numbers(name: str, *shape: int, scale: float = 1.0) -> str:
    """A float constant of the text form, with seeded elements."""
    flat = np.random.default_rng(len(name) + sum(shape)).integers(-8, 9, shape).reshape(-1) * scale / 4
    return f"float[{','.join(map(str, shape))}] {name} = {{{','.join(map(str, flat))}}}"


W = numbers("w", 3, 2)
BIAS = numbers("b", 2)
X = "agraph (float[$N,3] x) => (float[$N,2] y)"

CASES = [
    Case(
        "scale_behind_a_layer",
        f"{X} <{W}, {BIAS}, {numbers('c', 2)}> {{ m = MatMul(x, w) a = Add(m, b) y = Mul(a, c) }}",
        ("scale_into_matmul",),
        "MatMul Add",
    ),
    Case(
        "scale_behind_a_gemm",
        f"{X} <{W}, {BIAS}, {numbers('c', 1, 2)}> {{ a = Gemm(x, w, b) y = Mul(c, a) }}",
        ("gemm_bias", "scale_into_matmul"),
        "MatMul Add",
    ),
    Case(
        "division_of_a_sum_of_products",
        f"agraph (float[$N,3] x, float[$N,4] z) => (float[$N,2] y) <{W}, {numbers('v', 4, 2)}, float c = {{1.7}}>"
        " { m = MatMul(x, w) n = MatMul(z, v) a = Add(m, n) y = Div(a, c) }",
        ("scale_into_matmul",),
        "MatMul MatMul Add",
    ),
    Case(
        "scaled_queries",
        f"agraph (float[$B,$N,4] x) => (float[$B,2,$N,2] y) <{numbers('w', 4, 4)}, {numbers('b', 4)}, float c ="
        f" {{1.4}},"
        " int64[4] s = {0,0,2,2}> { m = MatMul(x, w) a = Add(b, m) r = Reshape(a, s)"
        " t = Transpose<perm=[0,2,1,3]>(r) y = Div(t, c) }",
        ("scale_into_matmul",),
        "MatMul Add Reshape Transpose",
    ),
    Case(
        "normalization_behind_a_layer",
        f"{X} <{W}, {BIAS}, {numbers('c', 2)}, float[2] var = {{1.0,2.0}}>"
        " { m = MatMul(x, w) a = Add(m, b) y = BatchNormalization(a, c, b, b, var) }",
        ("batchnorm_as_affine", "affine_chain", "scale_into_matmul"),
        "MatMul Add",
    ),
    Case(
        "shift_in_front",
        f"{X} <{W}, {numbers('c', 3)}, {BIAS}> {{ a = Add(x, c) m = MatMul(a, w) y = Add(m, b) }}",
        ("shift_before_matmul", "add_add"),
        "MatMul Add",
    ),
    Case(
        "number_in_front",
        f"{X} <{W}, float c = {{1.5}}> {{ a = Sub(x, c) y = MatMul(a, w) }}",
        ("shift_before_matmul",),
        "MatMul Add",
    ),
    Case(
        "one_product_for_two",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,2] z) <{W}, {numbers('c', 3)}, {BIAS}, {numbers('bb', 2)}>"
        " { a = Add(x, c) m = MatMul(a, w) y = Add(m, b) d = Add(x, c) n = MatMul(d, w) z = Add(n, bb) }",
        ("share_common", "shift_before_matmul", "add_add"),
        "MatMul Add Add",
    ),
    Case(
        "one_product_for_two_that_differ_in_front",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,2] z) <{W}, {numbers('c', 3)}, {numbers('cc', 3)}, {BIAS}>"
        " { a = Add(x, c) m = MatMul(a, w) y = Add(m, b) d = Add(x, cc) z = MatMul(d, w) }",
        ("share_common", "shift_before_matmul", "add_add"),
        "MatMul Add Add",
    ),
    Case(
        "scale_in_front",
        f"{X} <{W}, {numbers('c', 3)}> {{ a = Mul(x, c) y = MatMul(a, w) }}",
        ("scale_before_matmul",),
        "MatMul",
    ),
    Case(
        "division_in_front",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,2] z) <{W}, {numbers('v', 3, 2)}, float c = {{1.7}}>"
        " { a = Div(x, c) y = MatMul(a, w) z = MatMul(a, v) }",
        ("scale_before_matmul",),
        "MatMul MatMul",
    ),
    Case(
        "positions_projected",
        f"agraph (float[$N,3] x) => (float[1,p,2] y) <{numbers('table', 1, 8, 3)}, {W}, int64[1] zero = {{0}},"
        " int64[1] one = {1}> { s = Shape(x) n = Slice(s, zero, one) e = Slice(table, zero, n, one) y = MatMul(e, w) }",
        ("matmul_of_constant_rows",),
        "",
        "Shape Slice Slice",
    ),
    Case(
        "embeddings_projected",
        f"agraph (int64[$B,$N] x) => (float[$B,$N,4] y) <{numbers('table', 8, 3)}, {numbers('w', 3, 4)}>"
        " { e = Gather(table, x) y = MatMul(e, w) }",
        ("matmul_of_constant_rows",),
        "Gather",
    ),
    Case(
        "chain_of_weights",
        f"{X} <{numbers('w', 3, 8)}, {numbers('v', 8, 2)}> {{ m = MatMul(x, w) y = MatMul(m, v) }}",
        ("matmul_chain",),
        "MatMul",
    ),
    Case(
        "chain_from_the_right",
        "agraph (float[$N,64] x, float[64,64] u, float[64,1] v) => (float[$N,1] y) { m = MatMul(x, u) y = MatMul(m,"
        " v) }",
        ("matmul_chain",),
        "MatMul MatMul",
        sizes=(3, 8, 70),
    ),
    Case(
        "chain_of_four",
        "agraph (float[40,2] a, float[2,40] b, float[40,2] c, float[2,40] d) => (float[40,40] y)"
        " { m = MatMul(a, b) n = MatMul(m, c) y = MatMul(n, d) }",
        ("matmul_chain",),
        "MatMul MatMul MatMul",
    ),
]

KEPT = [
    (
        "scale_into_matmul",
        f"{X} <{W}, {BIAS}, float[5,2] c = {{1,2,3,4,5,6,7,8,9,10}}> {{ m = MatMul(x, w) y = Mul(m, c) }}".replace(
            "$N", "5"
        ),
        "",
    ),
    (
        "scale_into_matmul",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,2] m) <{W}, float c = {{3}}> {{ m = MatMul(x, w) y ="
        f" Mul(m, c) }}",
        "'m' is also used elsewhere",
    ),
    (
        "scale_into_matmul",
        f"{X} <{W}, float[2] c = {{3e38,3e38}}> {{ m = MatMul(x, w) n = Mul(m, c) y = Tanh(n) }}",
        "leaves the range of normal numbers",
    ),
    (
        "scale_into_matmul",
        f"agraph (float[3,$N] x) => (float[2,$N] y) <{numbers('w', 2, 3)}, float[5] c = {{1,2,3,4,5}}>"
        " { m = MatMul(w, x) y = Mul(m, c) }".replace("$N", "5"),
        "the factor is not one number a column",
    ),
    (
        "shift_before_matmul",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,3] a) <{W}, {numbers('c', 3)}> {{ a = Add(x, c) y ="
        f" MatMul(a, w) }}",
        "'a' is also used elsewhere",
    ),
    (
        "shift_before_matmul",
        f"{X} <{W}, float c = {{3e38}}> {{ a = Add(x, c) m = MatMul(a, w) y = Tanh(m) }}",
        "the shift leaves the range of float32",
    ),
    (
        "scale_before_matmul",
        f"{X} <{W}, float[5,1] c = {{1,2,3,4,5}}> {{ a = Mul(x, c) y = MatMul(a, w) }}".replace("$N", "5"),
        "not one number a row of the weight",
    ),
    (
        "scale_before_matmul",
        f"agraph (float[$N,3] x) => (float[$N,2] y, float[$N,3] a) <{W}, {numbers('c', 3)}> {{ a = Mul(x, c) y ="
        f" MatMul(a, w) }}",
        "'a' is also used elsewhere",
    ),
    (
        "matmul_of_constant_rows",
        f"agraph (int64[$N] x) => (float[$N,4] y, float[$N,3] e) <{numbers('table', 8, 3)}, {numbers('w', 3, 4)}>"
        " { e = Gather(table, x) y = MatMul(e, w) }",
        "'e' is also used elsewhere",
    ),
    (
        "matmul_chain",
        f"{X} <{numbers('w', 3, 1)}, {numbers('v', 1, 2)}> {{ m = MatMul(x, w) y = MatMul(m, v) }}",
        "",
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fires(case: Case, form: str) -> None:
    require_rewritten(case, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rule", "text", "reason"), KEPT, ids=[f"{k}-{c[0]}" for k, c in enumerate(KEPT)])
def test_refuses(rule: str, text: str, reason: str, form: str) -> None:
    require_kept(text, form, rule, reason)


def test_order_depends_on_a_size() -> None:
    text = (
        "agraph (float[$N,4] a, float[4,$N] b, float[$N,2] c) => (float[$N,2] y) { m = MatMul(a, b) y = MatMul(m, c) }"
    )
    require_kept(text, "dynamic", "matmul_chain", "the cheaper order depends on n")
    _, new, report = rewritten(Case("", text, (), ""), "static")
    assert report.fired("matmul_chain") == 1
    assert next(n.inputs for n in new.nodes) == ("b", "c")


@pytest.mark.parametrize("form", FORMS)
def test_growth_is_refused(form: str) -> None:
    """A table of 64 KB times a wide weight has 4 MB."""
    text = (
        "agraph (int64[$N] x) => (float[$N,512] y) <int64[2] s = {2000, 8}, int64[2] r = {8, 512}>"
        " { t = ConstantOfShape<value = float[1] {1.0}>(s) v = ConstantOfShape<value = float[1] {2.0}>(r)"
        " e = Gather(t, x) y = MatMul(e, v) }"
    )
    require_kept(text, form, "matmul_of_constant_rows", "bytes larger than both")
