"""Windows, transposed windows and resizing by rules whose padding or scale depends on sizes that only a call tells."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.core.errors import InputError
from tilewright.reference import evaluate
from tilewright.tests.api.standard import assert_outputs
from tilewright.tests.frontend.models import model_of

RNG = np.random.default_rng(0)
SIZES = ((1, 7, 8), (2, 6, 5), (1, 33, 16), (1, 1, 2))


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def assert_as_reference(op: str, attrs: dict[str, object], weight: np.ndarray | None, sizes=SIZES) -> None:  # type: ignore[no-untyped-def]
    """The operator on images of symbolic size, compiled once, is what the reference room says of each size."""
    node = helper.make_node(op, ["x"] if weight is None else ["x", "w"], ["y"], **attrs)
    proto = model_of([node], {"x": ["n", 3, "h", "v"]}, ["y"], constants={} if weight is None else {"w": weight})
    feeds = [{"x": f32(n, 3, h, w)} for n, h, w in sizes]
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
    expected = [evaluate(op, "", plain, [f["x"], *([] if weight is None else [weight])], 1) for f in feeds]
    assert_outputs(proto, feeds, expected, 1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [3, 2]])
@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER", "VALID"])
class TestAutoPad:
    def test_convolution(self, auto: str, strides: list[int]) -> None:
        sizes = SIZES if auto != "VALID" else SIZES[:3]
        assert_as_reference("Conv", {"auto_pad": auto, "strides": strides}, f32(4, 3, 3, 2), sizes)

    def test_dilated_convolution(self, auto: str, strides: list[int]) -> None:
        sizes = SIZES if auto != "VALID" else SIZES[:3]
        assert_as_reference("Conv", {"auto_pad": auto, "strides": strides, "dilations": [2, 1]}, f32(4, 3, 3, 2), sizes)

    def test_depthwise_convolution(self, auto: str, strides: list[int]) -> None:
        sizes = SIZES if auto != "VALID" else SIZES[:3]
        assert_as_reference("Conv", {"auto_pad": auto, "strides": strides, "group": 3}, f32(3, 1, 3, 3), sizes[:3])

    def test_transposed_convolution(self, auto: str, strides: list[int]) -> None:
        assert_as_reference("ConvTranspose", {"auto_pad": auto, "strides": strides}, f32(3, 4, 3, 3))

    @pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
    def test_pools(self, op: str, auto: str, strides: list[int]) -> None:
        assert_as_reference(op, {"auto_pad": auto, "strides": strides, "kernel_shape": [3, 2]}, None, SIZES[:3])


def test_a_transposed_convolution_of_a_given_size() -> None:
    """What is cut off, and so which phase comes first, depends on the image."""
    attrs: dict[str, object] = {"output_shape": [15, 16], "strides": [2, 2]}
    assert_as_reference("ConvTranspose", attrs, f32(3, 4, 3, 3), ((1, 7, 8), (2, 8, 8)))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
class TestKeptRatio:
    def test_bounds_in_the_model(self, mode: str, policy: str, antialias: int) -> None:
        _resized(mode, policy, antialias, [np.array([10, 14])] * 3, False)

    def test_bounds_at_the_call(self, mode: str, policy: str, antialias: int) -> None:
        _resized(mode, policy, antialias, [np.array(s) for s in ((10, 14), (4, 4), (1, 3))], True)


def _resized(mode: str, policy: str, antialias: int, sizes: list[np.ndarray], given: bool) -> None:
    attrs = {"mode": mode, "keep_aspect_ratio_policy": policy, "antialias": antialias, "axes": [2, 3]}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **attrs)
    proto = model_of([node], {"x": ["n", 3, "h", "w"]}, ["y"], constants={} if given else {"s": sizes[0]})
    if given:
        proto.graph.input.append(helper.make_tensor_value_info("s", 7, [2]))
    feeds = [{"x": f32(*s), **({"s": m} if given else {})} for s, m in zip(
        ((1, 3, 7, 8), (2, 3, 16, 5), (1, 3, 9, 9)), sizes, strict=True)]  # fmt: skip
    plain = {**attrs, "axes": (2, 3)}
    expected = [evaluate("Resize", "", plain, [f["x"], None, None, m], 1) for f, m in zip(feeds, sizes, strict=True)]
    assert_outputs(proto, feeds, expected, 1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [3, 4, 5])
def test_no_tensor_has_a_negative_size(n: int) -> None:
    """Neither one that only other kernels see."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[5, 1]),
        helper.make_node("Concat", ["x", "p"], ["y"], axis=2),
    ]
    model = tilewright.compile(model_of(nodes, {"x": [1, 1, "n", 2]}, ["y"], 17))
    x = np.ones((1, 1, n, 2), np.float32)
    if n > 3:
        assert model.run({"x": x})["y"].shape == (1, 1, 2 * n - 4, 2)
        return
    with pytest.raises(InputError, match="tensor 'p': the input shapes give it a negative size"):
        model.run({"x": x})
