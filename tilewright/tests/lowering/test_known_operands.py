"""Operands whose elements are known as expressions over sizes: kernels compute them, nothing hands them over."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tilewright.compile import compile  # noqa: A004
from tilewright.tests.frontend.models import model_of


@pytest.mark.parametrize("past", [0, 1, 5])
def test_range_from_one_size_to_another(past: int) -> None:
    """The positions of new tokens behind those of a past: the start is no constant, and no kernel makes it."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], axis=0),
        helper.make_node("Shape", ["all"], ["shape"]),
        helper.make_node("Squeeze", ["shape"], ["end"]),
        helper.make_node("Sub", ["end", "seven"], ["start"]),
        helper.make_node("Range", ["start", "end", "one"], ["y"]),
    ]
    constants = {"seven": np.array(7), "one": np.array(1)}
    model = model_of(nodes, {"past": ["n"], "new": [7]}, ["y"], 18, constants=constants, out_dtype=TensorProto.INT64)
    feed = {"past": np.zeros(past, np.float32), "new": np.zeros(7, np.float32)}
    np.testing.assert_array_equal(compile(model).run(feed)["y"], np.arange(past, past + 7))
