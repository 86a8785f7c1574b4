"""Measurers that work: results, their order, what is kept, and workers that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate, Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import LocalMeasurer, TableMeasurer
from tilewright.autotune.measure.process import WorkerGone, WorkerProcess
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.autotune.measure.worker import naive
from tilewright.autotune.measure.worker_protocol import Build, Built, Subject
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError
from tilewright.schedule.primitives.loops.split import Split
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tests.autotune.measure.measuring import QUICK, matmul, split, task


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    with LocalMeasurer(QUICK) as m:
        yield m


def seconds(result: MeasureResult) -> float:
    assert isinstance(result, Ok), result
    return result.seconds


class TestTable:
    def test_answers(self) -> None:
        t = task()
        a, b, c = (split(t, n) for n in (2, 3, 4))
        failed = Failed(FailureKind.CRASH, "because")
        table = TableMeasurer({a.key: 2.0, b.key: failed})
        seen: list[tuple[int, MeasureResult]] = []
        assert table.measure(t, [a, b, c], lambda i, o: seen.append((i, o))) == [
            Ok(2.0, (2.0,), 0.0, 0.0), failed, Failed(FailureKind.ILLEGAL, f"the table has no entry {c.key}"),
        ]  # fmt: skip
        assert [i for i, _ in seen] == [0, 1, 2]
        assert table.asked == [a.key, b.key, c.key]
        assert table.remeasure(t, [a], 3) == [Ok(2.0, (2.0, 2.0, 2.0), 0.0, 0.0)]

    def test_a_function(self) -> None:
        t = task()
        assert seconds(TableMeasurer(lambda c: float(len(c.trace))).measure(t, [split(t, 2)])[0]) == 1.0


class TestLocal:
    def test_outcomes_in_order_and_as_they_come(self, measurer: LocalMeasurer) -> None:
        t = task()
        candidates = [Space(t.func, t.target).default(), *(split(t, n) for n in (2, 3, 4, 5, 6))]
        seen: list[tuple[int, MeasureResult]] = []
        results = measurer.measure(t, candidates, lambda i, o: seen.append((i, o)))
        assert list(dict(seen)) == list(range(6))
        assert dict(seen) == dict(enumerate(results)), "the last report of each is its result"
        for i, o in enumerate(results):
            assert isinstance(o, Ok)
            reports = [r for place, r in seen if place == i]
            assert [isinstance(r, Ok) and r.preliminary for r in reports] in ([True, False], [False])
            assert min(o.samples) <= o.seconds <= np.median(o.samples)
            assert o.compile_seconds > 0
            assert 0 <= o.error < 1e-4

    def test_the_fastest_visit_counts(self) -> None:
        t = task()
        config = EvaluatorConfig(repeat=4, visits=2, min_repeat_ms=0.1, slow_factor=0)
        with LocalMeasurer(config) as measurer:
            (o,) = measurer.measure(t, [split(t, 2)])
        assert isinstance(o, Ok)
        assert not o.preliminary
        visits = [np.median(o.samples[:2]), np.median(o.samples[2:])]
        assert o.seconds == pytest.approx(min(visits))

    def test_builds_may_overlap_with_timing(self) -> None:
        t = task()
        with LocalMeasurer(replace(QUICK, overlap=True)) as m:
            results = m.measure(t, [split(t, n) for n in range(2, 12)])
        assert [o for o in results if not isinstance(o, Ok)] == []

    def test_two_threads_and_cold_caches(self) -> None:
        config = replace(QUICK, enable_cpu_cache_flush=True, timeout_s=60.0)
        t = task(matmul(64, 64, 64), threads=2)
        with LocalMeasurer(config) as m:
            assert seconds(m.measure(t, [Space(t.func, t.target).default()])[0]) > 0

    def test_symbolic_dims(self, measurer: LocalMeasurer) -> None:
        a = placeholder("A", (var("n"), 5), dtypes.float32)
        func = build_func("f", [a], [compute("B", (var("n"), 5), lambda i, j: op("exp", a[i, j]))])
        t = Task(func, detect_host(), {"n": 33})
        assert seconds(measurer.measure(t, [Space(func, t.target).default()])[0]) > 0

    def test_illegal(self, measurer: LocalMeasurer) -> None:
        t = task()
        bad = Candidate((), Trace((Split("nowhere", (None, 2)),)), t.func)
        (result,) = measurer.measure(t, [bad])
        assert isinstance(result, Failed)
        assert result.kind is FailureKind.ILLEGAL
        assert "nowhere" in result.message

    def test_remeasure_keeps_raw_samples(self, measurer: LocalMeasurer) -> None:
        t = task()
        results = measurer.remeasure(t, [split(t, 2), split(t, 4)], rounds=5)
        assert [len(o.samples) for o in results if isinstance(o, Ok)] == [5, 5]
        with pytest.raises(InputError, match="rounds must be >= 1, got 0"):
            measurer.remeasure(t, [], 0)

    def test_nothing_to_do(self, measurer: LocalMeasurer) -> None:
        assert measurer.measure(task(), []) == []

    def test_an_interrupt_stops_and_the_measurer_goes_on(self) -> None:
        t = task()
        with LocalMeasurer(QUICK) as m:

            def interrupt(_place: int, _result: MeasureResult) -> None:
                raise KeyboardInterrupt

            many = [split(t, n) for n in range(2, 12)]
            with pytest.raises(KeyboardInterrupt):
                m.measure(t, many, interrupt)
            assert seconds(m.measure(t, many[:1])[0]) > 0

    def test_a_worker_killed_between_jobs_is_replaced(self, measurer: LocalMeasurer) -> None:
        t = task()
        measurer.measure(t, [split(t, 2)])
        before = measurer.worker_pids()
        assert before
        for pid in before:
            os.kill(pid, 9)
        assert seconds(measurer.measure(t, [split(t, 4)])[0]) > 0
        assert not set(before) & set(measurer.worker_pids())


class TestNaive:
    def test_it_computes_the_function(self) -> None:
        func = matmul(5, 6, 7)
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((7, 6)).astype(np.float32)
        np.testing.assert_allclose(build(naive(func))([a, b])[0], a @ b, rtol=1e-5, atol=1e-5)

    def test_threads_share_the_first_loop_with_work(self) -> None:
        a = placeholder("A", (1, 8, 3), dtypes.float32)
        func = build_func("f", [a], [compute("B", (1, 8, 3), lambda n, i, j: a[n, i, j] + 1.0)])
        kinds = [(s.extent.value(), s.kind) for s in walk(naive(func).body) if isinstance(s, Loop)]
        assert kinds == [(8, "parallel"), (3, "serial")]


class TestProcess:
    def test_a_worker_answers_and_is_killed_in_time(self) -> None:
        t = task()
        worker = WorkerProcess()
        subject = Subject(str(t.func), t.target, ())
        try:
            assert isinstance(worker.call(Build(subject, None, 1), 60), Built)
            with pytest.raises(WorkerGone, match="gave no answer in 0 s") as e:
                worker.call(Build(subject, None, 1), 0)
            assert e.value.timed_out
            assert not worker.is_alive
        finally:
            worker.kill()

    def test_a_module_that_is_missing(self) -> None:
        worker = WorkerProcess(["no_such_module_at_all"])
        with pytest.raises(WorkerGone, match="No module named 'no_such_module_at_all'"):
            worker.call(Build(Subject("", task().target, ()), None, 1), 60)

    def test_workers_leave_with_their_parent(self) -> None:
        """The parent is killed without a chance to clean up."""
        code = (
            "import os, time\n"
            "from tilewright.autotune.measure.process import WorkerProcess\n"
            "w = WorkerProcess()\n"
            "print(w.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=env) as parent:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
            parent.kill()
        for _ in range(600):
            if not _runs(pid):
                return
            time.sleep(0.1)
        pytest.fail(f"worker {pid} outlived its parent")


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_closing_ends_all_workers() -> None:
    before = threading.active_count()
    t = task()
    m = LocalMeasurer(QUICK)
    m.measure(t, [split(t, 2)])
    pids = m.worker_pids()
    m.close()
    m.close()
    assert pids
    assert not any(_runs(p) for p in pids)
    assert threading.active_count() <= before
