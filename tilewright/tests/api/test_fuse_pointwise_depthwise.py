"""A pointwise and a depthwise convolution in one kernel, through ``compile``."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tilewright


def block(side: int, channels: int, stride: int) -> onnx.ModelProto:
    """What an inverted residual begins with."""
    rng = np.random.default_rng(1)
    shapes = {"w": (channels, 4, 1, 1), "b": (channels,), "u": (channels, 1, 3, 3), "c": (channels,)}
    constants = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], "expand"),
        helper.make_node("Relu", ["y"], ["z"], "act"),
        helper.make_node(
            "Conv", ["z", "u", "c"], ["r"], "window", group=channels, pads=[1, 1, 1, 1], strides=[stride] * 2
        ),
    ]
    out = -(-side // stride)
    graph = helper.make_graph(
        nodes, "block", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, side, side))],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, (1, channels, out, out))], constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize(("side", "channels", "stride"), [(100, 56, 1), (101, 56, 2), (75, 120, 2)])
@pytest.mark.parametrize("threads", [1, 2])
def test_one_kernel_computes_both(side: int, channels: int, stride: int, threads: int) -> None:
    model = block(side, channels, stride)
    built = tilewright.compile(model, threads=threads)
    assert "nodes: expand+act+window" in built.explain()
    x = np.random.default_rng(0).standard_normal((1, 4, side, side)).astype(np.float32)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(built.run({"x": x})["r"], want, rtol=1e-4, atol=1e-4)


def test_a_small_result_between_them_is_stored() -> None:
    assert "y.node+z.node+r.node" not in tilewright.compile(block(40, 56, 1)).explain()
