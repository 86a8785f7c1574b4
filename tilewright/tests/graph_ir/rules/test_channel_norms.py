"""InstanceNormalization and GroupNormalization in parts: as exporters write them, every spelling, and what looks so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.graph_ir.exported import FORMS, Case, read, require_rewritten, rewritten
from tilewright.tests.graph_ir.rewriting import ops, require_fires, require_refused
from tilewright.tests.graph_ir.rules.test_weights import numbers
from tilewright.tests.replay.outputs import TARGETS

F = np.float32
Build = Callable[[GraphBuilder], str]
AFFINE = ("channel_norm_scale", "channel_norm_bias")
PARTS = ("instance_norm", "group_norm", *AFFINE)
IMAGE = "agraph (float[$B,6,$H,$W] x) => (float[$B,6,$H,$W] y)"
GAIN = f"{numbers('g', 6, 1, 1)}, {numbers('b', 6, 1, 1)}"
MOMENTS = (
    "mu = ReduceMean<axes=[AXES]>(IN) d = Sub(IN, mu) q = Mul(d, d) v = ReduceMean<axes=[AXES]>(q) e = Add(v, eps)"
    " sd = Sqrt(e)"
)
VIEW = "int64[3] groups = {0,3,-1}, float[3] one = {1,1,1}, float[3] zero = {0,0,0}"


def moments(of: str, axes: str) -> str:
    return MOMENTS.replace("IN", of).replace("AXES", axes)


CASES = [
    Case(
        "group_norm_of_torch",
        f"{IMAGE} <{VIEW}, {GAIN}> {{ r = Reshape(x, groups) n = InstanceNormalization<epsilon=1e-5>(r, one, zero)"
        " s = Shape(x) z = Reshape(n, s) m = Mul(z, g) y = Add(m, b) }",
        ("group_norm", *AFFINE),
        "GroupNormalization",
    ),
    Case(
        "group_norm_of_torch_with_unsqueezed_parameters",
        f"{IMAGE} <{VIEW}, {numbers('g', 6)}, {numbers('b', 6)}, int64[2] at = {{1,2}}>"
        " { r = Reshape(x, groups) n = InstanceNormalization<epsilon=1e-5>(r, one, zero) s = Shape(x)"
        " z = Reshape(n, s) gg = Unsqueeze(g, at) m = Mul(z, gg) bb = Unsqueeze(b, at) y = Add(m, bb) }",
        ("group_norm", *AFFINE),
        "GroupNormalization",
    ),
    Case(
        "group_norm_in_means",
        f"{IMAGE} <{VIEW}, {GAIN}, float eps = {{1e-5}}> {{ r = Reshape(x, groups) {moments('r', '2')} n = Div(d, sd)"
        " s = Shape(x) z = Reshape(n, s) m = Mul(z, g) y = Add(m, b) }",
        PARTS,
        "GroupNormalization",
    ),
    Case(
        "group_norm_of_all_axes_apart",
        f"agraph (float[$B,6,$H,4] x) => (float[$B,6,$H,4] y) <int64[5] t = {{0,3,2,-1,4}}, {GAIN},"
        f" float eps = {{1e-5}}> {{ r = Reshape(x, t) {moments('r', '2,3,4')} i = Reciprocal(sd) n = Mul(d, i)"
        " s = Shape(x) z = Reshape(n, s) m = Mul(z, g) y = Add(m, b) }",
        PARTS,
        "GroupNormalization",
    ),
    Case(
        "group_norm_of_one_channel_each",
        f"{IMAGE} <int64[3] t = {{0,6,-1}}, float eps = {{1e-5}}, {GAIN}> {{ r = Reshape(x, t) {moments('r', '2')}"
        " n = Div(d, sd) s = Shape(x) z = Reshape(n, s) m = Mul(z, g) y = Add(m, b) }",
        ("instance_norm", "instance_norm_of_view", *AFFINE),
        "InstanceNormalization",
    ),
    Case(
        "instance_norm_in_means",
        f"{IMAGE} <float eps = {{1e-5}}, {GAIN}> {{ {moments('x', '2,3')} n = Div(d, sd) m = Mul(n, g)"
        " y = Add(m, b) }",
        ("instance_norm", *AFFINE),
        "InstanceNormalization",
    ),
    Case(
        "instance_norm_without_parameters",
        f"{IMAGE} <float eps = {{1e-5}}> {{ {moments('x', '-1,-2')} n = Div(d, sd) y = Relu(n) }}",
        ("instance_norm",),
        "InstanceNormalization Relu",
    ),
    Case(
        "instance_norm_of_a_signal",
        f"agraph (float[$B,6,$N] x) => (float[$B,6,$N] y) <float eps = {{1e-5}}, {numbers('g', 1, 6, 1)},"
        f" {numbers('b', 6, 1)}> {{ {moments('x', '2')} n = Div(d, sd) m = Mul(n, g) y = Add(m, b) }}",
        ("instance_norm", *AFFINE),
        "InstanceNormalization",
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_exporters_form_is_one_operator(case: Case, form: str) -> None:
    require_rewritten(case, form)


def test_rows_of_a_matrix_stay_a_layer_norm() -> None:
    """A parameter for each element of the row: LayerNormalization over two axes, of images too."""
    text = (
        f"agraph (float[$B,6,4,3] x) => (float[$B,6,4,3] y) <float eps = {{1e-5}}, {numbers('g', 4, 3)}>"
        f" {{ {moments('x', '2,3')} n = Div(d, sd) y = Mul(n, g) }}"
    )
    case = Case("", text, ("layer_norm", "layer_norm_scale"), "LayerNormalization")
    for form in FORMS:
        require_rewritten(case, form)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the reference takes means of nothing
def test_no_batch_and_no_pixels() -> None:
    case = next(c for c in CASES if c.name == "instance_norm_in_means")
    _, after, _ = rewritten(Case("", case.text, (), "", sizes=(0,)), "dynamic")
    assert ops(after) == ["InstanceNormalization"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["group_norm_of_torch", "group_norm_in_means"])
def test_build_has_the_kernel_of_the_operator(name: str, form: str) -> None:
    parts = next(c for c in CASES if c.name == name).text
    operator = (
        f"{IMAGE} <{numbers('g', 6)}, {numbers('b', 6)}>"
        " { y = GroupNormalization<num_groups=3, epsilon=1e-5>(x, g, b) }"
    )
    kernels = []
    for text, opset in ((parts, 17), (operator, 21)):
        graph = read(text, form, opset)
        plan = tilewright.compile(graph, target=TARGETS["avx2"], stop_after="lower", progress=False)
        (func,) = plan.funcs.values()
        kernels.append(str(func))
    assert kernels[0] == kernels[1]


def norm(b: GraphBuilder, x: str, *axes: int, dtype: type = F) -> str:
    at = np.array(axes)
    d = b.op("Sub", x, b.op("ReduceMean", x, at))
    variance = b.op("ReduceMean", b.op("Mul", d, d), at)
    return b.op("Div", d, b.op("Sqrt", b.op("Add", variance, dtype(1e-5))))


def image(b: GraphBuilder, *shape: int | str, dtype: str = "float32") -> str:
    return b.input("x", dtype, shape)


def grouped(b: GraphBuilder, x: str, view: tuple[int, ...], back: tuple[int, ...], **more: int) -> str:
    """An InstanceNormalization of a view of ``x``, seen as ``back``."""
    parts = b.op("Reshape", x, np.array(view))
    scale, bias = (np.linspace(k, 2 + k, view[1]).astype(F) for k in (1, -1))
    n = b.op("InstanceNormalization", parts, scale, bias, epsilon=0.125, **more)
    return b.op("Reshape", n, np.array(back))


def columns(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


FIRES: list[tuple[tuple[str, ...], Build, list[str]]] = [
    (("instance_norm",), lambda b: norm(b, image(b, "n", 3, 4, 5), 2, 3), ["InstanceNormalization"]),
    (("instance_norm",), lambda b: norm(b, image(b, "n", 3, "m"), 2), ["InstanceNormalization"]),
    (("instance_norm",), lambda b: norm(b, image(b, 2, 3, "m", 2, "k"), 2, -2, -1), ["InstanceNormalization"]),
    (("group_norm",), lambda b: grouped(b, image(b, "n", 4, 3), (0, 2, 6), (0, 4, 3)), ["GroupNormalization"]),
    (("group_norm",), lambda b: grouped(b, image(b, "n", 4), (0, 2, 2), (0, 4)), ["GroupNormalization"]),
    (("group_norm",), lambda b: grouped(b, image(b, 3, 4), (0, 4, 1), (3, 4)), ["GroupNormalization"]),
    (
        ("group_norm",),
        lambda b: grouped(b, image(b, 2, 4, 2, 3), (2, 1, 4, 6), (2, 4, 2, 3)),
        ["GroupNormalization"],
    ),
    (
        ("instance_norm_of_view",),
        lambda b: grouped(b, image(b, "n", 4, 2, 3), (0, 4, 6), (0, 4, 2, 3)),
        ["InstanceNormalization"],
    ),
    *(
        (
            AFFINE,
            lambda b, scale=scale, bias=bias: b.op(
                "Add",
                bias,
                b.op("Mul", b.op("InstanceNormalization", image(b, "n", 3, 4), columns(3), columns(3)), scale),
            ),
            ["InstanceNormalization"],
        )
        for scale, bias in ((columns(3, 1), columns(1, 3, 1)), (F(2), columns(1)), (columns(1, 1, 1), columns(3, 1)))
    ),
    (
        ("channel_norm_scale",),
        lambda b: b.op(
            "Mul", b.op("GroupNormalization", image(b, "n", 4, 2), columns(4), columns(4), num_groups=2), columns(4, 1)
        ),
        ["GroupNormalization"],
    ),
]


def by(b: GraphBuilder, op: str, c: np.ndarray, *shape: int | str) -> str:
    return b.op(op, b.op("InstanceNormalization", image(b, *shape), columns(3), columns(3)), c)


def read_twice(b: GraphBuilder) -> tuple[str, str]:
    n = b.op("InstanceNormalization", image(b, "n", 3, 4), columns(3), columns(3))
    return b.op("Mul", n, columns(3, 1)), b.op("Relu", n)


def pixels(b: GraphBuilder, height: int | str, width: int | str) -> str:
    rows = b.op("Reshape", image(b, 2, height, width, 6), np.array([2, -1, 6]))
    return b.op("Reshape", norm(b, rows, 2), np.array([2, -1, 3, 2]))


STAYS: list[tuple[str, Build, str]] = [
    ("instance_norm", lambda b: norm(b, image(b, "n", "c", 4, 5), 2, 3), "channels, c, is not a number"),
    (
        "instance_norm",
        lambda b: norm(b, image(b, "n", 3, 4, 5, dtype="float64"), 2, 3, dtype=np.float64),
        "no InstanceNormalization of float64",
    ),
    ("instance_norm", lambda b: norm(b, image(b, "n", 3, 4), 2), ""),  # rows of a sequence
    ("instance_norm", lambda b: norm(b, image(b, "n", 3, 4, 5), 1, 2, 3), ""),
    ("instance_norm", lambda b: pixels(b, 3, 4), ""),  # of the channels of a pixel, in the last place
    ("instance_norm", lambda b: pixels(b, "h", "w"), ""),
    ("instance_norm", lambda b: norm(b, image(b, "n", 3, 4, 5), 3), ""),
    ("instance_norm", lambda b: norm(b, image(b, "n", 3), 1), ""),
    ("instance_norm", lambda b: b.op("Mul", norm(b, image(b, "n", 3, 4, 5), 2, 3), columns(5)), ""),
    ("group_norm", lambda b: grouped(b, image(b, "n", 4, 3), (0, 2, 6), (0, 3, 4)), "is not seen as its input again"),
    ("group_norm", lambda b: grouped(b, image(b, 4, 4, 3), (2, 4, 6), (4, 4, 3)), "the view has a batch of 2, not 4"),
    ("group_norm", lambda b: grouped(b, image(b, "n", 4, 3), (0, 3, 4), (0, 4, 3)), "4 channels in 3 groups"),
    (
        "group_norm",
        lambda b: grouped(b, image(b, 2, "c", 3), (2, 3, -1), (2, -1, 3)),
        "c channels in 3 groups are not numbers",
    ),
    ("channel_norm_scale", lambda b: by(b, "Mul", columns(4), "n", 3, 4), ""),
    ("channel_norm_scale", lambda b: by(b, "Mul", columns(2, 1, 1), 1, 3, 4), ""),
    ("channel_norm_bias", lambda b: by(b, "Add", columns(2, 3, 1), 2, 3, 4), ""),
    ("channel_norm_scale", read_twice, "is also used elsewhere"),
]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=[f"{k}-{c[0][0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    require_fires(build, names, want)


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)
