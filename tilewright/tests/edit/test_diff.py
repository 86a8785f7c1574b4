"""Each kind of difference alone, as data, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper

from tilewright.edit.diff import diff_graphs
from tilewright.edit.differences.constants import constant_change
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value
from tilewright.tests.api.models import convolution
from tilewright.tests.edit.disguises import disguised
from tilewright.tests.frontend.models import control, convnet, functions, quantized

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def network(
    strides: tuple[int, int] = (1, 1), weight: float = 0.0, dtype: str = "float32", size: int = 8, relu: str = "Relu",
    more: bool = False, dim: str = "n", name: str = "x", scale: float = 2.0,
) -> Graph:  # fmt: skip
    """conv -> relu -> (neg ->) times a number -> pool."""
    b = GraphBuilder("net")
    w = np.arange(4 * 3 * 3 * 3, dtype=np.float32).reshape(4, 3, 3, 3)
    w[0, 0, 0, :3] += weight
    w = w.astype(dtype)
    x = b.input(name, dtype, (dim, 3, size, size))
    h = b.op(relu, b.op("Conv", x, b.constant(w, "w"), strides=strides))
    h = b.op("Neg", h) if more else h
    return b.build(b.op("GlobalAveragePool", b.op("Mul", h, b.constant(np.array(scale, dtype), "two"))))


def _lines(a: Graph, b: Graph) -> list[str]:
    """The text of a difference without its summary and headings."""
    found = diff_graphs(a, b)
    json.dumps(found.to_json(), allow_nan=False)
    return [line.strip() for line in found.lines() if line.startswith("  ")]


def test_equal_graphs() -> None:
    found = diff_graphs(network(), network())
    assert not found
    assert str(found) == "no differences (4 nodes)"
    assert not found.all_renamed


def test_attribute() -> None:
    lines = _lines(network(), network(strides=(2, 2)))
    assert lines == [
        "n_Conv_0 (Conv): strides (1, 1) -> (2, 2)",
        "Conv_0: float32[n, 4, 6, 6] -> float32[n, 4, 3, 3]",
    ]
    assert str(diff_graphs(network(), network(strides=(2, 2)))).endswith("types of 2 more values follow")


def test_weight() -> None:
    (line,) = _lines(network(), network(weight=0.5))
    assert line == "w: 3 of 108 elements differ, largest difference 0.5 (read by n_Conv_0 (Conv))"


def test_small_constants_are_written_out() -> None:
    assert _lines(network(), network(scale=3.0)) == ["two: 2.0 -> 3.0 (read by n_Mul_2 (Mul))"]


def test_inserted_and_removed() -> None:
    assert _lines(network(), network(more=True)) == ["n_Neg_2 (Neg) between n_Relu_1 (Relu) and n_Mul_3 (Mul)"]
    found = diff_graphs(network(more=True), network())
    assert [str(n.node) for n in found.removed] == ["n_Neg_2 (Neg)"]
    assert found.count == 1
    assert str(found).startswith("1 difference (5 -> 4 nodes, 4 names differ)\nremoved nodes (1)\n")


def test_replaced() -> None:
    assert _lines(network(), network(relu="Tanh")) == ["n_Tanh_1 (Tanh): Relu -> Tanh"]


def test_names_are_listed_on_demand() -> None:
    found = diff_graphs(network(), network(name="image", dim="batch"))
    assert not found
    assert found.text() == "no differences (4 nodes, 2 names differ)"
    assert found.text(names=True).split("\n")[2:] == ["  input x -> image", "  dimension n -> batch"]


def test_input_shape() -> None:
    lines = _lines(network(), network(size=9))
    assert lines == ["input x: float32[n, 3, 8, 8] -> float32[n, 3, 9, 9]"]


def test_element_type() -> None:
    lines = _lines(network(), network(dtype="float16"))
    assert "input x: float32[n, 3, 8, 8] -> float16[n, 3, 8, 8]" in lines
    assert "output GlobalAveragePool_3: float32[n, 4, 1, 1] -> float16[n, 4, 1, 1]" in lines
    assert any(x.startswith("w: float32[4, 3, 3, 3] -> float16[4, 3, 3, 3], 0 of 108 elements differ") for x in lines)


def _two(first: str, second: str, inputs: str = "ab", dims: tuple[str, str] = ("n", "n")) -> Graph:
    b = GraphBuilder("two")
    for name, dim in zip(inputs, dims, strict=True):
        b.input(name, "float32", (dim,))
    b.ops("Relu", "a", outputs=("p",))
    b.ops("Tanh", "b", outputs=("q",))
    return b.build(first, second)


def test_order_of_inputs_and_outputs() -> None:
    assert _lines(_two("p", "q"), _two("p", "q", "ba")) == ["input b: place 1 -> 0", "input a: place 0 -> 1"]
    assert _lines(_two("p", "q"), _two("q", "p")) == ["output q: place 1 -> 0", "output p: place 0 -> 1"]


def test_a_dimension_is_renamed_everywhere_or_not_at_all() -> None:
    assert not diff_graphs(_two("p", "q"), _two("p", "q", dims=("m", "m")))
    lines = _lines(_two("p", "q"), _two("p", "q", dims=("n", "m")))
    assert lines == ["input b: float32[n] -> float32[m]", "output q: float32[n] -> float32[m]"]


def test_outputs_that_come_and_go() -> None:
    b = GraphBuilder("one")
    b.input("a", "float32", ("n",))
    b.ops("Relu", "a", outputs=("p",))
    one = b.build("p")
    lines = _lines(one, _two("p", "q"))
    assert lines == ["input b added: float32[n]", "output q added: float32[n]",
                     "n_q (Tanh) between input b and output q"]  # fmt: skip
    assert _lines(_two("p", "q"), one)[:2] == ["input b removed: float32[n]", "output q removed: float32[n]"]


def test_an_output_from_elsewhere() -> None:
    def graph(last: str) -> Graph:
        b = GraphBuilder("g")
        p = b.op("Relu", b.input("x", "float32", (4,)))
        q = b.op("Tanh", p)
        return b.build(q, p if last == "p" else q)

    assert "output Tanh_1: n_Relu_0 (Relu) -> n_Tanh_1 (Tanh)" in _lines(graph("p"), graph("q"))


def test_operands_that_change_places() -> None:
    def graph(*operands: str) -> Graph:
        b = GraphBuilder("g")
        b.ops("Relu", b.input("x", "float32", (4,)), outputs=("p",))
        b.ops("Tanh", "x", outputs=("q",))
        return b.build(b.op("Sub", *operands))

    (line,) = _lines(graph("p", "q"), graph("q", "p"))
    assert line == "n_Sub_2 (Sub): operand 0: n_p (Relu) -> n_q (Tanh); operand 1: n_q (Tanh) -> n_p (Relu)"


def test_all_weights_other() -> None:
    """A network trained anew: nodes still are the same ones."""
    a, b = convolution(), convolution()
    for t in b.graph.initializer:
        t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t) + 1, f"{t.name}_new"))
    for n in b.graph.node:
        n.input[:] = [f"{x}_new" if x.startswith("w") else x for x in n.input]
    found = diff_graphs(from_onnx(a), from_onnx(b))
    assert found.count == len(found.constants) == 2
    assert all(c.differing == c.elements and c.largest == pytest.approx(1.0) for c in found.constants)


def test_subgraphs() -> None:
    a = from_onnx(control())
    assert not diff_graphs(a, a)
    same, _ = disguised(a, np.random.default_rng(0))
    assert not diff_graphs(a, same)
    proto = control()
    body = proto.graph.node[0].attribute[0].g
    body.node[1].attribute[0].g.node[0].op_type = "Mul"
    (line, *rest) = _lines(a, from_onnx(proto))
    assert line == "loop (Loop):"
    assert "choose (If):" in rest
    assert any("Add -> Mul" in x or "Sub -> Mul" in x for x in rest), rest


def test_what_a_subgraph_reads_from_outside() -> None:
    def graph(read: str) -> Graph:
        b = GraphBuilder("g")
        b.ops("Relu", b.input("x", "float32", (4,)), outputs=("p",))
        b.ops("Tanh", "x", outputs=("q",))
        c = b.input("c", "bool", ())
        bodies = {}
        for key in ("then_branch", "else_branch"):
            inner = GraphBuilder(key)
            bodies[key] = inner.build(*inner.ops("Neg", read, outputs=(f"{key}_y",)), infer=False)
        return b.build(b.op("If", c, **bodies), "p", "q")

    lines = _lines(graph("p"), graph("q"))
    assert lines.count("n_then_branch_y (Neg): operand 0: p -> q") == 1
    assert lines[0] == "n_If_2 (If):"


def test_nodes_and_types_that_nobody_knows() -> None:
    def graph(alpha: float, known: bool) -> Graph:
        b = GraphBuilder("g")
        x = b.input("x", "float32", (4,))
        node = Node("Twist", (x,), ("t",), (("alpha", alpha),), "twist", "my.domain")
        last = Node("Relu", ("t",), ("y",), (), "relu")
        shape = network().values["x"].type if known else None
        values = {"x": Value("x", TensorType(b._values["x"].dtype, None))}
        values |= {"t": Value("t", shape)} if shape is not None else {}
        return Graph("g", ("x",), ("y",), (node, last), values)

    assert not diff_graphs(graph(1.0, True), graph(1.0, False))
    (line,) = _lines(graph(1.0, False), graph(2.0, False))
    assert line == "twist (my.domain::Twist): alpha 1.0 -> 2.0"


@pytest.mark.parametrize("make", [quantized, functions, control])
def test_models_with_foreign_nodes(make: Callable[[], onnx.ModelProto]) -> None:
    graph = read_model(make()).graph
    assert not diff_graphs(graph, read_model(make()).graph)
    assert not diff_graphs(graph, disguised(graph, np.random.default_rng(0))[0])


@pytest.mark.parametrize("make", [quantized, functions])
def test_a_node_that_becomes_foreign(make: Callable[[], onnx.ModelProto]) -> None:
    graph, proto = read_model(make()).graph, make()
    last = proto.graph.node[-1]
    last.domain, last.op_type = "other.domain", "Other"
    (line,) = _lines(graph, read_model(proto).graph)
    assert "-> other.domain::Other" in line


def test_constants_that_nothing_reads() -> None:
    def graph(**constants: np.ndarray) -> Graph:
        b = GraphBuilder("g")
        for name, array in constants.items():
            b.constant(array, name)
        return b.build(b.op("Relu", b.input("x", "float32", (4,))))

    ones = np.ones(5, np.float32)
    assert _lines(graph(), graph(w=ones)) == ["w: added, float32[5], read by nothing"]
    assert _lines(graph(w=ones), graph()) == ["w: removed, float32[5], read by nothing"]
    assert _lines(graph(w=ones), graph(w=ones * 2)) == ["w: 5 of 5 elements differ, largest difference 1"]
    assert not diff_graphs(graph(w=ones), graph(v=ones))


def test_a_constant_that_is_shared_no_more_is_no_difference() -> None:
    def graph(*names: str) -> Graph:
        b = GraphBuilder("g")
        for name in dict.fromkeys(names):
            b.constant(np.ones(4, np.float32), name)
        return b.build(b.op("Add", b.op("Mul", b.input("x", "float32", (4,)), names[0]), names[1]))

    assert not diff_graphs(graph("w", "w"), graph("w", "v"))


@pytest.mark.parametrize(
    ("old", "new", "differing", "largest"),
    [
        (np.float32([0.0, np.nan, 1]), np.float32([-0.0, np.nan, 1]), 1, 0.0),
        (np.int64([-(2**63), 1]), np.int64([2**63 - 1, 1]), 1, 2.0**64),
        (np.array([1, 2], ml_dtypes.int4), np.array([-8, 2], ml_dtypes.int4), 1, 9.0),
        (np.array([True, False]), np.array([True, True]), 1, None),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), 1, None),
        (np.complex128([3, 1j]), np.complex128([0, 1j]), 1, 3.0),
        (np.array([1, 2], ml_dtypes.bfloat16), np.float32([1, 2.5]), 1, 0.5),
    ],
)
def test_elements(old: np.ndarray, new: np.ndarray, differing: int, largest: float | None) -> None:
    change = constant_change("w", Constant(old), "w", Constant(new))
    assert (change.differing, change.largest) == (differing, largest)


def test_a_network_of_many_equal_weights_under_other_names() -> None:
    graph = from_onnx(str(LIGHT / "light_squeezenet.onnx"))
    assert not diff_graphs(graph, disguised(graph, np.random.default_rng(0))[0])


def test_two_different_networks() -> None:
    """Nothing to match is no error, and every node is either matched or listed."""
    a, b = from_onnx(convolution()), from_onnx(convnet())
    found = diff_graphs(a, b)
    assert found.matched + len(found.removed) == len(a.nodes)
    assert found.matched + len(found.inserted) == len(b.nodes)


def test_models_without_nodes() -> None:
    b = GraphBuilder("g")
    empty = b.build(b.input("x", "float32", (4,)))
    assert not diff_graphs(empty, empty)
    assert len(diff_graphs(empty, network()).inserted) == 4


def test_default_attributes_of_a_file_are_numbers_of_float32() -> None:
    def graph(alpha: float) -> Graph:
        b = GraphBuilder("g")
        return b.build(b.op("LeakyRelu", b.input("x", "float32", (4,)), alpha=alpha))

    assert not diff_graphs(graph(0.01), graph(float(np.float32(0.01))))
    assert helper.make_attribute("alpha", 0.01).f == float(np.float32(0.01))
