"""Operands that say what their absence says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Constant
from tilewright.tests.graph_ir.rewriting import apply, built, require_fires

F = np.float32
Build = Callable[[GraphBuilder], str]


def layer(b: GraphBuilder, op: str, gates: int, *states: str | np.ndarray) -> str:
    rng = np.random.default_rng(0)
    x = b.input("x", "float32", (3, "n", 4))
    w, r = (rng.standard_normal((1, gates * 5, k)).astype(F) for k in (4, 5))
    return b.op(op, x, w, r, None, None, *states, hidden_size=5)


def zeros(b: GraphBuilder, value: float = 0.0) -> str:
    """Zeros for the batch that x has, as exporters write them."""
    batch = b.op("Shape", b.input("like", "float32", ("n",)))
    shape = b.op("Concat", np.array([2]), batch, np.array([5]), axis=0)
    both = b.op("ConstantOfShape", shape, value=Constant(np.full(1, value, F)))
    return b.op("Slice", both, np.array([0]), np.array([1]), np.array([0]))


def softmax(b: GraphBuilder, shape: tuple[int | str, ...], axis: int) -> str:
    """A Softmax of the old kind: of all elements from ``axis`` on."""
    x = b.input("x", "float32", shape)
    rows = b.op("Softmax", b.op("Flatten", x, axis=axis), axis=-1)
    return b.op("Reshape", rows, np.array([0 if isinstance(d, str) else d for d in shape]))


def resized(b: GraphBuilder, *axes: int, mode: str = "half_pixel") -> str:
    """An image made larger by one factor for some axes; only a run knows it."""
    side = b.op("Cast", b.op("Shape", b.input("like", "float32", ("n",))), to=dtypes.float32)
    factor = b.op("Div", b.op("Add", side, np.full(1, 7, F)), np.full(1, 4, F))
    x = b.input("x", "float32", (1, 2, 4, 5))
    scales = b.op("Concat", *[factor] * len(axes), axis=0)
    return b.op("Resize", x, None, scales, axes=axes, mode="linear", coordinate_transformation_mode=mode)


RESIZE = ["Shape", "Cast", "Add", "Div", "Concat", "Resize"]
FIRES: list[tuple[str, Build, list[str]]] = [
    ("zero_state", lambda b: layer(b, "GRU", 3, zeros(b)), ["GRU"]),
    ("zero_state", lambda b: layer(b, "LSTM", 4, z := zeros(b), z), ["LSTM"]),
    ("zero_state", lambda b: layer(b, "LSTM", 4, zeros(b), b.input("c", "float32", (1, "n", 5))), ["LSTM"]),
    ("softmax_of_rows", lambda b: softmax(b, ("n", 5, 1, 1), 1), ["Softmax"]),
    ("softmax_of_rows", lambda b: softmax(b, (2, 3, 4), 2), ["Softmax"]),
    ("softmax_of_rows", lambda b: softmax(b, (2, 1, 1), 1), ["Softmax"]),
    ("scales_of_all_axes", lambda b: resized(b, 2, 3), RESIZE),
]


@pytest.mark.parametrize(("rule", "build", "want"), FIRES)
def test_fires(rule: str, build: Build, want: list[str]) -> None:
    require_fires(build, [rule], want)


def test_zeros_of_a_fixed_batch() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (3, 2, 4))
        return b.op("RNN", x, np.ones((1, 5, 4), F), np.ones((1, 5, 5), F), None, None, np.zeros((1, 2, 5), F),
                    hidden_size=5)  # fmt: skip

    new, _ = apply(built(build), "zero_state")
    assert len(new.nodes[0].inputs) == 3


@pytest.mark.parametrize(
    "build",
    [
        lambda b: layer(b, "GRU", 3, zeros(b, 0.5)),
        lambda b: layer(b, "GRU", 3, b.input("h", "float32", (1, "n", 5))),
        lambda b: layer(b, "GRU", 3, b.op("Neg", zeros(b))),
        lambda b: layer(b, "GRU", 3),
        lambda b: softmax(b, (2, 3, 4), 1),
        lambda b: resized(b, 3, 2),
        lambda b: resized(b, 1, 2),
        lambda b: resized(b, 0, 1, 2, 3),
    ],
)
def test_stays(build: Build) -> None:
    graph = built(build)
    assert apply(graph, "zero_state", "scales_of_all_axes", "softmax_of_rows")[0] is graph


def test_the_scales_of_all_axes() -> None:
    new, _ = apply(built(lambda b: resized(b, 2, 3)), "scales_of_all_axes")
    assert new.nodes[-1].attr("axes") is None
    concat = new.producers()[new.nodes[-1].inputs[2]]
    assert new.constants[concat.inputs[0]].array.tolist() == [1, 1]
