"""compile: its options, its stages, and what it says to wrong arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError, TargetError, UnsupportedError
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import Timing
from tilewright.tests.api.models import convolution, perceptron, saved
from tilewright.tests.frontend.models import model_of


def test_a_path_bytes_and_a_message_are_the_same_model(tmp_path: Path) -> None:
    proto = perceptron()
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    path = saved(proto, tmp_path)
    results = [tilewright.compile(m).run({"x": x})["y"] for m in (proto, proto.SerializeToString(), path, Path(path))]
    for r in results[1:]:
        np.testing.assert_array_equal(r, results[0])


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_levels_agree(level: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    want = tilewright.compile(convolution(), opt_level="all").run({"x": x})["y"]
    got = tilewright.compile(convolution(), opt_level=level).run({"x": x})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_stages() -> None:
    graph = tilewright.compile(perceptron(), stop_after="import")
    assert isinstance(graph, Graph)
    assert [n.op for n in graph.nodes] == ["MatMul", "Add", "Relu", "MatMul"]
    assert isinstance(tilewright.compile(perceptron(), stop_after="passes"), Graph)
    lowered = tilewright.compile(perceptron(), stop_after="lower")
    assert len(lowered.plan.steps) == len(lowered.funcs) == 2
    scheduled = tilewright.compile(perceptron(), stop_after="schedule")
    kernels = tilewright.compile(perceptron(), stop_after="codegen")
    assert list(scheduled) == list(kernels) == list(lowered.funcs)


def test_disabled_passes_and_instruments() -> None:
    timing = Timing()
    tilewright.compile(convolution(), stop_after="passes", instruments=(timing,))
    ran = [name for name, _ in timing.seconds]
    assert "channels_last" in ran
    timing = Timing()
    tilewright.compile(convolution(), stop_after="passes", instruments=(timing,), disabled_pass=("channels_last",))
    assert "channels_last" not in [name for name, _ in timing.seconds]


def test_another_cpu_compiles_and_is_not_run() -> None:
    kernels = tilewright.compile(perceptron(), target="llvm -mcpu=x86-64-v3", stop_after="codegen")
    assert all(k.code for k in kernels.values())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"opt_level": "most"}, InputError, "opt_level: expected one of none, basic, extended, all, got 'most'"),
        ({"threads": 0}, InputError, "threads: expected a whole number of at least 1, got 0"),
        ({"target": "cuda"}, TargetError, "target 'cuda': expected 'llvm' first, got 'cuda'"),
        ({"disabled_pass": ["inline"]}, InputError, "expected the name of a pass or rule, got 'inline'"),
    ],
)
def test_wrong_options(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tilewright.compile(perceptron(), **options)


def test_wrong_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a path, bytes or an"):
        tilewright.compile(3)
    with pytest.raises(ModelError, match=r"nowhere\.onnx"):
        tilewright.compile(tmp_path / "nowhere.onnx")
    with pytest.raises(ModelError, match="not an ONNX model"):
        tilewright.compile(b"\xff\xff\xff not a model")


def test_everything_unsupported_is_reported_at_once() -> None:
    steps = (("One", "x", "a"), ("Two", "a", "y"))
    nodes = [onnx.helper.make_node(op, [i], [o], domain="com.example") for op, i, o in steps]
    proto = model_of(nodes, {"x": [4]}, ["y"], domains={"com.example": 1})
    with pytest.raises(UnsupportedError, match=r"(?s)One.*Two"):
        tilewright.compile(proto)
