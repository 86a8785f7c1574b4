"""A branch of an If may read a weight of the graph around it: implementations that need its elements do not apply."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.graph_ir.interpreter import interpret


def test_a_convolution_in_a_branch_with_a_weight_from_outside() -> None:
    f, shape = TensorProto.FLOAT, (1, 32, 40, 40)
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array((rng.standard_normal((32, 32, 3, 3)) / 32).astype(np.float32), "w")
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, inputs, [f"{name}_y"], **attrs)], name, [],
            [helper.make_tensor_value_info(f"{name}_y", f, shape)],
        )
        for name, op, inputs, attrs in (
            ("then", "Conv", ["x", "w"], {"pads": [1, 1, 1, 1]}), ("else", "Neg", ["x"], {}),
        )
    }  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], **branches)], "branches",
        [helper.make_tensor_value_info("x", f, shape), helper.make_tensor_value_info("c", TensorProto.BOOL, ())],
        [helper.make_tensor_value_info("y", f, shape)], [weight],
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model, imported = tilewright.compile(proto), tilewright.compile(proto, stop_after="import")
    x = rng.standard_normal(shape).astype(np.float32)
    for taken in (True, False):
        feed = {"x": x, "c": np.array(taken)}
        want = np.asarray(interpret(imported, feed)["y"])
        np.testing.assert_allclose(model.run(feed)["y"], want, rtol=1e-4, atol=1e-4)
