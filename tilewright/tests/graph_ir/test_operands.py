"""Shapes that operators refuse, known when the model is built, and those that a call tells."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError, ModelError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def i64(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


Operand = np.ndarray | None

# the first operand becomes an input of the graph
WRONG: list[tuple[str, list[Operand], dict[str, object], str]] = [
    ("RoiAlign", [f32(1, 2, 6, 6), f32(1, 2, 6, 6), i64(1)], {}, r"a shape \[r 4\] of input 1"),
    ("RoiAlign", [f32(1, 2, 6, 6), f32(3, 4), i64(2)], {}, r"a shape \[r\] of input 2 with r = 3"),
    ("MaxRoiPool", [f32(1, 2, 6, 6), f32(3, 4)], {"pooled_shape": (2, 2)}, r"\[r 5\] of input 1"),
    ("MaxUnpool", [f32(1, 1, 2), i64(1, 1, 3)], {"kernel_shape": (2,)}, "input 1 like input 0"),
    ("Resize", [f32(1, 2, 6, 6), None, f32(1, 4)], {}, r"a shape \[k\] of input 2"),
    ("Resize", [f32(1, 2, 6, 6), None, None, i64(3)], {}, r"k = 4"),
    ("GridSample", [f32(1, 2, 6, 6), f32(1, 4, 4, 3)], {}, r"d = 2"),
    ("GridSample", [f32(2, 2, 6, 6), f32(1, 4, 4, 2)], {}, r"n = 2"),
    ("AffineGrid", [f32(2, 2, 2), np.array([2, 1, 4, 4])], {}, r"\[n r c\] of input 0"),
    ("GroupNormalization", [f32(1, 4, 3), f32(1), f32(1)], {"num_groups": 2}, r"c = 4"),
    ("BatchNormalization", [f32(4), f32(4), f32(1), f32(1), f32(1)], {}, r"\[1\] of input 1"),
    ("LRN", [f32(4)], {"size": 3}, r"\[n c \.\.\.\] of input 0"),
    ("MeanVarianceNormalization", [f32(2, 3, 4)], {"axes": (0, 2, 3)}, r"an axis in \[-3, 3\), got 3"),
    ("Conv", [f32(1, 2, 5), f32(4, 2, 3), f32(3)], {}, r"\[m\] of input 2 with m = 4"),
    ("Conv", [f32(1, 2, 5), f32(4, 2, 3), f32()], {}, r"\[m\] of input 2"),
    ("Conv", [f32(1, 4, 5), f32(3, 2, 3)], {"group": 2}, "channels divisible by 2"),
    ("ConvTranspose", [f32(1, 2, 5), f32(2, 3, 3), f32(2)], {}, r"m = 3"),
    ("ConvTranspose", [f32(1, 2, 5), f32(2, 3, 3)], {"output_padding": (1, 1)}, "1 output_padding"),
    ("ConvTranspose", [f32(1, 2, 5), f32(2, 3, 3)], {"pads": (0, -2)}, r"pads >= 0, got \(0, -2\)"),
    ("DeformConv", [f32(1, 2, 5, 5), f32(4, 2, 3, 3), f32(1, 9, 3, 3)], {}, r"o = 18"),
    ("Col2Im", [f32(1, 10, 4), np.array([5, 5]), np.array([1, 5])], {}, r"l = 5"),
    ("Col2Im", [f32(1, 9, 5), np.array([5, 5]), np.array([1, 5])], {}, "channels divisible by 5"),
    ("LSTM", [f32(5, 1, 2), f32(1, 12, 2), f32(1, 12, 3), f32(1, 12)], {"hidden_size": 3}, r"of input 3 with d = 1, h"),
    ("GRU", [f32(5, 1, 2), f32(1, 9, 2), f32(1, 9, 3), None, None, f32(1, 2, 3)], {"hidden_size": 3}, r"of input 5"),
    ("RNN", [f32(5, 1, 2), f32(1, 3, 2), f32(1, 2, 3)], {"hidden_size": 3}, r"of input 2"),
    ("GatherElements", [f32(2, 3), i64(3, 3)], {"axis": 1}, r"indices of size \(axis 0\) <= 2, got 3"),
    ("ScatterElements", [f32(2, 3), i64(3, 3), f32(3, 3)], {"axis": 1}, r"indices of size \(axis 0\) <= 2, got 3"),
    ("ScatterElements", [f32(3, 3), i64(3, 3), f32(3, 2)], {"axis": 1}, "input 2 like input 1"),
    ("ScatterND", [f32(4, 5), i64(2, 1), f32(2, 4)], {}, "dimensions that agree"),
    ("ScatterND", [f32(4, 5), i64(2, 3), f32(2)], {}, "at most 2 indices a place"),
    ("GatherND", [f32(2, 3), i64(3, 1)], {"batch_dims": 1}, "dimensions that agree"),
    ("OneHot", [i64(3), np.array(4), f32(1)], {}, r"\[2\] of input 2"),
    ("ReverseSequence", [f32(3, 4), i64(3)], {}, r"b = 4"),
    ("Trilu", [f32(3, 4), i64(2)], {}, "one element as input 1"),
    ("Range", [f32(0), f32(), f32()], {}, "one element as input 0"),
    ("Clip", [f32(3), f32(3)], {}, "one element as input 1"),
    ("CumSum", [f32(3), i64(2)], {}, "one element as input 1"),
    ("EyeLike", [f32(3)], {}, r"\[n m\] of input 0"),
    ("Slice", [f32(3, 4), np.array([0, 0]), np.array([1])], {}, r"n = 2"),
    ("Tile", [f32(3), np.array([[1]])], {}, r"\[r\] of input 1"),
    ("QuantizeLinear", [f32(3, 4), f32(1, 4)], {"axis": 1}, "input 1 of rank <= 1"),
    ("DequantizeLinear", [np.zeros((4, 3), np.int8), f32(2, 2)], {"axis": 0, "block_size": 2}, "dimensions that agree"),
    ("STFT", [f32(1, 32, 1), np.array(0), None, np.array(8)], {}, "a frame_step >= 1"),
    ("STFT", [f32(1, 32, 1), np.array(4), None, np.array(0)], {}, "a frame_length >= 1"),
    ("STFT", [f32(1, 32, 1), np.array(4), None, np.array(33)], {}, "a frame_length <= 32"),
    ("STFT", [f32(1, 32, 1, 1), np.array(4), None, np.array(8)], {}, r"\[b n or b n p\] of input 0"),
    ("STFT", [f32(1, 32, 2), np.array(4), None, np.array(8)], {}, "numbers of a sample <= 1, got 2"),
    ("DFT", [f32(1, 8, 3)], {}, "numbers of a sample <= 2, got 3"),
    ("DFT", [f32(1, 8, 1), None, np.array(2)], {}, "other than the last"),
]


@pytest.mark.parametrize(("op", "operands", "attrs", "message"), WRONG)
def test_shapes_that_do_not_fit_are_refused(
    op: str, operands: list[Operand], attrs: dict[str, object], message: str
) -> None:
    b = GraphBuilder("g")
    first, *others = operands
    assert first is not None
    x = b.input("x", first.dtype.name, first.shape)
    with pytest.raises(ModelError, match=message) as caught:
        infer_graph(b.build(b.op(op, x, *others, **attrs)))
    assert f"({op})" in str(caught.value)


def test_indices_that_name_places_by_where_they_stand_are_held_to_the_data_at_the_call() -> None:
    b = GraphBuilder("g")
    x, at = b.input("x", "float32", ("n", 4)), b.input("at", "int64", ("m", 2))
    g = b.build(b.op("GatherElements", x, at, axis=1))
    model = compile(g, progress=False)
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    where = np.array([[3, 0], [1, 1], [2, 2]])
    for k in (1, 3):
        (got,) = model.run({"x": data, "at": where[:k]}).values()
        np.testing.assert_array_equal(got, np.take_along_axis(data[:k], where[:k], 1))
    with pytest.raises(InputError, match="GatherElements"):
        model.run({"x": data[:2], "at": where})


@pytest.mark.parametrize("op", ["DFT", "STFT"])
def test_a_signal_whose_samples_have_one_number_or_two_by_the_call(op: str) -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2, 9, "p"))
    rest = {"DFT": (None, np.array(1)), "STFT": (np.array(2), None, np.array(4))}[op]
    g = b.build(b.op(op, x, *rest, onesided=0))
    model = compile(g, progress=False)
    (name,) = g.outputs
    for p in (1, 2):
        data = np.random.default_rng(p).standard_normal((2, 9, p)).astype(np.float32)
        np.testing.assert_allclose(model.run({"x": data})[name], interpret(g, {"x": data})[name], atol=2e-6)
    for p in (0, 3):
        with pytest.raises(InputError, match="expected dimensions that agree"):
            model.run({"x": np.zeros((2, 9, p), np.float32)})


def test_a_transform_of_no_samples_is_zero() -> None:
    b = GraphBuilder("g")
    g = b.build(b.op("DFT", b.input("x", "float32", (2, 0, 1)), None, np.array(1), onesided=1))
    (got,) = compile(g, progress=False).run({"x": f32(2, 0, 1)}).values()
    np.testing.assert_array_equal(got, f32(2, 1, 2))


def test_sizes_of_unknown_relation_are_assumed_equal() -> None:
    b = GraphBuilder("g")
    x, s = b.input("x", "float32", (1, "c", 5)), b.input("s", "float32", ("k",))
    g = infer_graph(b.build(b.op("GroupNormalization", x, s, s, num_groups=1)))
    assert {(a.left, a.right) for a in g.assumptions} == {(var("c"), var("k"))}


@pytest.mark.parametrize("between", [(), ("Neg",), ("Neg", "Abs")])
def test_an_assumed_size_that_is_known_later_is_compared_all_the_same(between: tuple[str, ...]) -> None:
    """NonZero of a constant folds, and all that follows; that it has 30 elements says nothing of what Unique finds."""
    b = GraphBuilder("g")
    at = b.op("NonZero", np.repeat([1, 0], [30, 3]).astype(np.int32))
    for op in between:
        at = b.op(op, at)
    _, first, *_ = b.ops("Unique", b.input("x", "float32", ("n",)), outputs=4)
    g = b.build(b.op("LessOrEqual", first, at))
    model = compile(g, progress=False)
    for n in (1, 30):
        data = np.arange(n, dtype=np.float32)
        (got,) = model.run({"x": data}).values()
        np.testing.assert_array_equal(got, interpret(g, {"x": data})[g.outputs[0]])
    with pytest.raises(InputError, match=r"LessOrEqual.*expected dimensions that agree"):
        model.run({"x": np.arange(7, dtype=np.float32)})


def test_a_size_that_stands_for_an_assumed_one_is_assumed_too() -> None:
    """Two equal nodes become one: the assumption is then about the symbol of the other."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    (kept, *_), (gone, *_) = (b.ops("Unique", x, outputs=2) for _ in range(2))
    at = b.op("NonZero", b.input("y", "int32", (33,)))
    graph = infer_graph(b.build(b.op("Mul", gone, b.op("Cast", at, to=dtypes.float32)), kept))
    (assumed,) = graph.assumptions
    ed = GraphEditor(graph, PassContext.for_graph(graph))
    size = graph.values[kept].type.shape[0]
    assert size.free_vars().isdisjoint(assumed.symbols())
    ed.replace_all_uses({gone: kept})
    product = next(n for n in ed.nodes.values() if n.op == "Mul")
    ed.infer_again(product, {product.inputs[1]: np.zeros((1, 30), np.float32)})
    assert ed.values[kept].type.shape[0] == size


@pytest.mark.parametrize("op", ["Expand", "Tile"])
def test_an_assumed_size_is_compared_when_another_node_makes_it(op: str) -> None:
    """The Sub moves in front of the node that repeats, which is a new one: its sizes are those that the Add assumes."""
    b = GraphBuilder("g")
    x, sizes = b.input("x", "float32", ("n", 4, 4)), b.input("sizes", "int64", (3,))
    repeated = b.op(op, np.arange(16, dtype=np.float32).reshape(1, 4, 4), sizes)
    g = b.build(b.op("Add", b.op("Sub", repeated, np.float32(2)), x))
    model = compile(g, progress=False)
    for n, count in ((4, 4), (1, 4), (4, 1), (1, 1)):
        feed = {"x": np.ones((n, 4, 4), np.float32), "sizes": np.array([count, 1, 1])}
        (got,) = model.run(feed).values()
        np.testing.assert_array_equal(got, interpret(g, feed)[g.outputs[0]])
    with pytest.raises(InputError, match="expected dimensions that"):
        model.run({"x": np.ones((3, 4, 4), np.float32), "sizes": np.array([4, 1, 1])})
