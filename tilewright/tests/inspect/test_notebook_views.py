"""What notebooks show of a graph, a schedule, a profile, a coverage and a tuning result: the facts, and nothing of them
taken for HTML."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.autotune.base.measure_result import Failed, FailureKind
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import tune_model
from tilewright.autotune.search.tuner import Budget, TaskTuner, tune_task
from tilewright.codegen.detect_cpu import detect_host
from tilewright.runtime.coverage import Coverage, CoverageRow, Status
from tilewright.runtime.profile import KernelTime, Peaks, Profile
from tilewright.tests.api.models import perceptron
from tilewright.tests.autotune.records.log_helper import dense
from tilewright.tests.html_checker import checked

EVIL = "<script>alert(1)</script>"


def view(shown: Any) -> str:
    """The text of what a notebook shows."""
    made = shown._repr_html_()
    assert EVIL not in made
    return checked(made)


def evil_model() -> onnx.ModelProto:
    """A model whose names are HTML."""
    nodes = [
        helper.make_node("Relu", [EVIL], ["r"], f"relu {EVIL}"),
        helper.make_node("Concat", ["r", "r"], ["y"], "join", axis=0),
    ]
    x = helper.make_tensor_value_info(EVIL, TensorProto.FLOAT, ["n", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return helper.make_model(
        helper.make_graph(nodes, EVIL, [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )


def slow(candidate: Any) -> float:
    return 1e-6 * len(candidate.trace.steps)


def test_graph() -> None:
    text = view(tilewright.compile(evil_model(), stop_after="import"))
    for part in (f"graph {EVIL}", "2 nodes", "float32[n, 3]", f"relu {EVIL}", "Concat", "axis=0"):
        assert part in text
    assert view(tilewright.load_graph(evil_model())) == text


def test_fused_graph_says_which_nodes_are_one_kernel() -> None:
    fused = tilewright.compile(perceptron(), stop_after="fuse")
    text = view(fused)
    assert f"{len(fused.groups)} groups" in text
    assert all(g.name[:59] in text for g in fused.groups)


def test_attributes_that_are_arrays_or_graphs_are_named_only() -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["b"])], "body", [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
    )  # fmt: skip
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.5])
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"], "fill", value=value),
        helper.make_node("If", ["p"], ["i"], "branch", then_branch=body, else_branch=body),
    ]
    inputs = [
        helper.make_tensor_value_info(*known)
        for known in (("s", TensorProto.INT64, [1]), ("p", TensorProto.BOOL, []), ("x", TensorProto.FLOAT, [2]))
    ]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("c", "i")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    text = view(tilewright.load_graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])))
    assert "value=float32[1]" in text
    assert "else_branch=a graph of 1 nodes" in text


def test_schedule_and_trace() -> None:
    s = tilewright.Schedule(dense())
    (block,) = s.blocks()[:1]
    s.unroll(s.split(s.loops(block)[0], (None, 2))[1])
    text = view(s)
    assert str(s).strip() in text
    assert "unrolled" in text
    assert "2 steps" in text
    assert str(s.trace) in text + "\n"
    assert '<span class="kind">unrolled</span>' in s._repr_html_()
    assert view(s.trace).endswith(str(s.trace).rstrip("\n"))


PROFILE = Profile(
    (
        KernelTime("small", ("a",), 1e-6, 1000, 2000, False),
        KernelTime(EVIL, ("b", "c"), 3e-6, 60_000, 100, True),
        KernelTime("unknown", (), 0.0, None, None, True),
    ),
    Peaks(40e9, 10e9),
)


def test_profile() -> None:
    text = view(PROFILE)
    assert text.index(EVIL) < text.index("small")
    for part in ("3 kernel calls, 4.0 us", "measured peaks: 40.0 GFLOP/s, 10.0 GB/s", "b, c", "75.0"):
        assert part in text
    assert "width:75.0%" in PROFILE._repr_html_()
    assert "measured peaks" not in view(dataclasses.replace(PROFILE, peaks=None))


def test_shares_beyond_a_peak_are_doubted() -> None:
    assert PROFILE.doubts() == []
    (doubt,) = dataclasses.replace(PROFILE, peaks=Peaks(19e9, 10e9)).doubts()  # one at 20 Gop/s
    assert doubt.startswith("1 kernel computes more than 100 % of the peak: the peaks look as if they were measured on")
    for text in (str(busy := dataclasses.replace(PROFILE, peaks=Peaks(0.9e9, 1e9))), view(busy)):
        assert "2 kernels compute more than 100 % of the peak" in text
        assert "tilewright doctor" in text
        assert "more than memory delivers" not in text, "said of the first once"
    (cached,) = dataclasses.replace(PROFILE, peaks=Peaks(40e9, 1.9e9)).doubts()  # one reads 2 GB/s
    assert cached.startswith("1 kernel reads more than memory delivers (100 %): operands were in caches, or")
    assert dataclasses.replace(PROFILE, peaks=Peaks(20e9, 2e9)).doubts() == [], "100 % is no more than 100 %"
    words = dataclasses.replace(PROFILE, kernels=(KernelTime("k", (), 1e-6, 60_000, 1, False, "dot4"),))
    assert words.doubts()
    assert not dataclasses.replace(words, peaks=Peaks(40e9, 10e9, {"dot4": 80e9})).doubts()


def test_rows_of_a_profile() -> None:
    small, evil, unknown = PROFILE.to_dicts()
    assert (small["kernel"], evil["nodes"], evil["parallel"]) == ("small", "b, c", True)
    assert evil["gflops"] == pytest.approx(20.0)
    assert evil["share_of_peak"] == pytest.approx(0.5)
    assert (unknown["gflops"], unknown["share_of_peak"], unknown["flops"]) == (None, None, None)


COVERAGE = Coverage(
    (CoverageRow("a", 2, Status.HIT, "12.3 us", 0.8), CoverageRow("b", 1, Status.MISS, EVIL, 0.2)), "measured"
)


def test_coverage() -> None:
    text = view(COVERAGE)
    for part in ("80.0 % tuned", EVIL, "1 hit (80.0 % of run time)", "run time measured"):
        assert part in text
    assert COVERAGE.to_dicts()[1] == {"kernel": "b", "calls": 1, "status": "miss", "reason": EVIL, "share": 0.2}
    assert "100.0 % tuned" in view(Coverage((), "measured"))
    tenths = Coverage(tuple(CoverageRow(str(i), 1, Status.HIT, "", 0.1) for i in range(10)), "measured")
    assert (tenths.tuned, tenths.share(Status.MISS)) == (1.0, 0.0), "though tenths do not add up to 1"


def test_result_of_a_task() -> None:
    task = Task(dense(), detect_host(), name=EVIL)
    measurer = TableMeasurer(slow)
    result = tune_task(task, Space(task.func, task.target), measurer, strategy="random", budget=Budget(max_trials=6))
    assert result.best is not None
    text = view(result)
    for part in (EVIL, result.stopped, f"{result.best.seconds * 1e6:,.1f} us", result.best.candidate.trace.to_text()):
        assert part.strip() in text
    rows = result.to_dicts()
    assert [r["number"] for r in rows] == [t.number for t in result.trials]
    assert rows[-1]["best"] == min(t.seconds for t in result.trials)
    assert sum(bool(r["is_best"]) for r in rows) == 1
    assert set(result.trials[0].candidate.values()) <= rows[0].keys()


def test_failed_trials_have_no_time() -> None:
    task = Task(dense(), detect_host())
    tuner = TaskTuner(
        task, Space(task.func, task.target), TableMeasurer(lambda c: Failed(FailureKind.CRASH, "no")), seed=1
    )
    tuner.step(3)
    result = tuner.result("done")
    assert [(r["seconds"], r["best"]) for r in result.to_dicts()] == [(None, None)] * 3
    assert all(r["failure"] for r in result.to_dicts())
    assert "failed" in view(result)


def test_result_of_a_model() -> None:
    options = TuneOptions(time_budget_s=None, max_trials=4, check_network=False, sizes={"batch": 4})
    done = tune_model(perceptron(), measurer=TableMeasurer(slow), options=options)
    text = view(done)
    assert f"{done.result.trials} trials in" in text
    assert str(done.account()) in text
    assert "% tuned" in text
    assert len(done.result.to_dicts()) == sum(len(t.trials) for t in done.result.tasks)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = PROFILE.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["kernel"]) == ["small", EVIL, "unknown"]
    assert np.isnan(frame["share_of_peak"].iloc[2])
    assert list(COVERAGE.to_dataframe()["status"]) == ["hit", "miss"]
