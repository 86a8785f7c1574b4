"""The comparison with the original: what it finds, what it lets pass, and whom it blames."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.core.errors import InputError, MismatchError
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.ir import Constant, Graph
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.rules.base import P, Rule
from tilewright.graph_ir.rules.driver import rule_pass
from tilewright.inspect.ort import is_installed
from tilewright.simplification import check
from tilewright.simplification import simplify as module
from tilewright.simplification.check import Judge
from tilewright.simplification.compare import difference
from tilewright.simplification.feeds import random_inputs
from tilewright.simplification.options import SimplifyOptions
from tilewright.simplification.passes import Rewriting
from tilewright.simplification.simplify import simplify_model
from tilewright.simplification.sizes import likely_sizes
from tilewright.tests.quantization.models import model_of
from tilewright.tests.simplification.models import classifier, integers, past_and_mask

WRONG = Rule("relu_as_abs", "Relu(x) --> Abs(x)", P("Relu", "x"), lambda m: m.op("Abs", m["x"]))
RIGHT = Rule("identity_away", "Identity(x) --> x", P("Identity", "x"), lambda m: m["x"])


def _scaled(graph: Graph, ctx: PassContext) -> Graph:
    constants = {n: Constant(c.array * 1.01) if n == "w" else c for n, c in graph.constants.items()}
    return graph.replace(constants=constants)


PASSES = {
    "rule": rule_pass("mixed", Level.BASIC, (RIGHT, WRONG)),
    "pass": Pass("scale_weights", Level.BASIC, Exactness.BIT_EXACT, _scaled),
}


def with_pass(monkeypatch: pytest.MonkeyPatch, wrong: Pass) -> None:
    """``wrong`` runs in the middle of the simplifier's passes."""
    of = Rewriting.of

    def mixed(options: SimplifyOptions, opset: int, nbytes: int) -> Rewriting:
        found = of(options, opset, nbytes)
        return dataclasses.replace(found, passes=(*found.passes[:3], wrong, *found.passes[3:]))

    monkeypatch.setattr(module.Rewriting, "of", mixed)


def test_a_wrong_rule_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_pass(monkeypatch, PASSES["rule"])
    with pytest.raises(MismatchError) as e:
        tilewright.simplify(classifier())
    text = str(e.value)
    assert text.startswith("output 'y' differs by ")
    assert "0.0001 is allowed for batch=" in text
    assert text.endswith("the rule relu_as_abs of the pass mixed is to blame (--disable-pass relu_as_abs)")


def test_a_wrong_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with_pass(monkeypatch, PASSES["pass"])
    with pytest.raises(MismatchError, match=r"the pass scale_weights is to blame \(--disable-pass scale_weights\)"):
        tilewright.simplify(classifier())
    tilewright.simplify(classifier(), tolerance=1.0)
    tilewright.simplify(classifier(), check=False)


def test_integers_must_be_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Cast", ["r"], ["y"], to=7)],
                     {"x": ("n", 5)}, [], {})  # fmt: skip
    model.graph.output.add(name="y", type=helper.make_tensor_type_proto(TensorProto.INT64, ["n", 5]))
    assert len(tilewright.simplify(model).graph.node) == 2
    with_pass(monkeypatch, PASSES["rule"])
    with pytest.raises(MismatchError, match=r"output 'y' differs by .*, 0 is allowed"):
        tilewright.simplify(model)


@pytest.mark.skipif(not is_installed(), reason="needs onnxruntime")
def test_what_the_runtime_itself_changes_is_noise() -> None:
    """A sum in another order decides which of two places is the largest."""
    model = classifier()
    model.graph.node.append(helper.make_node("ArgMax", ["y"], ["best"], axis=1))
    first = read_model(model)
    judge = Judge.of(model, first, SimplifyOptions())
    case = judge.cases[0]
    other = {"y": np.asarray(case.expected["y"]) * np.float32(1 + 3e-4)}
    found = judge._compare(case, other, "y")
    assert found is not None
    assert found.tolerance < 2e-4
    judge._noise = {(c.sizes, "y"): 1e-4 for c in judge.cases}
    assert judge._compare(case, other, "y") is None
    assert "as it does with and without" in judge.notes[-1]


def test_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.simplification.runners.is_installed", lambda: False)
    done = simplify_model(past_and_mask(), SimplifyOptions())
    assert done.checked is not None
    assert (done.checked.runtime, len(done.checked.cases)) == ("tilewright", 2)


def test_sizes_given() -> None:
    sizes = [{"batch": 3, "height": 9, "width": 8}, {"x": (1, 3, 4, 4)}]
    done = simplify_model(classifier(), SimplifyOptions(check_sizes=sizes))
    assert done.checked is not None
    assert done.checked.cases == ("batch=3, height=9, width=8", "batch=1, height=4, width=4")


def test_inputs_given() -> None:
    x = np.ones((2, 3, 5, 5), np.float32)
    done = simplify_model(classifier(), SimplifyOptions(check_inputs={"x": x}))
    assert done.checked is not None
    assert done.checked.cases == ("the inputs given",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"check_sizes": [{"bach": 1}]}, "check_sizes: no dimension 'bach'; .*did you mean 'batch'"),
        ({"check_sizes": [{"batch": 1}]}, "check_sizes: expected a size for height, width; give height=4"),
        ({"check_sizes": {"x": (1, 3, 4)}}, r"check_sizes: input 'x' has 4 dimensions, got \[1, 3, 4\]"),
        ({"check_sizes": {"x": (1, 2, 4, 4)}}, "check_sizes: input 'x': expected 3, got 2"),
        ({"check_sizes": {"y": (1, 2)}}, "check_sizes: no input 'y'; there are x"),
        ({"check_sizes": {"batch": 2, "x": (1, 3, 4, 4)}}, "check_sizes: input 'x': batch is 2 already, got 1"),
        ({"check_inputs": {"z": np.ones(1)}}, "check_inputs: no input 'z'; there are x"),
        ({"check_inputs": {}}, "check_inputs: expected arrays for x, got none for x"),
    ],
)
def test_sizes_and_inputs_that_do_not_fit(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simplify_model(classifier(), SimplifyOptions(**options))  # type: ignore[arg-type]


def test_likely_sizes() -> None:
    fixed = read_model(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"], {}))
    assert list(likely_sizes(fixed.graph)) == [{}]
    open_ = [*likely_sizes(read_model(classifier()).graph)]
    assert len(open_) == len({tuple(e.values()) for e in open_}) == 6
    assert all(e["height"] != e["width"] for e in open_[:4])


def test_a_batch_is_one_for_inputs_of_one_number_each_too() -> None:
    """An image and its time step: the batch stays small where images are large."""
    nodes = [helper.make_node("Transpose", ["x"], ["z"]), helper.make_node("Mul", ["z", "t"], ["y"])]
    model = model_of(nodes, {"x": ("n", "h"), "t": ("n",)}, ["y"], {})
    assert [(e["n"], e["h"]) for e in likely_sizes(read_model(model).graph)][:3] == [(2, 7), (1, 16), (3, 64)]


def test_sizes_for_which_memory_does_not_suffice_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(graph: Graph, env: dict[str, int], seed: int) -> dict[str, object]:
        if max(env.values()) > 10:
            raise MemoryError
        return random_inputs(graph, env, seed)

    monkeypatch.setattr(check, "random_inputs", too_large)
    checked = simplify_model(classifier(), SimplifyOptions()).checked
    assert checked is not None
    assert len(checked.cases) == 2
    assert not any("16" in case for case in checked.cases)


def test_a_size_that_is_the_sum_of_others_is_found() -> None:
    """No assumption says so: the mask is cut, and read at its last place."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], axis=0),
        helper.make_node("Shape", ["all"], ["length"]),
        helper.make_node("Sub", ["length", "one"], ["last"]),
        helper.make_node("Gather", ["mask", "last"], ["kept"]),
        helper.make_node("Shape", ["mask"], ["places"]),
        helper.make_node("Gather", ["all", "places_less"], ["other"]),
        helper.make_node("Sub", ["places", "one"], ["places_less"]),
        helper.make_node("Add", ["kept", "other"], ["y"]),
    ]
    model = model_of(nodes, {"past": ("p",), "new": ("q",), "mask": ("t",)}, ["y"], {})
    model.graph.initializer.extend(integers({"one": [1]}))
    done = simplify_model(model, SimplifyOptions())
    assert done.checked is not None
    assert "p=7, q=9, t=16" in done.checked.cases
    assert not done.checked.notes


def test_a_model_that_no_random_input_fits_is_not_checked() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [7]),
         helper.make_tensor_value_info("shape", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    done = simplify_model(model, SimplifyOptions())
    assert done.checked is not None
    assert done.checked.runtime is None
    assert "not run for random inputs: " in done.checked.notes[0]


# -- differences ---------------------------------------------------------------------------------------------------
def test_differences_of_floats() -> None:
    a = np.array([1.0, -1.0, 0.0], np.float32)
    assert difference(a, a).size == 0
    d = difference(a, a + np.float32([0, 0, 0.5]))
    assert d.size == pytest.approx(0.5 / np.sqrt(2 / 3), rel=1e-6)
    assert d.where == "expected 0.0 at [2], got 0.5"
    nan = np.array([np.nan, np.inf], np.float32)
    assert difference(nan, nan).size == 0
    assert difference(nan, nan[::-1]).size == np.inf
    assert difference(np.zeros(0, np.float32), np.zeros(0, np.float32)).size == 0


def test_differences_of_what_is_no_float() -> None:
    one, two = np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])
    assert (difference(one, two).size, difference(one, two).tolerance) == (0.25, 0.0)
    assert difference(np.array(["a"], object), np.array(["a"])).size == 0
    assert difference(one, one.astype(np.int32)).where == "expected int64[4], got int32[4]"
    assert difference([one, one], [one, two]).size == 0.25
    assert difference([one], [one, two]).where == "expected a list of 1, got a list of 2"
    assert difference(None, None).size == 0
    assert difference(None, one).where == "expected nothing, got int64[4]"


def test_a_model_read_from_bytes() -> None:
    content = classifier().SerializeToString()
    assert len(tilewright.simplify(content).graph.node) == 5
    assert len(onnx.ModelProto.FromString(content).graph.node) == 12
