"""Whatever a candidate does, it is recorded as its kind of failure, and the next one is measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, Ok
from tilewright.autotune.measure.measurer import LocalMeasurer
from tilewright.tests.autotune.measure.measuring import FAULTS, QUICK, faulty, split, task

KINDS = {
    "wrong": (FailureKind.WRONG_RESULT, "elements differ|is "),
    "spill": (FailureKind.WRONG_RESULT, "it wrote outside its outputs"),
    "segfault": (FailureKind.CRASH, "SIGSEGV"),
    "input": (FailureKind.CRASH, "SIGSEGV"),
    "exit": (FailureKind.CRASH, "status 3"),
    "killed": (FailureKind.WORKER_LOST, "SIGKILL"),
    "huge": (FailureKind.MEMORY, "out of memory"),
    "greedy": (FailureKind.MEMORY, "out of memory"),
    "llvm_greedy": (FailureKind.MEMORY, "out of memory"),
    "unknown": (FailureKind.COMPILE_ERROR, "ValueError: a fault in the code generator"),
}


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(QUICK, modules=[FAULTS]) as m:
        yield m


@pytest.mark.parametrize("fault", KINDS)
def test_kind(measurer: LocalMeasurer, fault: str) -> None:
    t = task()
    kind, words = KINDS[fault]
    result, after = measurer.measure(t, [faulty(t, fault), split(t, 4)])
    assert isinstance(result, Failed)
    assert result.kind is kind, result
    assert any(w in result.message for w in words.split("|")), result
    assert isinstance(after, Ok)


@pytest.mark.parametrize(
    ("fault", "kind"), [("hang", FailureKind.RUN_TIMEOUT), ("endless", FailureKind.COMPILE_TIMEOUT)]
)
def test_what_never_ends_is_ended(fault: str, kind: FailureKind) -> None:
    t = task()
    config = replace(QUICK, timeout_s=4.0, build_timeout_s=8.0)
    with LocalMeasurer(config, modules=[FAULTS]) as m:
        results = m.measure(t, [split(t, 2), faulty(t, fault), split(t, 4)])
        assert [o.kind if isinstance(o, Failed) else "ok" for o in results] == ["ok", kind, "ok"]
        assert m.measure(t, [faulty(t, fault)]) == [results[1]]


def test_hard_failures_are_not_tried_again(measurer: LocalMeasurer) -> None:
    t = task()
    bad = faulty(t, "wrong")
    (first,) = measurer.measure(t, [bad])
    before = measurer.quarantined()
    assert before
    pids = measurer.worker_pids()
    measurer.close()
    try:
        assert measurer.measure(t, [bad]) == [first]
    finally:
        assert measurer.quarantined() == before
    assert pids


def test_a_crash_among_those_measured_in_turns() -> None:
    t = task()
    with LocalMeasurer(QUICK, modules=[FAULTS]) as m:
        good, bad, wrong = m.remeasure(t, [split(t, 2), faulty(t, "segfault"), faulty(t, "wrong")], rounds=3)
    assert isinstance(good, Ok)
    assert len(good.samples) == 3
    assert isinstance(bad, Failed)
    assert bad.kind is FailureKind.CRASH
    assert isinstance(wrong, Failed)
    assert wrong.kind is FailureKind.WRONG_RESULT
