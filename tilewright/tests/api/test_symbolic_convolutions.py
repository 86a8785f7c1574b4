"""Convolutions by Winograd's algorithms in images whose size is known when the model runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.graph_ir.ir import Graph

SIZES = (
    (1, 1, 1), (1, 1, 9), (2, 2, 3), (1, 3, 4), (1, 5, 5), (3, 7, 6), (2, 8, 8), (1, 13, 11), (1, 16, 31), (1, 37, 50),
    (0, 5, 5),
)  # fmt: skip


def model(
    channels: Sequence[int], shape: Sequence[int | str], pads: Sequence[int] = (1, 1, 1, 1), stride: int = 1
) -> onnx.ModelProto:
    """3x3 convolutions in a row with bias and ReLU; the last result is added to what went into the last one, if they
    agree."""
    rng = np.random.default_rng(3)
    nodes, constants = [], []
    value = "x"
    for k, (ic, oc) in enumerate(pairwise(channels)):
        w = rng.standard_normal((oc, ic, 3, 3)).astype(np.float32) / np.float32(3 * ic**0.5)
        constants += [numpy_helper.from_array(w, f"w{k}")]
        constants += [numpy_helper.from_array(rng.standard_normal(oc).astype(np.float32), f"b{k}")]
        attrs = {"pads": list(pads), "strides": [stride] * 2}
        nodes.append(helper.make_node("Conv", [value, f"w{k}", f"b{k}"], [f"c{k}"], f"conv{k}", **attrs))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"], f"relu{k}"))
        before, value = value, f"r{k}"
    same = channels[-1] == channels[-2] and sum(pads) == 4 and stride == 1
    nodes.append(helper.make_node("Add", [value, before if same else value], ["y"], "sum"))
    n, h, w_ = shape
    graph = helper.make_graph(
        nodes, "convs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, channels[0], h, w_])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def implementations(proto: onnx.ModelProto) -> list[object]:
    graph = tilewright.compile(proto, stop_after="passes")
    assert isinstance(graph, Graph)
    return [n.attr("implementation") for n in graph.nodes if n.op == "Conv"]


def require_agreement(proto: onnx.ModelProto, sizes: Sequence[tuple[int, int, int]], threads: int = 2) -> None:
    compiled, reference = tilewright.compile(proto, threads=threads), ReferenceEvaluator(proto)
    rng = np.random.default_rng(4)
    channels = proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    for n, h, w in sizes:
        x = rng.standard_normal((n, channels, h, w)).astype(np.float32)
        got = compiled.run({"x": x})["y"]
        if x.size:
            np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], atol=2e-4, err_msg=f"{x.shape}")


@pytest.mark.parametrize("channels", [(16, 16, 16), (9, 24, 33), (64, 64)])
@pytest.mark.parametrize("threads", [1, 2])
def test_any_size_of_image_and_batch(channels: tuple[int, ...], threads: int) -> None:
    proto = model(channels, ("n", "h", "w"))
    assert implementations(proto) == ["winograd4"] * (len(channels) - 1)
    require_agreement(proto, SIZES, threads)


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 1, 1)])
@pytest.mark.parametrize("threads", [1, 2])
def test_every_other_pixel(pads: tuple[int, ...], threads: int) -> None:
    proto = model((16, 24, 32), ("n", "h", "w"), pads, stride=2)
    assert implementations(proto) == ["winograd4_stride2"] * 2
    sizes = [(n, h, w) for n, h, w in SIZES if min(h, w) >= 5]
    require_agreement(proto, sizes, threads)
    for n, h, w in sizes[1:]:
        require_agreement(model((16, 24, 32), (n, h, w), pads, stride=2), [(n, h, w)], threads)


@pytest.mark.parametrize("shape", [("n", 13, 22), (1, "h", 20), (2, 18, "w")])
def test_some_of_the_sizes(shape: tuple[int | str, ...]) -> None:
    proto = model((32, 32, 32), shape)
    assert implementations(proto) == ["winograd4"] * 2
    env = [{"n": n, "h": h, "w": w} for n, h, w in SIZES]
    require_agreement(proto, [tuple(d if isinstance(d, int) else e[d] for d in shape) for e in env])  # type: ignore[misc]


def test_weights_that_do_not_stay_in_the_cache() -> None:
    proto = model((256, 256), ("n", "h", "w"))
    assert implementations(proto) == ["winograd4"]
    require_agreement(proto, SIZES[:-2])
    proto = model((256, 256), ("n", 7, 7))
    assert implementations(proto) == ["winograd2"]
    require_agreement(proto, [(1, 7, 7), (3, 7, 7)])


def test_without_padding() -> None:
    proto = model((16, 16, 16), ("n", "h", "w"), (0, 0, 0, 0))
    assert implementations(proto) == ["winograd4"] * 2
    require_agreement(proto, [(1, 5, 5), (2, 6, 9), (1, 20, 17)])
