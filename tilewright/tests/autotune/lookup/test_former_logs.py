"""``former_log.txt`` was written by the last version for which kernels at other places of larger values were other
workloads (7a9b1f9, November 2026): builds and the tuner find what it says of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.lookup.apply_best import ChosenSchedules, choose_schedules, ranked_schedules
from tilewright.autotune.lookup.implementations import find_tunable, recorded_implementations
from tilewright.autotune.lookup.workloads import kernel_of_node, networks_of, workloads_of
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.record import Choice, Record, Verdict
from tilewright.autotune.search.tuner import TaskTuner
from tilewright.lowering.plan import LoweredModel, fuse_and_lower
from tilewright.runtime.coverage import Status

LOG = JSONDatabase(Path(__file__).parent / "former_log.txt")
TARGET = LOG.targets()[0]
LINES = tuple(LOG.lines())
LEFT, RIGHT = "cd68832a", "3755b235"


def joined_branches(size: int = 24) -> onnx.ModelProto:
    """Two equal convolutions that are joined in place, and one over the joined value with a border."""
    rng = np.random.default_rng(0)
    shapes = {"squeeze": (8, 3, 1, 1), "left": (8, 8, 1, 1), "right": (8, 8, 1, 1), "last": (32, 16, 3, 3)}
    weights = {k: rng.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "squeeze"], ["s"], "squeeze"),
        helper.make_node("Relu", ["s"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "left"], ["a"], "left"),
        helper.make_node("Conv", ["r", "right"], ["b"], "right"),
        helper.make_node("Concat", ["a", "b"], ["joined"], "join", axis=1),
        helper.make_node("Conv", ["joined", "last"], ["y"], "last", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes, "joined_branches", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, size, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 32, size, size))],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def lowered(size: int = 24) -> LoweredModel:
    return tilewright.compile(joined_branches(size), target=TARGET, stop_after="lower", cache=False)


def chosen(model: LoweredModel, *lines: object) -> tuple[ChosenSchedules, str]:
    """With what records of this machine say; the kernel of the joined convolutions."""
    return choose_schedules(model, TARGET, MemoryDatabase(lines), "exact"), kernel_of_node(model)["left"]  # type: ignore[arg-type]


def of(*hashes: str) -> list[Record]:
    return [x for x in LINES if isinstance(x, Record) and x.workload.hash[:8] in hashes]


def test_the_log_has_them_as_two_workloads_and_today_they_are_one() -> None:
    model = lowered()
    kernel = kernel_of_node(model)["left"]
    assert kernel_of_node(model)["right"] == kernel
    workload = workloads_of(model)[kernel]
    assert [f.hash[:8] for f in workload.former] == [LEFT, RIGHT]
    assert {workload.hash} != workload.hashes()
    assert {x.network for x in LINES if not isinstance(x, Record)} == {networks_of(model)[1]}


@pytest.mark.parametrize("place", [(LEFT,), (RIGHT,), (LEFT, RIGHT)])
def test_its_measurements_are_hits(place: tuple[str, ...]) -> None:
    records = of(*place)
    best = min((r for r in records), key=lambda r: r.seconds or 0.0)
    found, kernel = chosen(lowered(), *records)
    assert (found.tuning[kernel].status, found.tuning[kernel].seconds) == (Status.HIT, best.seconds)
    assert found.traces[kernel] == best.trace
    found.traces[kernel].apply(found.funcs[kernel])


def test_the_latest_of_former_and_new_measurements_of_a_candidate_counts() -> None:
    model = lowered()
    (best, *_) = sorted(of(LEFT), key=lambda r: r.seconds or 0.0)
    workload = workloads_of(model)[kernel_of_node(model)["left"]]
    slow = dataclasses.replace(best, workload=workload, seconds=1.0, time=best.time + 1)
    wrong = dataclasses.replace(best, workload=workload, seconds=None, failure="wrong_result", time=best.time - 1)
    for line in (slow, wrong):
        found, kernel = chosen(model, *of(LEFT), line)
        assert kernel not in found.traces
        assert found.tuning[kernel].reason.startswith("the default is the best found")


@pytest.mark.parametrize("helps", [True, False])
def test_its_verdicts_count_in_the_network_that_it_names(helps: bool) -> None:
    """``squeeze`` is the same workload in the log and today, ``left`` is not."""
    verdicts = [dataclasses.replace(x, helps=helps) for x in LINES if isinstance(x, Verdict)]
    model = lowered()
    records = [x for x in LINES if isinstance(x, Record)]
    found, left = chosen(model, *records, *verdicts)
    for kernel in (left, kernel_of_node(model)["squeeze"]):
        assert (kernel in found.traces) is helps
        assert found.tuning[kernel].reason.startswith("default kept") is not helps
    elsewhere = [dataclasses.replace(v, network="0") for v in verdicts]
    found, left = chosen(model, *records, *elsewhere)
    assert left in found.traces


def test_its_choices_of_implementations_count() -> None:
    graph = tilewright.compile(joined_branches(), target=TARGET, stop_after="passes")
    model = fuse_and_lower(graph, TARGET)
    (option,) = (o for o in find_tunable(graph, model, TARGET) if o.node == "last")
    (choice,) = (x for x in LINES if isinstance(x, Choice))
    other = next(name for name in option.workloads if name != option.own)
    database = MemoryDatabase([dataclasses.replace(choice, implementation=other)])
    assert recorded_implementations([option], TARGET, database, networks_of(model)) == {"last": other}
    assert recorded_implementations([option], TARGET, database, networks_of(model)[:1]) == {}


def test_other_sizes_are_near_misses() -> None:
    model = lowered(20)
    kernel = kernel_of_node(model)["right"]
    found = choose_schedules(model, TARGET, MemoryDatabase(of(RIGHT)), "any", "replay")
    assert found.tuning[kernel].status is Status.NEAR_MISS
    assert found.tuning[kernel].reason.startswith("tuned for other sizes (24 -> 20, 26 -> 22, 576 -> 400); replayed")


def test_the_tuner_takes_them_as_measured() -> None:
    model = lowered()
    kernel = kernel_of_node(model)["left"]
    (a, b) = (sum(r.workload.hash.startswith(h) for r in LINES if isinstance(r, Record)) for h in (LEFT, RIGHT))
    task = Task(canonical(model.funcs[kernel]), TARGET, former=workloads_of(model)[kernel].former)
    tuner = TaskTuner(task, Space(task.func, TARGET), TableMeasurer({}), database=LOG)
    assert len(tuner.history.trials) == a + b - 1 == 3  # the default is in both
    assert all(t.recorded for t in tuner.history.trials)
    (ranked,) = ranked_schedules(model, TARGET, LOG, 1, [kernel])
    assert ranked.candidates[kernel] == min(of(LEFT, RIGHT), key=lambda r: r.seconds or 0.0).candidate


def test_a_former_record_that_cannot_be_used_says_why() -> None:
    (best, *_) = sorted(of(LEFT), key=lambda r: r.seconds or 0.0)
    steps = ({"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}},)
    broken = dataclasses.replace(best, steps=steps, candidate="broken", seconds=1e-9)
    found, kernel = chosen(lowered(), broken)
    assert found.tuning[kernel].status is Status.MISS
    assert found.tuning[kernel].reason.startswith("its record does not replay: step 1 of 1: split")
    elsewhere = dataclasses.replace(best, target=dataclasses.replace(TARGET, cpu="another"))
    found, kernel = chosen(lowered(), elsewhere)
    assert found.tuning[kernel].reason == "tuned only on another machine, which policy 'exact' leaves out"
    named = dataclasses.replace(best, function=best.workload.text.replace("x0", "image"))
    found, kernel = chosen(lowered(), named)
    assert found.tuning[kernel].reason == "its record names another function"
    found, kernel = chosen(lowered(), broken, *of(LEFT))
    assert found.traces[kernel] == best.trace
    assert "; 1 passed over: its record does not replay: step 1 of 1: split" in found.tuning[kernel].reason
