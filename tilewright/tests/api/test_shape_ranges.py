"""Ranges of symbolic dimensions: what a call may bring, what is refused, and what a build makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.autotune.network.feeds import random_feed
from tilewright.cli import main
from tilewright.core.arith.expr import const, var
from tilewright.core.assumptions import Assumption, Ones
from tilewright.core.errors import InputError
from tilewright.deploy.loader import ArtifactInputError
from tilewright.edit.loading import load_graph
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.tests.api.broadcast_patterns import PATTERNS, feed_for
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.deploy.exported import exported, needs_compiler


def _x(batch: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(batch).standard_normal((batch, 32)).astype(np.float32)}


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\ng {text}')


@pytest.fixture(scope="module")
def model() -> tilewright.CompiledModel:
    return tilewright.compile(perceptron(), input_shapes={"batch": (8, 64)})


# -- calls -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch", [8, 13, 64])
def test_sizes_inside_run(model: tilewright.CompiledModel, batch: int) -> None:
    free = tilewright.compile(perceptron())
    np.testing.assert_array_equal(model.run(_x(batch))["y"], free.run(_x(batch))["y"])


@pytest.mark.parametrize("batch", [0, 1, 7, 65])
def test_sizes_outside_are_refused(model: tilewright.CompiledModel, batch: int) -> None:
    for _ in range(2):  # not only the first time
        with pytest.raises(InputError, match=rf"^input 'x' axis 0: expected batch in \[8, 64\], got {batch}$"):
            model.run(_x(batch))
    with pytest.raises(InputError, match="expected batch in"):
        model.profile(_x(batch), 1)


@pytest.mark.parametrize("name", ["strings", "chain", "attention", "scan_that_grows", "branches"])
def test_patterns_in_ranges(name: str) -> None:
    """Every choice of sizes that operators broadcast: what is outside is refused, the rest is as without ranges."""
    pattern = PATTERNS[name]
    proto, rng = pattern.model(), np.random.default_rng(0)
    first, second, *_ = pattern.sizes
    ranges = {first: (2, 64), second: (1, 64)}
    free, ranged = tilewright.compile(proto), tilewright.compile(proto, input_shapes=ranges)
    for sizes in pattern.choices():
        feed = feed_for(proto, sizes, rng)
        if sizes[first] < 2:
            with pytest.raises(InputError, match=rf"expected {first} in \[2, 64\], got 1"):
                ranged.run(feed)
            continue
        try:
            want = free.run(feed)
        except InputError:
            with pytest.raises(InputError):
                ranged.run(feed)
            continue
        for output, got in ranged.run(feed).items():
            np.testing.assert_array_equal(got, want[output], err_msg=str(sizes))


def test_what_the_model_says_of_itself(model: tilewright.CompiledModel) -> None:
    assert model.ranges == {"batch": (8, 64)}
    assert tilewright.compile(perceptron()).ranges == {}
    memory = model.memory()
    assert memory == model.memory(_x(64))
    assert memory.outputs == 64 * 10 * 4


def test_a_session_and_a_graph_take_ranges(model: tilewright.CompiledModel) -> None:
    graph = tilewright.compile(perceptron(), input_shapes={"batch": (8, 64)}, stop_after="import")
    again = tilewright.compile(graph)
    assert again.ranges == model.ranges


def test_sessions_take_ranges() -> None:
    options = tilewright.SessionOptions(free_dimensions={"batch": (8, 64)})
    session = tilewright.InferenceSession(perceptron().SerializeToString(), options)
    assert session.model.ranges == {"batch": (8, 64)}
    with pytest.raises(InputError, match=r"expected batch in \[8, 64\], got 3"):
        session.run(None, _x(3))
    options = tilewright.SessionOptions(free_dimensions={"batch": (8, "64")})  # type: ignore[dict-item]
    with pytest.raises(
        InputError, match=r"free_dimensions\['batch'\]: expected a whole number of at least 0, got '64'"
    ):
        options.sizes()


def test_the_tuner_takes_the_greatest_size() -> None:
    plan = tilewright.compile(perceptron(), input_shapes={"batch": (8, 64)}).plan
    assert random_feed(plan, {}, 0)["x"].shape == (64, 32)
    assert random_feed(plan, {"batch": 9}, 0)["x"].shape == (9, 32)


# -- what is no range --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"batch": (64, 8)},
            r"input_shapes\['batch'\]: expected the least size and then the greatest one, got tuple \(64, 8\)",
        ),
        ({"batch": (1, 2, 3)}, r"input_shapes\['batch'\]: expected a size, or the least and the greatest one"),
        ({"batch": (-1, 8)}, r"input_shapes\['batch'\]: expected sizes in 0..2\*\*40 or names, got -1"),
        ({"batch": (1.5, 8)}, r"input_shapes\['batch'\]: expected sizes in"),
        ({"hatch": (1, 8)}, r"input_shapes: no input 'hatch'"),
    ],
)
def test_refusals(given: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(perceptron(), input_shapes=given)


def test_a_range_of_one_size_is_that_size() -> None:
    fixed = tilewright.compile(perceptron(), input_shapes={"batch": (4, 4)})
    assert fixed.inputs[0].shape == (4, 32)
    assert fixed.ranges == {}


def test_a_file_cannot_say_it() -> None:
    with pytest.raises(InputError, match=r"expected sizes, got ranges of \['batch'\], which no file can say"):
        load_graph(perceptron(), {"batch": (1, 8)})


# -- what a build makes of it ------------------------------------------------------------------------------------------
def test_sizes_that_are_never_1_need_no_second_version() -> None:
    add = PATTERNS["add"].model()
    free = tilewright.compile(add)
    assert "sizes that are taken to be equal and may also broadcast" in free.explain()
    ranged = tilewright.compile(add, input_shapes={n: (2, 32) for n in "abcd"})
    assert "may also broadcast" not in ranged.explain()
    x, y = np.ones((3, 17), np.float32), np.full((3, 17), 2, np.float32)
    assert (ranged.run({"x": x, "y": y})["z"] == 3).all()
    with pytest.raises(InputError, match="expected dimensions that agree, got b = 17 and d = 16"):
        ranged.run({"x": x, "y": y[:, 1:]})


def test_assumptions_are_narrowed() -> None:
    a, b = var("a"), var("b")
    ranges = {"a": (const(2), const(9)), "b": (const(0), const(9))}
    either = Assumption(a, b, "add", Ones.EITHER)
    assert either.narrowed({}) is either
    assert either.narrowed(ranges) == Assumption(a, b, "add", Ones.RIGHT)
    assert Assumption(b, a, "add", Ones.EITHER).narrowed(ranges) == Assumption(a, b, "add", Ones.RIGHT)
    assert Assumption(b, a, "add", Ones.RIGHT).narrowed(ranges) == Assumption(b, a, "add", Ones.NEITHER)
    assert Assumption(a, a + 1, "add", Ones.EITHER).narrowed(ranges) == Assumption(a, a + 1, "add", Ones.NEITHER)
    assert Assumption(a, const(1), "squeeze", Ones.APART).narrowed(ranges) is None
    apart = Assumption(b, const(1), "squeeze", Ones.APART)
    assert apart.narrowed(ranges) is apart


@pytest.mark.parametrize("b", [1, 5])
def test_one_side_may_still_broadcast(b: int) -> None:
    model = tilewright.compile(
        _parsed("(float[a] x, float[b] y) => (float[] z) { z = Add(x, y) }"), input_shapes={"a": (2, 9)}
    )
    got = model.run({"x": np.arange(5, dtype=np.float32), "y": np.ones(b, np.float32)})["z"]
    np.testing.assert_array_equal(got, np.arange(1, 6, dtype=np.float32))


def test_indices_that_are_always_inside_are_not_checked() -> None:
    text = "(float[h] x) => (float[] z) <int64[1] i = {7}> { z = Gather(x, i) }"
    assert tilewright.compile(_parsed(text)).plan.requirements
    ranged = tilewright.compile(_parsed(text), input_shapes={"h": (8, 64)})
    assert not ranged.plan.requirements
    assert ranged.run({"x": np.arange(8, dtype=np.float32)})["z"] == 7


def test_costs_are_those_of_a_size_in_the_range() -> None:
    text = "(float[1,16,h,h] x) => (float[] z) <float[16,16,3,3] w> { z = Conv<pads=[1,1,1,1]>(x, w) }"
    proto = _parsed(text.replace("<float[16,16,3,3] w>", "").replace("] x)", "] x, float[16,16,3,3] w)"))
    proto.graph.input.pop()
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((16, 16, 3, 3), np.float32), "w"))

    def costs(h: object) -> list[tuple[str, float]]:
        (found,) = tilewright.compile(proto, input_shapes={"h": h}).account()["implementations"]  # type: ignore[dict-item]
        return [(c["name"], c["cost"]) for c in found["candidates"]]

    assert costs((8, 32)) == costs(16)
    assert costs((8, 32)) != costs((64, 256))


def test_shares_of_time_are_those_of_a_size_in_the_range() -> None:
    """Of two products with a batch one grows with its square: its share is that of the size in the middle."""
    proto = _parsed(
        "(float[n,8] x, float[n,8] y) => (float[n,n] a, float[n,64] b) "
        "{ t = Transpose<perm=[1,0]>(y) a = MatMul(x, t) b = MatMul(x, w) }"
    )
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 64), np.float32), "w"))

    def shares(n: object) -> list[float]:
        found = tilewright.compile(proto, input_shapes={"n": n}).coverage()  # type: ignore[dict-item]
        return [r.share for r in sorted(found.rows, key=lambda r: r.kernel)]

    assert shares((64, 256)) == pytest.approx(shares(128), abs=0.01)
    assert shares((64, 256)) != pytest.approx(shares((1, 4)), abs=0.1)


# -- texts and files -----------------------------------------------------------------------------------------------
def test_the_text_parses_back() -> None:
    graph = tilewright.compile(perceptron(), input_shapes={"batch": (8, 64)}, stop_after="passes")
    text = print_graph(graph)
    assert "  range batch: 8 .. 64;" in text
    again = parse_graph(text, constants_of(graph))
    assert again.ranges == graph.ranges == (("batch", 8, 64),)
    assert print_graph(again) == text


@needs_compiler
def test_artifacts_refuse_the_same(model: tilewright.CompiledModel) -> None:
    artifact = exported(model)
    np.testing.assert_array_equal(artifact.run(_x(8))["y"], model.run(_x(8))["y"])
    for batch in (7, 65):
        with pytest.raises(ArtifactInputError, match=rf"input 'x' axis 0: expected batch in \[8, 64\], got {batch}"):
            artifact.run(_x(batch))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(perceptron(), tmp_path)
    assert main(["run", path, "--shapes", "batch=2..5"]) == 0
    assert "float32[5, 32]" in capsys.readouterr().out
    np.savez(tmp_path / "x.npz", **_x(6))
    assert main(["run", path, "--shapes", "batch=2..5", "--inputs", str(tmp_path / "x.npz")]) == 2
    assert "InputError: input 'x' axis 0: expected batch in [2, 5], got 6" in capsys.readouterr().err
    assert main(["verify", path, "--shapes", "batch=2..5"]) == 0
    assert "all layers agree" in capsys.readouterr().out
    assert main(["compile", path, "--shapes", "x=8..32"]) == 2
    assert "'x' is an input: expected a shape like 8x32, got 8..32" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["run", path, "--shapes", "batch=5..2"])
    assert "expected the least size and then the greatest one, got 'batch=5..2'" in capsys.readouterr().err
