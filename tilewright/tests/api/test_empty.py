"""Tensors without elements: constants to pack, known elements of none, and reductions of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tilewright.tests.api.standard import assert_as_standard, assert_outputs, read_model
from tilewright.tests.frontend.models import model_of

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("rows", [2, "n"])
@pytest.mark.parametrize(("inner", "columns"), [(0, 5), (3, 0)])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_products_with_constants_without_elements(rows: int | str, op: str, inner: int, columns: int) -> None:
    weights = np.zeros((inner, columns), np.float32)
    proto = model_of([helper.make_node(op, ["x", "w"], ["y"])], {"x": [rows, inner]}, ["y"], constants={"w": weights})
    assert_outputs(proto, [{"x": f32(2, inner)}], [[np.zeros((2, columns), np.float32)]])


@pytest.mark.parametrize("times", [0, 1, 3])
def test_tiles_of_nothing(times: int) -> None:
    text = """g (int64[1] r, float[n, 2] x) => (y, z) {
        y = Tile(c, r)
        one = Constant<value_ints = [1]>()
        p = Concat<axis = 0>(r, one)
        z = Tile(x, p)
    }"""
    proto = read_model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.empty(0, np.float32), "c"))
    feeds = [{"r": np.array([times]), "x": f32(n, 2)} for n in (0, 2)]
    assert_outputs(proto, feeds, [[np.empty(0, np.float32), np.tile(f["x"], (times, 1))] for f in feeds])


@pytest.mark.parametrize(
    "body",
    ["y = Identity(x)", "y = Neg(x)", "y = Add(x, x)", "f = Cast<to = 1>(x)  g = Relu(f)  y = Cast<to = 7>(g)",
     "y = Concat<axis = 1>(x, x)", "y = Transpose(x)"],
)  # fmt: skip
def test_a_symbol_beside_a_zero(body: str) -> None:
    feeds = [{"x": np.empty((n, 0), np.int64)} for n in (2, 0, 1)]
    assert_as_standard(f"g (int64[n, 0] x) => (int64[p, q] y) {{ {body} }}", feeds)


def test_a_mean_of_single_elements_of_symbolic_rows() -> None:
    """A reduction whose only loop over columns is one row."""
    text = "g (float[m, k, 4, n] x) => (y) { p = GlobalAveragePool(x)  y = GlobalAveragePool(p) }"
    assert_as_standard(text, [{"x": f32(*s)} for s in ((1, 1, 4, 5), (3, 5, 4, 1), (2, 1, 4, 7))])


def test_pieces_of_nothing() -> None:
    text = """g (float[2, n] x) => (y) {
        nine = Constant<value_int = 9>()
        q = SplitToSequence<axis = 1>(x, nine)
        y = SequenceLength(q)
    }"""
    counts = [[np.array(k, np.int64)] for k in (0, 1, 2)]
    assert_outputs(read_model(text), [{"x": f32(2, n)} for n in (0, 9, 10)], counts)


def test_a_slice_that_ends_before_it_begins() -> None:
    text = """g (float[n, 3] x) => (y) {
        from = Constant<value_ints = [100]>()
        to = Constant<value_ints = [1]>()
        y = Slice(x, from, to)
    }"""
    proto = read_model(text)
    assert_outputs(proto, [{"x": f32(n, 3)} for n in (0, 5)], [[np.zeros((0, 3), np.float32)]] * 2)
