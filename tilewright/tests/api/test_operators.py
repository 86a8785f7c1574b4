"""Operators of a user's own domain: imported, inferred, folded, fused, compiled, verified, tuned, written, refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright import Operator
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import tune_model
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.errors import InputError, UnsupportedError
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.text import parse_graph, print_graph
from tilewright.inspect.verify import verify_layers
from tilewright.lowering.implementations.operator import require_operators
from tilewright.operators import (
    Implementation,
    PatternKind,
    axis_names,
    compute,
    elementwise,
    reduce_axis,
    same,
    sum_over,
    tensor,
)
from tilewright.rules import P, Rule

DOMAIN = "com.example"


def _cube(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return x * x * x * x.dtype.type(scale)


CUBE = Operator(
    DOMAIN, "Relu", infer=same, reference=_cube, kind=PatternKind.BROADCAST,
    lower=lambda c: elementwise(c, lambda x: x * x * x * c.attr_float("scale", 1.0)),
)  # fmt: skip
"""Named as an operator of ONNX's, which it must not be taken for."""


def _lower_square_sums(c: Any) -> Any:
    x = c.input(0)
    k = reduce_axis(x.shape[1], "k")
    return compute(c.name("sums"), (x.shape[0],), lambda i: sum_over(x[i, k] * x[i, k], k), axis_names=axis_names(1))


SQUARE_SUMS = Operator(
    DOMAIN, "SquareSums", infer=lambda ctx: tensor(ctx.dtype(0), ctx.shape(0, 2)[:1]),
    reference=lambda x: (x * x).sum(axis=1), lower=_lower_square_sums, kind=PatternKind.REDUCTION,
)  # fmt: skip

MIDDLE = Operator(
    DOMAIN, "Middle", infer=lambda ctx: (same(ctx)[0], same(ctx)[0]), outputs=(1, 2), inputs=(1, 2),
    reference=lambda x, y=None: (np.median(x, axis=1, keepdims=True) + 0 * x, x if y is None else y),
)  # fmt: skip
"""Without a formula."""


def model_of(
    *nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",), opset: int = 18, **more: Any
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5])
    ys = [helper.make_tensor_value_info(y, TensorProto.FLOAT, None) for y in outputs]
    graph = helper.make_graph(nodes, "g", [x], ys, **more)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def cube(source: str, result: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result], f"cube_{result}", domain=DOMAIN, **attrs)


CHAIN = (
    helper.make_node("Neg", ["x"], ["a"], "neg"),
    cube("a", "b", scale=0.5),
    helper.make_node("SquareSums", ["b"], ["s"], "sums", domain=DOMAIN),
    helper.make_node("Sqrt", ["s"], ["y"], "sqrt"),
)


def feed_of(rows: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)}


def chain(x: np.ndarray) -> np.ndarray:
    return np.sqrt((_cube(-x, 0.5) ** 2).sum(axis=1))


@pytest.mark.parametrize("rows", [0, 1, 7, 32])
def test_compiled_as_its_reference(rows: int) -> None:
    model = tilewright.compile(model_of(*CHAIN), operators=[CUBE, SQUARE_SUMS])
    np.testing.assert_allclose(model.run(feed_of(rows))["y"], chain(feed_of(rows)["x"]), rtol=1e-5)


def test_it_is_fused_and_verified_layer_by_layer() -> None:
    options: dict[str, Any] = {"operators": [CUBE, SQUARE_SUMS]}
    proto, feed = model_of(*CHAIN), feed_of(7)
    imported = tilewright.compile(proto, stop_after="import", **options)
    lowered = tilewright.compile(proto, stop_after="lower", **options)
    assert [s.nodes for s in lowered.plan.steps] == [("neg", "cube_b", "sums", "sqrt")]
    found = verify_layers(proto, imported, lowered, detect_host(), feed, ("lowered", "imported"))
    assert found.layers
    assert found.first_bad is None
    np.testing.assert_allclose(interpret(imported, feed)["y"], chain(feed["x"]), rtol=1e-5)


def test_it_is_not_taken_for_the_operator_of_onnx_of_that_name() -> None:
    two = model_of(cube("x", "a"), cube("a", "y"))
    out = tilewright.compile(two, operators=CUBE).run(feed_of(3))["y"]
    np.testing.assert_allclose(out, _cube(_cube(feed_of(3)["x"])), rtol=1e-5)
    assert (out < 0).any()


def test_it_is_folded_and_shared_as_ours() -> None:
    value = np.full((1, 5), 2.0, np.float32)
    nodes = (cube("c", "k"), cube("x", "a"), cube("x", "b"), helper.make_node("Sum", ["a", "b", "k"], ["y"]))
    proto = model_of(*nodes, initializer=[onnx.numpy_helper.from_array(value, "c")])
    passes = tilewright.compile(proto, stop_after="passes", operators=[CUBE])
    assert [n.op for n in passes.nodes].count(CUBE.qualified) == 1
    np.testing.assert_allclose(
        tilewright.compile(proto, operators=[CUBE]).run(feed_of(2))["y"], 2 * _cube(feed_of(2)["x"]) + 8.0, rtol=1e-5
    )


def test_without_a_formula_it_runs_in_python() -> None:
    node = helper.make_node("Middle", ["x"], ["m", "same"], "middle", domain=DOMAIN)
    model = tilewright.compile(model_of(node, outputs=("m", "same")), operators=[MIDDLE])
    feed = feed_of(4)
    out = model.run(feed)
    np.testing.assert_array_equal(out["m"], np.broadcast_to(np.median(feed["x"], axis=1, keepdims=True), (4, 5)))
    np.testing.assert_array_equal(out["same"], feed["x"])
    assert "middle" in model.explain()


def test_tuned_with_the_model(tmp_path: Path) -> None:
    options = TuneOptions(
        time_budget_s=None, max_trials=3, sizes={"n": 16}, operators=[CUBE, SQUARE_SUMS], check_network=False
    )
    done = tune_model(model_of(*CHAIN), tmp_path / "log.jsonl", options=options)
    assert not done.result.tasks[0].failures
    model = tilewright.compile(
        model_of(*CHAIN), operators=[CUBE, SQUARE_SUMS], database=tmp_path / "log.jsonl", require_tuned=1.0
    )
    np.testing.assert_allclose(model.run(feed_of(16))["y"], chain(feed_of(16)["x"]), rtol=1e-5)


def test_it_comes_before_a_function_of_the_model() -> None:
    proto = model_of(cube("x", "y"))
    body = [helper.make_node("Identity", ["a"], ["b"])]
    proto.functions.append(helper.make_function(DOMAIN, "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 18)]))
    feed = feed_of(3)
    np.testing.assert_array_equal(tilewright.compile(proto).run(feed)["y"], feed["x"])
    np.testing.assert_allclose(tilewright.compile(proto, operators=[CUBE]).run(feed)["y"], _cube(feed["x"]), rtol=1e-6)


def test_in_a_graph_that_was_edited_and_inside_a_branch() -> None:
    graph = tilewright.load_graph(model_of(cube("x", "y")))
    out = tilewright.compile(graph.model, operators=[CUBE]).run(feed_of(3))["y"]
    np.testing.assert_allclose(out, _cube(feed_of(3)["x"]), rtol=1e-6)
    y = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([cube("x", "inner")], "body", [], [y])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["neg"])], "other", [],
                              [helper.make_tensor_value_info("neg", TensorProto.FLOAT, None)])  # fmt: skip
    first = helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0)
    flag = helper.make_node("Greater", ["s", "zero"], ["p"])
    branch = helper.make_node("If", ["p"], ["y"], then_branch=body, else_branch=other)
    zero = onnx.numpy_helper.from_array(np.float32(0), "zero")
    model = tilewright.compile(model_of(first, flag, branch, initializer=[zero]), operators=[CUBE])
    for x in (np.full((2, 5), 2.0, np.float32), np.full((2, 5), -2.0, np.float32)):
        np.testing.assert_array_equal(model.run({"x": x})["y"], _cube(x) if x.sum() > 0 else -x)


def test_text_and_file_have_it_as_a_foreign_node(tmp_path: Path) -> None:
    graph = tilewright.compile(model_of(*CHAIN), stop_after="import", operators=[CUBE, SQUARE_SUMS])
    text = print_graph(graph)
    assert "com.example::Relu(a)" in text
    assert print_graph(parse_graph(text, graph.constants)) == text
    path = tmp_path / "optimized.onnx"
    tilewright.compile(model_of(*CHAIN), operators=[CUBE, SQUARE_SUMS], save_optimized=path)
    written = onnx.load(path)
    assert {(n.domain, n.op_type) for n in written.graph.node if n.domain} == {
        (DOMAIN, "Relu"), (DOMAIN, "SquareSums"),
    }  # fmt: skip
    again = tilewright.compile(path, operators=[CUBE, SQUARE_SUMS])
    np.testing.assert_allclose(again.run(feed_of(4))["y"], chain(feed_of(4)["x"]), rtol=1e-5)


def test_a_rule_makes_it_and_a_rule_takes_it() -> None:
    made = Rule("to_cube", "x * x * x --> Cube(x)", P("Mul", P("Mul", "x", "x"), "x"),
                lambda m: m.own(CUBE.definition, m["x"], scale=1.0))  # fmt: skip
    nodes = (helper.make_node("Mul", ["x", "x"], ["xx"]), helper.make_node("Mul", ["xx", "x"], ["y"], "third"))
    model = tilewright.compile(model_of(*nodes), operators=[CUBE], rules=[made])
    assert "fired to_cube" in model.explain()
    assert [s.nodes for s in model.plan.steps] == [("third",)]
    np.testing.assert_allclose(model.run(feed_of(3))["y"], _cube(feed_of(3)["x"]), rtol=1e-6)
    taken = Rule("no_cube", "Cube(x) --> x", P("Relu", "x", domain=DOMAIN), lambda m: m["x"])
    for graph in (model_of(cube("x", "y")), tilewright.load_graph(model_of(cube("x", "y"))).model):
        out = tilewright.compile(graph, operators=[CUBE], rules=[taken]).run(feed_of(3))["y"]
        np.testing.assert_array_equal(out, feed_of(3)["x"])


def test_it_may_have_several_implementations() -> None:
    other = Implementation(
        CUBE.qualified, "by_power", lambda c: (elementwise(c, lambda x: x * (x * x)),), cost=lambda facts: 5.0
    )
    model = tilewright.compile(model_of(cube("x", "y")), operators=[CUBE], implementations={"cube_y": other})
    assert "by_power, by user" in model.explain()
    np.testing.assert_allclose(model.run(feed_of(3))["y"], _cube(feed_of(3)["x"]), rtol=1e-6)


def test_narrow_floats_are_computed_wide() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT16, [6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, [6])
    proto = model_of()
    proto.graph.CopyFrom(helper.make_graph([cube("x", "y", scale=1.0)], "g", [x], [y]))
    value = np.array([0.1, -3.3, 7.0, 39.0, 0.0, 2.5], np.float16)
    want = _cube(value.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(tilewright.compile(proto, operators=[CUBE]).run({"x": value})["y"], want)
    imported = tilewright.compile(proto, stop_after="import", operators=[CUBE])
    np.testing.assert_array_equal(interpret(imported, {"x": value})["y"], want)


def test_without_the_operator_the_model_is_refused_as_before() -> None:
    with pytest.raises(UnsupportedError, match=r"com\.example\.Relu .*unknown operator or domain"):
        tilewright.compile(model_of(cube("x", "y")))


def _like(**changes: Any) -> Callable[[], object]:
    given: dict[str, Any] = {"domain": DOMAIN, "name": "X", "infer": same, "reference": _cube, **changes}
    return lambda: Operator(**given)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_like(domain=""), "domain: expected a name, got ''"),
        (_like(domain="ai.onnx"), "domain: expected one of your own, got that of ONNX's operators"),
        (_like(name=3), "name: expected a name, got 3"),
        (_like(name="a::b"), "name: expected a name, got 'a::b'"),
        (_like(infer=None), "infer: expected a function, got None"),
        (_like(reference="x"), "reference: expected a function, got 'x'"),
        (_like(lower=1), "lower: expected a function, got 1"),
        (_like(kind="broadcast"), "kind: expected one of PatternKind.INJECTIVE, .*, got 'broadcast'"),
        (_like(kind=PatternKind.HOST), "kind: expected one of"),
        (_like(inputs=-1), "inputs: expected a number, or the least and the most, got -1"),
        (_like(inputs=(2, 1)), "inputs: expected a number"),
        (_like(outputs=1.5), "outputs: expected a number"),
        (_like(traits={"colour": 1}), "traits: expected some of .*commutative.*, got 'colour'"),
        (_like(traits={"infer": same}), "traits: expected some of .*, got 'infer'"),
        (lambda: require_operators([CUBE, CUBE]), "operators: expected one com.example::Relu, got two"),
        (lambda: require_operators([same]), "operators: expected an Operator, got function <function same"),
        (lambda: require_operators("CUBE"), "operators: expected a list of Operator values, got 'CUBE'"),
        (lambda: tilewright.CompileOptions(operators=3), "operators: expected a list of Operator values, got 3"),
    ],
)  # fmt: skip
def test_bad_values_are_named(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make()


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"infer": lambda ctx: 3}, InputError, "infer: node 'cube_y' .*: expected a type for each result, got 3"),
        (
            {"lower": lambda c: compute(c.name("z"), (3,), lambda i: c.input(0)[i, i])}, InputError,
            "lowering: expected output 'y' of type float32",
        ),
        (
            {"reference": lambda x: (), "lower": None}, tilewright.TilewrightError,
            "node 'cube_y' .*reference: expected 1 arrays, got 0",
        ),
    ],
)  # fmt: skip
def test_functions_that_break_their_promise_are_named(changes: dict[str, Any], error: type, words: str) -> None:
    given = {"domain": DOMAIN, "name": "Relu", "infer": same, "reference": _cube, "lower": CUBE.lower, **changes}
    with pytest.raises(error, match=words):
        tilewright.compile(model_of(cube("x", "y")), operators=[Operator(**given)]).run(feed_of(3))
