"""Measuring through executors: threads, one that loses jobs, and a Dask cluster of two local processes."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.measure.measurer import LocalMeasurer
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.records.record import to_line
from tilewright.autotune.search.tuner import Budget, tune_task
from tilewright.tests.autotune.measure.measuring import FAULTS, QUICK, faulty, split, task


def shape(results: list[MeasureResult]) -> list[str]:
    """Results up to timing."""
    return [f"{o.kind}: {o.message}" if isinstance(o, Failed) else f"ok {o.error:.1e}" for o in results]


class Forgetful(Executor):
    """Loses the first ``losses`` jobs, in the two ways that executors have."""

    def __init__(self, losses: int) -> None:
        self.losses = losses

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.losses > 0:
            self.losses -= 1
            if self.losses % 2:
                future.cancel()
                future.set_running_or_notify_cancel()
            else:
                future.set_exception(OSError("the host is gone"))
        else:
            future.set_result([Ok(1.0, (1.0,), 0.0, 0.0)] * len(args[0].traces))
        return future


def test_a_lost_batch_is_sent_once_more() -> None:
    t = task()
    few = [split(t, 2), split(t, 3)]
    for losses in (0, 1):
        assert shape(LocalMeasurer(QUICK, Forgetful(losses)).measure(t, few)) == ["ok 0.0e+00"] * 2
    (first, _) = LocalMeasurer(QUICK, Forgetful(3)).measure(t, few)
    assert isinstance(first, Failed)
    assert first.kind is FailureKind.WORKER_LOST
    assert not LocalMeasurer(QUICK, Forgetful(3)).quarantined()


def test_many_are_sent_in_batches() -> None:
    t = task()
    seen: list[int] = []
    many = [split(t, n) for n in range(2, 22)]
    results = LocalMeasurer(QUICK, Forgetful(0)).measure(t, many, lambda i, _: seen.append(i))
    assert len(results) == 20
    assert sorted(seen) == list(range(20))


def some(t: Task) -> list[Any]:
    return [split(t, 2), faulty(t, "segfault"), split(t, 3), faulty(t, "wrong"), *(split(t, n) for n in range(4, 12))]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    t = task()
    with LocalMeasurer(QUICK, modules=[FAULTS]) as m:
        return shape(m.measure(t, some(t)))


def test_threads_give_the_same(expected: list[str]) -> None:
    t = task()
    with ThreadPoolExecutor(2) as pool:
        assert shape(LocalMeasurer(QUICK, pool, modules=[FAULTS]).measure(t, some(t))) == expected


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.filterwarnings("ignore")
def test_dask_gives_the_same(client: Any, expected: list[str]) -> None:
    t = task()
    m = LocalMeasurer(QUICK, client.get_executor(), modules=[FAULTS])
    assert shape(m.measure(t, some(t))) == expected


def records_of(measurer: LocalMeasurer) -> list[dict[str, Any]]:
    """What tuning a task leaves in a log, up to timing."""
    t = task()
    database = MemoryDatabase()
    tune_task(
        t, Space(t.func, t.target), measurer, strategy="random", database=database,
        training_set=TrainingSet(HeuristicModel()), budget=Budget(max_trials=12),
    )  # fmt: skip
    seen: dict[str, dict[str, Any]] = {}
    for r in database.records():  # the best few are measured again; which those are depends on timing
        line = json.loads(to_line(r))
        for timing in ("seconds", "samples", "compile_seconds", "time", "elapsed"):
            del line[timing]
        seen.setdefault(r.candidate, line)
    return list(seen.values())


@pytest.mark.filterwarnings("ignore")
def test_tuning_through_dask_leaves_the_same_records(client: Any) -> None:
    with LocalMeasurer(QUICK) as local:
        expected = records_of(local)
    assert len(expected) == 12
    remote = records_of(LocalMeasurer(QUICK, client.get_executor()))
    key = operator.itemgetter("candidate")
    assert sorted(remote, key=key) == sorted(expected, key=key)


@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_that_dies_is_replaced(client: Any) -> None:
    t = task()
    m = LocalMeasurer(QUICK, client.get_executor())
    before = set(client.run(os.getpid).values())
    os.kill(min(before), 9)
    results = m.measure(t, [split(t, n) for n in range(2, 20)])
    assert all(isinstance(o, Ok) for o in results), results
    client.wait_for_workers(2, timeout=60)
    after = set(client.run(os.getpid).values())
    assert min(before) not in after
