"""Kernels on parts of larger values get the address where the part begins: equal layers at other places are one kernel,
in the arena, in outputs and in the bodies of loops."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.core.plan import KernelStep
from tilewright.graph_ir.interpreter import interpret

CHANNELS = 8


def _branches(output: bool, rows: int | str = 10) -> onnx.ModelProto:
    """Three equal convolutions of one input that are joined, and a convolution with a border over what they give."""
    rng = np.random.default_rng(0)
    weights = {f"w{k}": rng.standard_normal((CHANNELS, CHANNELS, 1, 1)).astype(np.float32) for k in range(3)}
    weights["last"] = rng.standard_normal((4, 3 * CHANNELS, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", f"w{k}"], [f"y{k}"], f"branch{k}") for k in range(3)]
    nodes.append(helper.make_node("Concat", ["y0", "y1", "y2"], ["joined"], "join", axis=1))
    nodes.append(helper.make_node("Conv", ["joined", "last"], ["z"], "last", pads=[1, 1, 1, 1]))
    shapes = {"z": (1, 4, rows, 10), "joined": (1, 3 * CHANNELS, rows, 10)}
    outputs = ["z", "joined"] if output else ["z"]
    graph = helper.make_graph(
        nodes, "branches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, CHANNELS, rows, 10))],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n]) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("rows", [10, "h"])
@pytest.mark.parametrize("output", [False, True])
def test_equal_layers_at_other_places_are_one_kernel(output: bool, rows: int | str) -> None:
    proto = _branches(output, rows)
    model = tilewright.compile(proto)
    branches = [s for s in model.plan.steps if isinstance(s, KernelStep) and s.nodes[0].startswith("branch")]
    assert len({s.kernel for s in branches}) == 1
    assert len({str(s.offsets) for s in branches}) == 3
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, 10, 10)).astype(np.float32)
    want = interpret(tilewright.compile(proto, stop_after="import"), {"x": x}).values()
    for got, expected in zip(model.run(None, {"x": x}), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", ["none", "all"])
def test_a_joined_result_of_a_loop_body(level: str) -> None:
    """Its parts move from step to step with the result that they lie in."""
    f, i64, bool_ = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    body = helper.make_graph(
        [
            helper.make_node("Exp", ["s"], ["e"]), helper.make_node("Neg", ["s"], ["n"]),
            helper.make_node("Concat", ["n", "e"], ["c"], axis=0),
            helper.make_node("Tanh", ["e"], ["next"]), helper.make_node("Identity", ["go"], ["again"]),
        ],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", i64, ()), ("go", bool_, ()), ("s", f, (3,)))],
        [helper.make_tensor_value_info("again", bool_, ()), helper.make_tensor_value_info("next", f, (3,)),
         helper.make_tensor_value_info("c", f, (6,))],
    )  # fmt: skip
    count = numpy_helper.from_array(np.array(5), "count")
    loop = helper.make_node("Loop", ["count", "", "x"], ["last", "rows"], body=body)
    graph = helper.make_graph(
        [loop], "loop", [helper.make_tensor_value_info("x", f, (3,))],
        [helper.make_tensor_value_info("last", f, (3,)), helper.make_tensor_value_info("rows", f, (5, 6))], [count],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = tilewright.compile(proto, opt_level=level)
    x = np.array([0.1, -0.5, 2.0], np.float32)
    want = interpret(tilewright.compile(proto, stop_after="import"), {"x": x}).values()
    for got, expected in zip(model.run(None, {"x": x}), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
