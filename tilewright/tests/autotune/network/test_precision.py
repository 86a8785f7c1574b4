"""precision="auto": what is measured decides, within the budget, and the log says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.autotune.network.mixed_precision import apart
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.precision import choose_precision
from tilewright.autotune.records.database import JSONDatabase
from tilewright.cli import main
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.tests.api.models import perceptron, saved

pytestmark = pytest.mark.skipif("avx512bf16" not in parse_target(None).enabled, reason="a CPU without vdpbf16ps")


def network() -> Graph:
    g = GraphBuilder("network")
    w = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32) / 8
    return g.build(g.op("Relu", g.op("MatMul", g.input("x", "float32", (40, 64)), w)))


def taking(fp32: float, bf16: float) -> Callable[[Mapping[str, Callable[[], object]], int], Mapping[str, float]]:
    def measure(contenders: Mapping[str, Callable[[], object]], threads: int) -> Mapping[str, float]:
        assert set(contenders) == {"fp32", "bf16"}
        assert threads >= 1
        return {"fp32": fp32, "bf16": bf16}

    return measure


@pytest.mark.parametrize(
    ("seconds", "budget", "wanted"),
    [((2.0, 1.0), 1e-2, "bf16"), ((2.0, 1.0), 1e-6, "fp32"), ((1.0, 1.0), 1e-2, "fp32"), ((1.0, 2.0), 1e-2, "fp32")],
)
def test_the_faster_within_the_budget(seconds: tuple[float, float], budget: float, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch()
    graph = network()
    with JSONDatabase(path) as log:
        o = TuneOptions(precision="auto", max_error=budget, threads=1, cache=False)
        assert choose_precision(graph, log, o, taking(*seconds)).precision == wanted
    _, line = (json.loads(x) for x in path.read_text("utf-8").splitlines())
    assert (line["kind"], line["implementation"]) == ("choice", wanted)
    assert line["seconds"] == {"fp32": seconds[0], "bf16": seconds[1]}
    assert 1e-4 < line["errors"]["bf16"] < 1e-2
    found = tilewright.compile(
        graph, precision="auto", database=path, threads=1, stop_after="lower", progress=False, cache=False
    )
    stored = {p.dtype for f in found.funcs.values() for p in f.params}
    assert (dtypes.bfloat16 in stored) == (wanted == "bf16")


def test_without_a_log_it_is_float32() -> None:
    graph = tilewright.compile(network(), precision="auto", stop_after="passes", progress=False)
    assert not any(v.dtype == dtypes.bfloat16 for v in graph.values.values())


def test_the_latest_choice_counts(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    with JSONDatabase(tmp_path / "log.jsonl") as log:
        o = TuneOptions(precision="auto", threads=1, cache=False)
        assert choose_precision(network(), log, o, taking(2.0, 1.0)).precision == "bf16"
        assert choose_precision(network(), log, o, taking(1.0, 2.0)).precision == "fp32"
        found = tilewright.compile(
            network(), precision="auto", database=log, threads=1, stop_after="lower", progress=False, cache=False
        )
        assert not any(p.dtype == dtypes.bfloat16 for f in found.funcs.values() for p in f.params)


def test_tune_goes_on_with_what_was_chosen(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    tilewright.tune(network(), precision="auto", database=path, time_budget_s=0.0, max_trials=0, threads=1)
    kinds = [json.loads(x).get("kind") for x in path.read_text("utf-8").splitlines()]
    assert kinds[:2] == ["define", "choice"]


def test_results_that_are_no_numbers_count_as_far_off() -> None:
    def build(scale: float) -> Graph:
        g = GraphBuilder("g")
        x = g.input("x", "float32", (3,))
        return g.build(g.op("Log", g.op("Mul", x, np.array(scale, np.float32))), g.op("ArgMax", x, axis=0))

    one, other = (tilewright.compile(build(s), progress=False) for s in (1.0, -1.0))
    feed = {"x": np.array([1, 2, 3], np.float32)}
    assert apart(one.run(feed), one.run(feed)) == 0.0
    assert apart(one.run(feed), other.run(feed)) == np.inf


def test_the_budget_is_a_number() -> None:
    with pytest.raises(InputError, match="max_error"):
        TuneOptions(max_error="small")  # type: ignore[arg-type]


def test_the_command_takes_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(perceptron(), tmp_path)
    path, samples = tmp_path / "log.jsonl", tmp_path / "x.npz"
    words = [
        "tune",
        str(model),
        "--log",
        str(path),
        "--precision",
        "auto",
        "--trials",
        "0",
        "--threads",
        "1",
        "--quiet",
    ]
    np.savez(samples, x=np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32))
    assert main([*words, "--calibration", str(samples), "--no-check", "--quiet"]) == 0
    assert "precision " in capsys.readouterr().out
    assert json.loads(path.read_text("utf-8").splitlines()[1])["kind"] == "choice"
    np.savez(samples, y=np.zeros(3))
    assert main([*words, "--calibration", str(samples)]) == 2
    assert "expected arrays ['x'], got ['y']" in capsys.readouterr().err
    (tmp_path / "none.onnx").write_text("hello")
    words[1] = str(tmp_path / "none.onnx")
    assert main([*words, "--calibration", str(samples)]) == 2
