"""CompiledModel.run: both call forms, and what it says to wrong inputs."""

from __future__ import annotations

import re
import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.core.errors import InputError, ResourceError
from tilewright.tests.api.models import perceptron, perceptron_by_hand, two_inputs


@pytest.fixture(scope="module")
def pair() -> tilewright.CompiledModel:
    return tilewright.compile(two_inputs())


def _ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_results_for_several_batch_sizes() -> None:
    proto = perceptron()
    model = tilewright.compile(proto)
    for batch in (1, 5, 2, 17, 1, 0):
        x = np.random.default_rng(batch).standard_normal((batch, 32)).astype(np.float32)
        np.testing.assert_allclose(model.run({"x": x})["y"], perceptron_by_hand(proto, x), rtol=1e-4, atol=1e-5)


def test_only_the_largest_arena_is_kept() -> None:
    model = tilewright.compile(perceptron())
    arenas = []
    for batch in range(100, 1000, 100):
        model.run({"x": np.ones((batch, 32), np.float32)})
        arenas.append(weakref.ref(model._executor._arena))
    assert len({id(r()) for r in arenas if r() is not None}) == 1


def test_both_call_forms(pair: tilewright.CompiledModel) -> None:
    feed = {"a": _ones(2, 3), "b": _ones(2, 3)}
    both = pair.run(feed)
    assert list(both) == ["total", "rows"]
    (rows,) = pair.run(["rows"], feed)
    np.testing.assert_array_equal(rows, both["rows"])
    assert [x.shape for x in pair.run(None, feed)] == [(2, 3), (4, 3)]


def test_signature(pair: tilewright.CompiledModel) -> None:
    assert [str(i) for i in pair.inputs] == ["a: float32[n, m]", "b: float32[n, m]"]
    assert [(o.name, o.shape, o.type) for o in pair.outputs] == [
        ("total", ("n", "m"), "tensor(float)"), ("rows", ("n*2", "m"), "tensor(float)")
    ]  # fmt: skip


def test_inputs_are_left_alone_and_results_are_new(pair: tilewright.CompiledModel) -> None:
    a, b = _ones(2, 3), _ones(2, 3)
    first = pair.run({"a": a, "b": b})["total"]
    kept = first.copy()
    pair.run({"a": 5 * a, "b": b})
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(a, _ones(2, 3))


def test_layouts_that_are_not_contiguous(pair: tilewright.CompiledModel) -> None:
    a = np.arange(6, dtype=np.float32).reshape(3, 2).T
    b = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
    np.testing.assert_array_equal(pair.run({"a": a, "b": b})["total"], a + b)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"a": _ones(2, 3)}, "inputs: missing 'b'; expected a: float32[n, m]; b: float32[n, m]"),
        ({"a": _ones(2, 3), "b": _ones(2, 3), "c": _ones(1)}, "inputs: unknown 'c'; expected a: float32[n, m]"),
        ({"a": _ones(2, 3), "B": _ones(2, 3)}, "inputs: missing 'b' and unknown 'B'; expected"),
        (
            {"a": _ones(2, 3), "b": np.ones((2, 3))},
            "input 'b': expected b: float32[n, m], got element type float64",
        ),
        ({"a": _ones(2, 3), "b": _ones(6)}, "input 'b': expected b: float32[n, m], got shape [6]"),
        (
            {"a": _ones(2, 3), "b": _ones(4, 3)},
            "input 'b' axis 0: expected n = 2 (n=2 from 'a' axis 0), got 4",
        ),
    ],
)
def test_wrong_inputs(pair: tilewright.CompiledModel, feed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)):
        pair.run(feed)


def test_shapes_that_passed_once_do_not_let_others_pass(pair: tilewright.CompiledModel) -> None:
    for n, m in ((2, 3), (3, 2), (2, 3), (1, 1)):
        results = pair.run({"a": _ones(n, m), "b": _ones(n, m)})
        assert [r.shape for r in results.values()] == [(n, m), (2 * n, m)]
        with pytest.raises(InputError, match=f"expected n = {n} .*, got {n + 1}"):
            pair.run({"a": _ones(n, m), "b": _ones(n + 1, m)})


def test_wrong_static_shape() -> None:
    model = tilewright.compile(perceptron(), input_shapes={"batch": 4})
    assert model.inputs[0].shape == (4, 32)
    with pytest.raises(InputError, match=re.escape("input 'x': expected x: float32[4, 32], got shape [3, 32]")):
        model.run({"x": _ones(3, 32)})


def test_unknown_output(pair: tilewright.CompiledModel) -> None:
    with pytest.raises(InputError, match=r"^outputs: unknown 'sum'; expected \['total', 'rows'\]$"):
        pair.run(["sum"], {"a": _ones(1, 1), "b": _ones(1, 1)})


def test_an_error_leaves_the_model_usable(pair: tilewright.CompiledModel) -> None:
    with pytest.raises(InputError):
        pair.run({"a": _ones(2, 3)})
    assert pair.run({"a": _ones(2, 3), "b": _ones(2, 3)})["total"].sum() == 12


def test_an_output_larger_than_the_memory_is_one_line() -> None:
    value = helper.make_tensor_value_info
    tile = helper.make_node("Tile", ["x", "times"], ["y"])
    times = helper.make_tensor("times", TensorProto.INT64, [1], [13 * 10**6])
    graph = helper.make_graph([tile], "wide", [value("x", 1, [10**4])], [value("y", 1, [13 * 10**10])], [times])
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    with pytest.raises(ResourceError, match=r"wide: .* need 520000000000 bytes"):
        model.run({"x": _ones(10**4)})
