"""``run(feed, out=...)``: arrays of the caller for outputs, and outputs that update an input where it lies."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.compile import plan_text
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.tests.api.models import two_inputs
from tilewright.tests.frontend.models import model_of

F = np.float32
BYTE = 0x7F


def garbage(shape: tuple[int, ...], dtype: object = F) -> np.ndarray:
    array = np.empty(shape, dtype)  # type: ignore[call-overload]
    array.view(np.uint8)[...] = BYTE
    return array


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


@pytest.fixture(scope="module")
def pair() -> tilewright.CompiledModel:
    return tilewright.compile(two_inputs(), cache=False)


FEED = {"a": data(2, 3), "b": data(2, 3) + 1}


def test_results_are_written_where_the_caller_says(pair: tilewright.CompiledModel) -> None:
    wanted = pair.run(FEED)
    out = {"rows": garbage((4, 3)), "total": garbage((2, 3))}
    got = pair.run(FEED, out=out)
    assert list(got) == ["total", "rows"]
    for name, array in out.items():
        assert got[name] is array
        np.testing.assert_array_equal(array, wanted[name])


def test_some_outputs_and_the_other_call_form(pair: tilewright.CompiledModel) -> None:
    wanted, rows = pair.run(FEED), garbage((4, 3))
    got = pair.run(["rows", "total"], FEED, out={"rows": rows})
    assert got[0] is rows
    np.testing.assert_array_equal(rows, wanted["rows"])
    np.testing.assert_array_equal(got[1], wanted["total"])
    (total,) = pair.run(["total"], FEED, out={"rows": rows})
    np.testing.assert_array_equal(total, wanted["total"])


def test_sessions_take_them() -> None:
    session, rows = tilewright.InferenceSession(two_inputs().SerializeToString()), garbage((4, 3))
    assert session.run(["rows"], FEED, out={"rows": rows})[0] is rows
    np.testing.assert_array_equal(rows, np.concatenate(list(FEED.values())))


def test_parts_of_larger_arrays(pair: tilewright.CompiledModel) -> None:
    """Neighbours in one array share no memory."""
    whole = garbage((10, 3))
    pair.run({"a": whole[:2], "b": whole[2:4]}, out={"total": whole[8:], "rows": whole[4:8]})
    np.testing.assert_array_equal(whole[4:8], whole[:4])


_READ_ONLY = garbage((2, 3))
_READ_ONLY.flags.writeable = False
_WHOLE = garbage((8, 3))
REFUSED: list[tuple[object, str]] = [
    ([garbage((2, 3))], "out: expected a dict of arrays by name, got"),
    ({"c": garbage((2, 3))}, "out: unknown 'c'; expected some of ['total', 'rows']"),
    ({"total": [[0.0] * 3] * 2}, "output 'total': expected an array of total: float32[n, m], got"),
    ({"total": garbage((2, 3), np.float64)}, "output 'total': expected total: float32[n, m], got element type float64"),
    ({"total": garbage((3, 2)).T}, "output 'total': expected a C-contiguous array that can be written, got strides"),
    ({"total": _READ_ONLY}, "output 'total': expected a C-contiguous array that can be written, got one that is read-"),
    ({"total": np.frombuffer(bytearray(25), F, 6, 1).reshape(2, 3)}, "got one whose elements are not aligned"),
    ({"rows": garbage((2, 3))}, "output 'rows': expected an array of rows: float32[n*2, m], here [4, 3], got shape [2"),
    ({"total": garbage((2, 3, 1))}, "output 'total': expected an array of total: float32[n, m], here [2, 3], got shap"),
    (
        {"total": FEED["a"]},
        "output 'total': expected memory of its own; got an array that shares memory with input 'a'",
    ),
    ({"total": _WHOLE[:2], "rows": _WHOLE[1:5]}, "expected memory of its own; got an array that shares memory with ou"),
]


@pytest.mark.parametrize(("out", "message"), REFUSED)
def test_refusals(pair: tilewright.CompiledModel, out: object, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        pair.run(FEED, out=out)  # type: ignore[call-overload]


def test_memory_that_only_overlaps(pair: tilewright.CompiledModel) -> None:
    whole = data(9, 3)
    for k in (1, 2, 3):
        with pytest.raises(InputError, match=r"output 'rows': .* shares memory with input '[ab]'"):
            pair.run({"a": whole[:2], "b": whole[2:4]}, out={"rows": whole[k : k + 4]})
    a = whole[::4][:2]  # is copied before the run, so that it is no more in the way
    np.testing.assert_array_equal(
        pair.run({"a": a, "b": a}, out={"total": whole[:2]})["total"], 2 * data(9, 3)[::4][:2]
    )


def test_no_elements(pair: tilewright.CompiledModel) -> None:
    empty = np.empty((0, 3), F)
    got = pair.run({"a": empty, "b": empty}, out={"total": empty, "rows": empty})
    assert got["total"] is got["rows"]


# -- other ways to run ----------------------------------------------------------------------------------------------
def test_sizes_that_the_run_tells() -> None:
    """A host operator in the middle, native kernels on both sides."""
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]), helper.make_node("NonZero", ["n"], ["z"]),
        helper.make_node("Cast", ["z"], ["c"], to=TensorProto.FLOAT), helper.make_node("Exp", ["c"], ["y"]),
    ]  # fmt: skip
    model = tilewright.compile(model_of(nodes, {"x": ["k"]}, ["y", "n"]), cache=False)
    x, y, n = np.array([0, 1, 0, 2, 3], F), garbage((1, 3)), garbage((5,))
    got = model.run({"x": x}, out={"y": y, "n": n})
    assert got["y"] is y
    assert got["n"] is n
    np.testing.assert_array_equal(n, -x)
    np.testing.assert_allclose(y, np.exp([[1, 3, 4]]), rtol=1e-5)
    with pytest.raises(InputError, match=r"output 'y': expected an array of y: .*, here \[1, 2\], got shape \[1, 3\]"):
        model.run({"x": np.array([0, 1, 1], F)}, out={"y": y})


def test_results_of_host_operators_and_control() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["z"]),
        helper.make_node("If", ["c"], ["y"], then_branch=_branch("Exp"), else_branch=_branch("Neg")),
    ]
    proto = model_of(nodes, {"x": [3]}, ["z", "y"])
    proto.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    model = tilewright.compile(proto, cache=False)
    x = np.array([1, 0, 2], F)
    out = {"z": garbage((1, 2), np.int64), "y": garbage((3,))}
    for chosen in (False, True):
        got = model.run({"x": x, "c": np.array(chosen)}, out=out)
        assert all(got[n] is out[n] for n in out)
        np.testing.assert_array_equal(out["z"], [[0, 2]])
        np.testing.assert_allclose(out["y"], np.exp(x) if chosen else -x, rtol=1e-6)


def _branch(op: str) -> object:
    node, value = helper.make_node(op, ["x"], [op]), helper.make_tensor_value_info(op, TensorProto.FLOAT, [3])
    return helper.make_graph([node], op, [], [value])


def test_inputs_constants_and_views_as_outputs() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2, 3))
    y = b.op("Exp", x)
    graph = b.build(x, b.constant(data(4)), y, b.op("Reshape", y, np.array([3, 2])))
    model = tilewright.compile(graph, cache=False)
    feed = {"x": data(2, 3)}
    wanted = model.run(feed)
    out = {n: garbage(a.shape) for n, a in wanted.items()}
    for name, array in model.run(feed, out=out).items():
        assert array is out[name]
        np.testing.assert_array_equal(array, wanted[name])


def test_a_sequence_has_no_array() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])]
    proto = model_of(nodes, {"x": [3]}, ["s"])
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [3]))
    model = tilewright.compile(proto, cache=False)
    with pytest.raises(InputError, match="output 's': expected no array of the caller, it is no tensor of numbers"):
        model.run({"x": data(3)}, out={"s": garbage((2, 3))})


def test_sizes_that_broadcast() -> None:
    model = tilewright.compile(
        model_of([helper.make_node("Add", ["a", "b"], ["y"], "add")], {"a": ["n"], "b": ["m"]}, ["y"]), cache=False
    )
    y = garbage((4,))
    for b in (data(4), data(1), data(1)):
        assert model.run({"a": data(4), "b": b}, out={"y": y})["y"] is y
        np.testing.assert_array_equal(y, data(4) + b)
    with pytest.raises(InputError, match=r"output 'y': expected memory of its own; .* with input 'a'"):
        model.run({"a": y, "b": data(1)}, out={"y": y})


# -- in place -------------------------------------------------------------------------------------------------------
def tensor_scatter(mode: str = "linear") -> Graph:
    b = GraphBuilder("g")
    past, row, at = (
        b.input("past", "float32", (2, "n", 3)),
        b.input("row", "float32", (2, "k", 3)),
        b.input("at", "int64", (2,)),
    )
    present = b.op("TensorScatter", past, row, at, axis=1, mode=mode)
    return b.build(present, b.op("ReduceSum", present))


def scatter_nd() -> Graph:
    b = GraphBuilder("g")
    past, row, at = (
        b.input("past", "float32", (2, "n", 3)),
        b.input("row", "float32", (2, 3)),
        b.input("at", "int64", (2, 2)),
    )
    present = b.op("ScatterND", past, at, row)
    return b.build(present, b.op("ReduceSum", present))


def scatter_elements() -> Graph:
    b = GraphBuilder("g")
    past, row, at = (
        b.input("past", "float32", (2, "n", 3)),
        b.input("row", "float32", (2, 1, 3)),
        b.input("at", "int64", (2, 1, 3)),
    )
    present = b.op("ScatterElements", past, at, row, axis=1)
    return b.build(present, b.op("ReduceSum", present))


CASES: dict[str, tuple[Callable[[], Graph], list[np.ndarray], tuple[int, ...]]] = {
    "linear": (tensor_scatter, [np.array([k, 4 - k]) for k in range(3)], (2, 2, 3)),
    "circular": (lambda: tensor_scatter("circular"), [np.array([k, 5]) for k in range(3)], (2, 2, 3)),
    "nd": (scatter_nd, [np.array([[0, k], [1, 5 - k]]) for k in range(3)], (2, 3)),
    "elements": (scatter_elements, [np.full((2, 1, 3), k) for k in range(3)], (2, 1, 3)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_steps_in_place_are_those_on_new_arrays(case: str) -> None:
    make, places, row = CASES[case]
    model = tilewright.compile(make(), cache=False)
    present, total = model.output_names
    assert model.in_place == {present: "past"}
    assert f"in place: {present} may be the memory of past" in plan_text(model.plan)
    assert f"outputs that may be the memory of an input: {present} of past" in model.explain()
    cache = data(2, 6, 3)
    before = cache.copy()
    for k, at in enumerate(places):
        feed = {"past": before, "row": data(*row) + k, "at": at}
        wanted = model.run(feed)
        assert not np.array_equal(wanted[present], before)
        got = model.run(feed | {"past": cache}, out={present: cache})
        assert got[present] is cache
        np.testing.assert_array_equal(cache, wanted[present])
        np.testing.assert_array_equal(got[total], wanted[total])
        apart = garbage(cache.shape)
        np.testing.assert_array_equal(model.run(feed, out={present: apart})[present], cache)
        before = wanted[present]


def test_a_view_of_the_same_array_is_the_same() -> None:
    model = tilewright.compile(tensor_scatter(), cache=False)
    (present, _), cache = model.output_names, data(2, 6, 3)
    feed = {"past": cache[:], "row": data(2, 2, 3), "at": np.array([1, 2])}
    wanted = model.run(feed)[present]
    np.testing.assert_array_equal(model.run(feed, out={present: cache})[present], wanted)


def test_part_of_what_is_updated_is_refused() -> None:
    model = tilewright.compile(tensor_scatter(), cache=False)
    (present, total), whole = model.output_names, data(2, 6, 3)
    feed, flat = {"past": whole, "row": data(2, 1, 3), "at": np.array([0, 1])}, whole.reshape(-1)
    told = (
        f"output '{present}': expected memory of its own, or that of input 'past' as a whole, which it may update in "
    )
    shifted = feed | {"past": flat[:30].reshape(2, 5, 3)}
    with pytest.raises(InputError, match=f"{told}place; got an array that shares memory with input 'past'"):
        model.run(shifted, out={present: flat[3:33].reshape(2, 5, 3)})
    with pytest.raises(InputError, match=f"{told}place; got an array that shares memory with input 'row'"):
        model.run(feed | {"row": whole}, out={present: whole})
    with pytest.raises(InputError, match=rf"output '{total}': expected memory of its own; .* with input 'past'"):
        model.run(feed, out={total: flat[:1].reshape(())})


def test_a_cache_that_grows_out_of_nothing_is_not_taken_for_itself() -> None:
    """An empty input at the address of the output: there is something to write all the same."""
    b = GraphBuilder("g")
    past, row = b.input("past", "float32", (1, "n", 3)), b.input("row", "float32", (1, 1, 3))
    room = b.op("Pad", past, np.array([0, 0, 0, 0, 2, 0]))
    model = tilewright.compile(b.build(b.op("TensorScatter", room, row, np.array([0]), axis=1)), cache=False)
    (present,), array = model.output_names, garbage((1, 2, 3))
    assert model.in_place == {present: "past"}
    model.run({"past": array[:, :0], "row": data(1, 1, 3)}, out={present: array})
    np.testing.assert_array_equal(array, np.concatenate([data(1, 1, 3), np.zeros((1, 1, 3), F)], 1))
    longer = garbage((1, 4, 3))
    with pytest.raises(InputError, match="shares memory with input 'past'"):
        model.run({"past": longer[:, :2], "row": data(1, 1, 3)}, out={present: longer})


def test_an_input_that_is_read_later_may_not_be_updated() -> None:
    b = GraphBuilder("g")
    past, row = b.input("past", "float32", (4, 3)), b.input("row", "float32", (1, 3))
    present = b.op("ScatterND", past, np.array([[1]]), row)
    graph = b.build(present, b.op("Sub", b.op("ReduceSum", present), b.op("ReduceSum", past)))
    model = tilewright.compile(graph, cache=False)
    assert model.in_place == {}
    assert "refused update_in_place" in model.explain()
    cache = data(4, 3)
    with pytest.raises(
        InputError, match="expected memory of its own; got an array that shares memory with input 'past'"
    ):
        model.run({"past": cache, "row": data(1, 3)}, out={model.output_names[0]: cache})
    np.testing.assert_array_equal(cache, data(4, 3))


def test_one_array_for_two_inputs_is_refused() -> None:
    b = GraphBuilder("g")
    past, other, row = (b.input(n, "float32", (4, 3)) for n in ("past", "other", "row"))
    model = tilewright.compile(
        b.build(b.op("ScatterND", past, np.arange(4)[:, None], row), b.op("Exp", other)), cache=False
    )
    (present, _), cache = model.output_names, data(4, 3)
    with pytest.raises(InputError, match="shares memory with input 'other'"):
        model.run({"past": cache, "other": cache, "row": data(4, 3)}, out={present: cache})


def test_host_steps_before_an_update() -> None:
    b = GraphBuilder("g")
    past, row = b.input("past", "float32", (4, 3)), b.input("row", "float32", (1, 3))
    count = b.op("Unique", b.op("Neg", row))
    model = tilewright.compile(b.build(b.op("ScatterND", past, np.array([[1]]), b.op("Exp", row)), count), cache=False)
    (present, _), cache = model.output_names, data(4, 3)
    feed = {"past": data(4, 3), "row": data(1, 3)}
    wanted = model.run(feed)[present]
    assert model.in_place == {present: "past"}
    assert model.run(feed | {"past": cache}, out={present: cache})[present] is cache
    np.testing.assert_array_equal(cache, wanted)
