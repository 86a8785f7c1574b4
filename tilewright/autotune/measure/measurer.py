"""Measurers: candidates in, results out. A real one on worker processes, and a table for tests and for research.

Whatever a candidate does, the answer is an :class:`~tilewright.autotune.base.measure_result.MeasureResult`. A candidate
that failed by its own fault is in quarantine: it is not built or run again by the same measurer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.autotune.measure.worker_pool import Batch, Report, WorkerPool, measure_batch
from tilewright.autotune.measure.worker_protocol import Subject
from tilewright.core.errors import InputError
from tilewright.schedule.trace import Trace

_REMOTE_BATCH = 8
_TRIES = 2


class Measurable(Protocol):
    """What a measurer needs of a candidate."""

    @property
    def trace(self) -> Trace: ...

    @property
    def key(self) -> str: ...


class Measurer(Protocol):
    """Measures candidates of a task."""

    def measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None = None
    ) -> list[MeasureResult]:
        """A result for each candidate, in order. ``on_result(place, result)`` is called, in the caller's thread,
        as soon as each is known, and again after one that was preliminary."""
        ...

    def remeasure(self, task: Task, candidates: Sequence[Measurable], rounds: int) -> list[MeasureResult]:
        """The candidates measured in turns, ``rounds`` samples each, compiled as a build compiles them."""
        ...


@dataclass(frozen=True, slots=True)
class _Case:
    """What quarantine is about: a schedule of a workload at sizes on a target."""

    workload: str
    dims: tuple[tuple[str, int], ...]
    target: str
    candidate: str


class LocalMeasurer:
    """Measures on this machine, or wherever ``executor`` runs things (:class:`concurrent.futures.Executor`, for example
    a Dask cluster's ``Client.get_executor()``); there a host times one candidate at a time, too.

    ``modules``: imported by the workers first, for primitives of a user's own. ``seed`` draws the input arrays.
    Close it, or use it in a ``with`` statement; the workers of other processes leave by themselves.
    """

    def __init__(
        self, config: EvaluatorConfig | None = None, executor: Executor | None = None, modules: Sequence[str] = (),
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.config = config or EvaluatorConfig()
        self._modules = tuple(modules)
        self._seed = seed
        self._remote = executor
        self._quarantine: dict[_Case, Failed] = {}
        self._best: dict[str, float] = {}
        self._subjects: dict[int, tuple[Task, Subject]] = {}
        self._workers = WorkerPool(self.config.builders, self._modules) if executor is None else None
        self._own = ThreadPoolExecutor(1, "measure") if executor is None else None

    def __enter__(self) -> LocalMeasurer:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers of this process."""
        if self._workers is not None:
            self._workers.close()
        if self._own is not None:
            self._own.shutdown(wait=True)

    def quarantined(self) -> int:
        """How many candidates will not be measured again."""
        return len(self._quarantine)

    def spent(self) -> Mapping[str, float]:
        """Seconds of this process' workers so far, by what they went into; empty with an executor."""
        return {} if self._workers is None else self._workers.stopwatch.seconds

    def worker_pids(self) -> list[int]:
        """Process ids of the workers of this process."""
        return [] if self._workers is None else self._workers.pids()

    def measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None = None
    ) -> list[MeasureResult]:
        """As the protocol says. A KeyboardInterrupt kills what is running and goes on to the caller."""
        return self._measure(task, candidates, on_result, 0)

    def remeasure(self, task: Task, candidates: Sequence[Measurable], rounds: int) -> list[MeasureResult]:
        """As the protocol says."""
        if rounds < 1:
            raise InputError(f"remeasure: rounds must be >= 1, got {rounds}")
        return self._measure(task, candidates, None, rounds)

    # -- one call ----------------------------------------------------------------------------------------------------
    def _measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None, rounds: int
    ) -> list[MeasureResult]:
        subject = self._subject(task)
        cases = [_Case(task.workload, subject.dims, task.target.key(), c.key) for c in candidates]
        found: dict[int, MeasureResult] = {}

        def note(place: int, result: MeasureResult) -> None:
            if place in found and not (isinstance(known := found[place], Ok) and known.preliminary):
                return
            found[place] = result
            if isinstance(result, Failed) and result.kind.is_hard:
                self._quarantine.setdefault(cases[place], result)
            elif isinstance(result, Ok) and not rounds:
                self._best[subject.key] = min(result.seconds, self._best.get(subject.key, result.seconds))
            if on_result is not None:
                on_result(place, result)

        waiting: list[int] = []
        for i, case in enumerate(cases):
            if case in self._quarantine:
                note(i, self._quarantine[case])
            else:
                waiting.append(i)
        if waiting:
            traces = [candidates[i].trace.to_text() for i in waiting]
            self._send(subject, traces, rounds, lambda place, result: note(waiting[place], result))
        return [found[i] for i in range(len(candidates))]

    def _subject(self, task: Task) -> Subject:
        known = self._subjects.get(id(task))
        if known is None:
            dims = tuple((d, int(task.dims[d])) for d in task.func.dims)
            text = str(task.func)
            subject = Subject(text, task.target, dims, self._seed, task.streamed, task.footprint)
            known = self._subjects[id(task)] = (task, subject)
        return known[1]

    def _batch(self, subject: Subject, traces: Sequence[str], rounds: int) -> Batch:
        best = self._best.get(subject.key)
        factor = self.config.slow_factor
        limit = best * factor if best is not None and factor else None
        return Batch(subject, tuple(traces), self.config, self._modules, limit, rounds)

    def _send(self, subject: Subject, traces: Sequence[str], rounds: int, note: Report) -> None:
        if self._remote is not None:
            self._send_to(self._remote, subject, traces, rounds, note)
        elif self._own is not None and self._workers is not None:
            _stream(self._own, self._workers, self._batch(subject, traces, rounds), note)

    def _send_to(self, executor: Executor, subject: Subject, traces: Sequence[str], rounds: int, note: Report) -> None:
        """In batches; one that its executor loses is sent once more."""
        size = len(traces) if rounds else _REMOTE_BATCH
        todo = [range(len(traces))[i : i + size] for i in range(0, len(traces), size)]
        sent: dict[Future[list[MeasureResult]], tuple[range, int]] = {}

        def send(places: range, tries: int) -> None:
            batch = self._batch(subject, [traces[i] for i in places], rounds)
            sent[executor.submit(measure_batch, batch)] = (places, tries)

        for places in todo:
            send(places, 1)
        while sent:
            done, _ = wait(sent, return_when=FIRST_COMPLETED)
            for future in done:
                places, tries = sent.pop(future)
                error = None if future.cancelled() else future.exception()
                if error is None and not future.cancelled():
                    for place, result in zip(places, future.result(), strict=True):
                        note(place, result)
                elif tries < _TRIES:
                    send(places, tries + 1)
                else:
                    reason = "the executor cancelled it" if error is None else f"{type(error).__name__}: {error}"
                    for place in places:
                        note(place, Failed(FailureKind.WORKER_LOST, reason))


def _stream(own: ThreadPoolExecutor, workers: WorkerPool, batch: Batch, note: Report) -> None:
    """Measure in another thread, and pass each result on in this one as it comes."""
    results: SimpleQueue[tuple[int, MeasureResult] | None] = SimpleQueue()
    future = own.submit(workers.measure, batch, lambda place, result: results.put((place, result)))
    future.add_done_callback(lambda _: results.put(None))
    try:
        while (item := results.get()) is not None:
            note(*item)
    finally:
        if not future.done():
            workers.abandon()
        future.result()


class TableMeasurer:
    """Results from a table by candidate key, or from a function of the candidate; seconds stand for an Ok.

    ``asked`` lists the keys in the order in which they were measured. What the table lacks is ``illegal``.
    """

    def __init__(
        self, table: Mapping[str, float | MeasureResult] | Callable[[Measurable], float | MeasureResult]
    ) -> None:
        self._table = table
        self.asked: list[str] = []

    def measure(
        self, task: Task, candidates: Sequence[Measurable], on_result: Report | None = None
    ) -> list[MeasureResult]:
        """As the protocol says."""
        out: list[MeasureResult] = []
        for place, c in enumerate(candidates):
            self.asked.append(c.key)
            out.append(self._look_up(c, 1))
            if on_result is not None:
                on_result(place, out[-1])
        return out

    def remeasure(self, task: Task, candidates: Sequence[Measurable], rounds: int) -> list[MeasureResult]:
        """As the protocol says: the same value ``rounds`` times."""
        return [self._look_up(c, rounds) for c in candidates]

    def _look_up(self, candidate: Measurable, samples: int) -> MeasureResult:
        table = self._table
        value = table(candidate) if callable(table) else table.get(candidate.key)
        if value is None:
            return Failed(FailureKind.ILLEGAL, f"the table has no entry {candidate.key}")
        if isinstance(value, (Ok, Failed)):
            return value
        return Ok(float(value), tuple(itertools.repeat(float(value), samples)), 0.0, 0.0)


__all__ = ["EvaluatorConfig", "LocalMeasurer", "Measurable", "Measurer", "TableMeasurer"]
