"""Constants, channels, blocks and padding around a convolution, as exporters write them."""

from __future__ import annotations

import pytest

from tilewright.tests.graph_ir.exported import FORMS, Case, require_kept, require_rewritten
from tilewright.tests.graph_ir.rules.test_moves import focus
from tilewright.tests.graph_ir.rules.test_weights import numbers

IMAGE = "agraph (float[$B,4,$H,$W] x) => (float[$B,z,p,q] y)"
W, GROUPED, K = numbers("w", 2, 4, 3, 3), numbers("w", 2, 2, 3, 3), numbers("k", 4, 12, 3, 3)
FOUR, TWO, B = numbers("c", 4, 1, 1), numbers("d", 1, 2, 1, 1), numbers("b", 2)
PADDED = "Conv<pads=[1,1,1,1]>"
FOCUS = focus(((0, 0), (1, 0), (0, 1), (1, 1)))


def case(name: str, constants: str, body: str, rules: str, left: str = "Conv") -> Case:
    return Case(name, f"{IMAGE} <{constants}> {{ {body} }}", tuple(rules.split()), left, sizes=(4, 9))


CASES = [
    case(
        "batchnorm",
        f"{W}, {B}, float[2] v = {{1,2}}",
        f"a = {PADDED}(x, w) y = BatchNormalization(a, b, b, b, v)",
        "batchnorm_into_conv",
    ),
    case("scale_behind", f"{W}, {TWO}", f"a = {PADDED}(x, w) y = Mul(a, d)", "scale_into_conv"),
    case("shift_behind", f"{W}, {TWO}", f"a = {PADDED}(x, w) y = Add(d, a)", "shift_into_conv"),
    case("scale_in_front", f"{W}, {FOUR}", f"a = Mul(x, c) y = {PADDED}(a, w)", "scale_before_conv"),
    case("scale_of_groups", f"{GROUPED}, {FOUR}", "a = Mul(x, c) y = Conv<group=2>(a, w)", "scale_before_conv"),
    case(
        "division_in_front",
        f"{numbers('w', 4, 2, 3, 3)}, float c = {{255}}",
        "a = Div(x, c) y = ConvTranspose(a, w)",
        "scale_before_conv",
        "ConvTranspose",
    ),
    case("shift_in_front", f"{W}, {FOUR}, {B}", "a = Add(x, c) y = Conv(a, w, b)", "shift_before_conv"),
    case("shift_of_groups", f"{GROUPED}, {FOUR}", "a = Sub(x, c) y = Conv<group=2>(a, w)", "shift_before_conv"),
    case(
        "normalized_image",
        f"{W}, {FOUR}, float k = {{255}}",
        "a = Div(x, k) b = Sub(a, c) d = Div(b, k) y = Conv(d, w)",
        "scale_before_conv shift_before_conv",
    ),
    case(
        "zeros_around", f"{W}, int64[8] p = {{0,0,1,0,0,0,1,2}}", f"a = Pad(x, p) y = {PADDED}(a, w)", "pad_into_conv"
    ),
    Case(
        "focus",
        FOCUS.replace("y = Concat", "f = Concat").replace("(float[$B,c,p,q] y) <", f"(float[$B,4,p,q] y) <{K}, ")[:-1]
        + f" y = {PADDED}(f, k) }}",
        ("slice_slice", "space_to_depth", "channels_into_conv", "space_to_depth_into_conv"),
        "Conv",
        sizes=(4, 6),
    ),
]

KEPT = [
    (
        "shift_before_conv",
        f"{IMAGE} <{W}, {FOUR}> {{ a = Add(x, c) y = {PADDED}(a, w) }}",
        "zeros around the image would be shifted",
    ),
    (
        "scale_before_conv",
        f"{IMAGE} <{W}, float[4,1,1] c = {{3e38,3e38,3e38,3e38}}> {{ a = Mul(x, c) b = Conv(a, w) y = Tanh(b) }}",
        "leaves the range",
    ),
    (
        "scale_before_conv",
        f"agraph (float[$B,4,$H,$W] x) => (float[$B,z,p,q] y, float[$B,4,$H,$W] a) <{W}, {FOUR}> {{ a = Mul(x, c) y"
        f" = Conv(a, w) }}",
        "'a' is also used elsewhere",
    ),
    (
        "pad_into_conv",
        f"{IMAGE} <{W}, int64[8] p = {{0,0,1,0,0,0,1,2}}, float v = {{1}}> {{ a = Pad(x, p, v) y = Conv(a, w) }}",
        "other numbers than zeros",
    ),
    (
        "pad_into_conv",
        f'{IMAGE} <{W}, int64[8] p = {{0,0,1,0,0,0,1,2}}> {{ a = Pad<mode="edge">(x, p) y = Conv(a, w) }}',
        "other numbers than zeros",
    ),
    (
        "space_to_depth_into_conv",
        f"{IMAGE} <{numbers('w', 2, 16, 2, 2)}> {{ a = SpaceToDepth<blocksize=2>(x) y = Conv<dilations=[2,2],"
        f" pads=[1,1,1,1]>(a, w) }}",
        "a convolution with gaps",
    ),
    (
        "channels_into_conv",
        f"{IMAGE} <{W}, int64[4] i = {{0,1,1,3}}> {{ a = Gather<axis=1>(x, i) y = Conv(a, w) }}",
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
    require_kept(text, form, rule, reason, sizes=(4, 8))
