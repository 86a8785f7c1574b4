"""Powers, quotients, chains with constants, activations and bounds, as exporters write them."""

from __future__ import annotations

import pytest

from tilewright.graph_ir.passes.base import Level
from tilewright.tests.graph_ir.exported import FORMS, Case, require_kept, require_rewritten
from tilewright.tests.graph_ir.rules.test_weights import numbers

X = "agraph (float[$N,3] x) => (float[$N,3] y)"
RELU6 = "float c = {3}, float z = {0}, float six = {6}"


def case(name: str, body: str, rules: str, left: str, constants: str = "float c = {3}", enabled: str = "") -> Case:
    return Case(name, f"{X} <{constants}> {{ {body} }}", tuple(rules.split()), left, enabled=tuple(enabled.split()))


CASES = [
    case("square", "y = Pow(x, c)", "pow_two", "Mul", "float c = {2}"),
    case("root", "a = Abs(x) y = Pow(a, c)", "pow_half", "Abs Sqrt", "float c = {0.5}"),
    case("inverse", "a = Exp(x) y = Pow(a, c)", "pow_minus_one", "Exp Reciprocal", "float c = {-1}"),
    case("inverse_root", "a = Exp(x) y = Pow(a, c)", "pow_minus_half", "Exp Sqrt Reciprocal", "float c = {-0.5}"),
    case("quotient", "a = Exp(x) b = Div(c, a) y = Mul(x, b)", "one_over mul_reciprocal", "Exp Div", "float c = {1}"),
    case("eighth", "y = Div(x, c)", "div_power_of_two", "Mul", "float c = {8}"),
    case("third", "y = Div(x, c)", "div_constant", "Mul", enabled="div_constant"),
    case("difference", "a = Sub(x, c) y = Add(a, d)", "sub_constant add_add", "Add", "float c = {3}, float d = {1}"),
    case(
        "normalized_image",
        "a = Div(x, c) b = Sub(a, m) y = Div(b, s)",
        "affine_chain",
        "Mul Add",
        f"float c = {{255}}, {numbers('m', 3)}, float[3] s = {{1,2,3}}",
    ),
    case("reflected", "a = Sub(c, x) b = Mul(a, c) y = Add(b, c)", "affine_chain", "Mul Add"),
    case("log_softmax", "a = Softmax<axis=1>(x) y = Log(a)", "log_softmax", "LogSoftmax"),
    case(
        "mish",
        "a = Exp(x) b = Add(a, c) d = Log(b) t = Tanh(d) y = Mul(x, t)",
        "softplus mish",
        "Mish",
        "float c = {1}",
    ),
    case(
        "hard_swish",
        "a = Add(x, c) b = Clip(a, z, six) d = Mul(x, b) y = Div(d, six)",
        "hard_swish_of_ramp",
        "HardSwish",
        RELU6,
    ),
    case(
        "hard_swish_of_sigmoid",
        "a = Add(x, c) b = Clip(a, z, six) d = Div(b, six) y = Mul(x, d)",
        "hard_sigmoid hard_swish",
        "HardSwish",
        RELU6,
    ),
    case(
        "variance",
        "m = ReduceMean<axes=[1]>(x) d = Sub(x, m) s = Mul(d, d) y = ReduceMean<axes=[1]>(s)",
        "variance_in_one_pass",
        "ReduceMean Mul ReduceMean Mul Sub",
        enabled="variance_in_one_pass",
    ),
    case(
        "variance_without_its_axis",
        "m = ReduceMean<axes=[1]>(x) d = Sub(x, m) s = Pow(d, c) y = ReduceMean<axes=[1], keepdims=0>(s)",
        "variance_in_one_pass",
        "ReduceMean Squeeze Mul ReduceMean Mul Sub",
        "float c = {2}",
        "variance_in_one_pass",
    ),
    case(
        "axis_put_back",
        "m = ReduceMean<axes=[1], keepdims=0>(x) u = Unsqueeze(m, one) y = Sub(x, u)",
        "reduce_keeps_axes",
        "ReduceMean Sub",
        "int64[1] one = {1}",
    ),
    case("leaky", "a = Mul(x, c) y = Max(x, a)", "leaky_relu", "LeakyRelu", "float c = {0.2}"),
    case(
        "leaky_by_choice",
        "g = Greater(x, z) a = Mul(x, c) y = Where(g, x, a)",
        "leaky_relu",
        "LeakyRelu",
        "float c = {1.5}, float z = {0}",
    ),
    case("relu6", "a = Relu(x) y = Min(a, six)", "one_clip", "Clip", "float six = {6}"),
    case("relu_of_clip", "a = Clip(x, z, c) y = Relu(a)", "one_clip", "Clip", "float z = {-0.5}, float c = {1}"),
    case("clip_of_clip", 'a = Clip(x, z, c) y = Clip(a, "", z)', "one_clip", "Clip", "float z = {-0.5}, float c = {1}"),
    case("least_of_most", "a = Max(x, z) y = Min(a, c)", "one_clip", "Clip", "float z = {-0.5}, float c = {1}"),
    case("bounds_that_cross", "a = Max(x, c) y = Min(a, z)", "one_clip", "Clip", "float z = {-0.5}, float c = {1}"),
    case("most_of_least", "a = Min(x, c) y = Max(a, z)", "one_clip", "Clip", "float z = {-0.5}, float c = {1}"),
]

KEPT = [
    ("div_power_of_two", f"{X} <float c = {{3}}> {{ y = Div(x, c) }}", "not a power of two"),
    ("div_constant", f"{X} <float c = {{3}}> {{ y = Div(x, c) }}", ""),
    ("mul_reciprocal", f"{X} {{ a = ReduceMax<axes=[1]>(x) b = Reciprocal(a) y = Mul(x, b) }}", ""),
    ("sub_constant", f"{X} <float c = {{3}}> {{ y = Sub(x, c) }}", ""),
    ("affine_chain", f"{X} <float c = {{3}}> {{ a = Mul(x, c) y = Add(a, c) }}", ""),
    (
        "variance_in_one_pass",
        f"{X} {{ m = ReduceMean<axes=[1]>(x) d = Sub(x, m) s = Mul(d, d) y = ReduceMean<axes=[1]>(s) }}",
        "",
    ),
    (
        "reduce_keeps_axes",
        f"{X} <int64[1] zero = {{0}}> {{ m = ReduceMean<axes=[1], keepdims=0>(x) y = Unsqueeze(m, zero) }}",
        "",
    ),
    ("leaky_relu", f"{X} <float c = {{1.5}}> {{ a = Mul(x, c) y = Max(x, a) }}", ""),
    (
        "one_clip",
        f"{X} <float[3] z = {{0,1,2}}, float c = {{1}}> {{ a = Max(x, z) y = Min(a, c) }}",
        "a bound is not one constant number",
    ),
    ("log_softmax", f"{X[:-1]}, float[$N,3] a) {{ a = Softmax<axis=1>(x) y = Log(a) }}", "'a' is also used elsewhere"),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fires(case: Case, form: str) -> None:
    require_rewritten(case, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rule", "text", "reason"), KEPT, ids=[f"{k}-{c[0]}" for k, c in enumerate(KEPT)])
def test_refuses(rule: str, text: str, reason: str, form: str) -> None:
    require_kept(text, form, rule, reason)


def test_strength_is_reduced_from_level_extended_on() -> None:
    require_kept(CASES[0].text, "static", "pow_two", "", Level.BASIC)


def test_a_divisor_without_inverse_stays() -> None:
    text = f"{X} <float c = {{1e-42}}> {{ y = Div(x, c) }}"
    require_kept(text, "static", "div_constant", "no inverse among the normal numbers", enabled=("div_constant",))
