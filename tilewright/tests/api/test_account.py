"""What a model says of itself: profile, explain, dump."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.core.io.files import MARK
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.api.models import convolution, perceptron


@pytest.fixture(scope="module")
def model() -> tilewright.CompiledModel:
    return tilewright.compile(perceptron())


def test_profile(model: tilewright.CompiledModel) -> None:
    profile = model.profile({"x": np.ones((8, 32), np.float32)}, runs=2)
    assert len(profile.kernels) == len(model.plan.steps)
    first = profile.kernels[0]
    assert first.nodes == ("hidden", "bias", "relu")
    assert first.flops is not None
    assert first.flops >= 2 * 8 * 32 * 64
    assert first.bytes is not None
    assert first.bytes >= 4 * (8 * 32 + 32 * 64 + 8 * 64)
    assert profile.seconds == pytest.approx(sum(k.seconds for k in profile.kernels))
    text = str(profile)
    assert all(word in text for word in ("GFLOP/s", "GB/s", "%peak", "measured peaks", first.kernel))


def test_explain(model: tilewright.CompiledModel) -> None:
    text = model.explain()
    assert len(text.splitlines()[0]) < 100, "the CPU in a few words; its features are in the account"
    for part in ("target:", "build time:", "graph passes", "plan: 2 native kernel calls", "hidden+bias+relu"):
        assert part in text
    assert [name for name, _ in model.timings] == ["import", "passes", "fuse", "lower and pack", "kernels", "link"]


def test_dump(tmp_path: Path) -> None:
    model = tilewright.compile(perceptron())
    paths = model.dump(tmp_path / "stages")
    lines = {p.name: p.read_text().splitlines(keepends=True) for p in paths}
    assert {x[0][2:] for x in lines.values()} == {f"{MARK}\n"}
    texts = {name: "".join(x[1:]) for name, x in lines.items()}
    assert sorted(texts) == sorted(p.name for p in (tmp_path / "stages").iterdir())
    graph = tilewright.compile(perceptron(), stop_after="passes")
    assert print_graph(parse_graph(texts["2_passes.txt"], constants_of(graph))) == texts["2_passes.txt"]
    fused = tilewright.compile(perceptron(), stop_after="fuse")
    assert print_graph(parse_graph(texts["3_fused.txt"], constants_of(fused))) == texts["3_fused.txt"]
    for stage in ("5_k0", "7_k0", "8_k0"):
        (name,) = (n for n in texts if n.startswith(stage))
        assert str(parse_func(texts[name])) == texts[name]
    (trace,) = (n for n in texts if n.startswith("6_k0"))
    assert tilewright.Trace.from_text(texts[trace]).to_text() == texts[trace]
    assert any(n.endswith(".ll") and "define void" in t for n, t in texts.items())
    assert any(n.endswith(".s") and ".text" in t for n, t in texts.items())


def test_a_second_build_comes_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    x = np.random.default_rng(0).standard_normal((1, 3, 20, 20)).astype(np.float32)
    first = tilewright.compile(convolution(20))
    second = tilewright.compile(convolution(20))
    assert ", compiled, " in first.explain()
    assert ", compiled, " not in second.explain()
    assert "object cache" in second.explain()
    np.testing.assert_array_equal(first.run({"x": x})["y"], second.run({"x": x})["y"])
