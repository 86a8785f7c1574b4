"""Measuring on one host: worker processes that build, one that runs, and what to do when one of them dies.

Candidates are built in groups on all builders; then they are timed one after the other in the runner while nothing else
of ours computes, in several visits to the whole group. A worker that a candidate kills is replaced; the candidate gets
a Failed.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import queue
import statistics
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.stopwatch import Stopwatch
from tilewright.autotune.measure.hostlock import HostLock
from tilewright.autotune.measure.inputs import FLAVOURS, Flavour
from tilewright.autotune.measure.noise_monitor import STORED
from tilewright.autotune.measure.process import WorkerGone, WorkerProcess
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.autotune.measure.worker import interleave_seconds
from tilewright.autotune.measure.worker_protocol import (
    Build,
    Built,
    Interleave,
    Job,
    MakeReference,
    Prepare,
    Subject,
    Time,
    Timed,
)
from tilewright.core.errors import InternalError

REFERENCE, BUILDING, RUNNING, WAITING = "naive results", "building candidates", "running candidates", "waiting"
"""What the time of a measurement goes into. Waiting: for other sessions on this host, and while it was disturbed."""

_GROUPS_A_BUILDER = 4
_FULL_EFFORT = 3
_TRIES = 2

Report = Callable[[int, MeasureResult], None]


@dataclass(frozen=True, slots=True)
class Batch:
    """Candidates of one subject, as texts of traces. ``limit``: a first sample slower than this stays the only one.
    ``rounds``: 0 to measure each by itself, else how many samples to take of each in turn."""

    subject: Subject
    traces: tuple[str, ...]
    config: EvaluatorConfig
    modules: tuple[str, ...] = ()
    limit: float | None = None
    rounds: int = 0


class _Seat:
    """A place for a worker. A dead one is replaced when the seat is next used."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = modules
        self.worker: WorkerProcess | None = None

    def sit(self) -> WorkerProcess:
        if self.worker is None or not self.worker.is_alive:
            self.vacate()
            self.worker = WorkerProcess(self._modules)
        return self.worker

    def vacate(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.kill()


class WorkerPool:
    """The workers of this process. ``builders``: how many build (0: one per core). ``modules``: imported by workers.

    Not reentrant: batches wait for each other. :meth:`abandon` may be called from another thread. ``stopwatch``: what
    the time of the batches went into.
    """

    def __init__(self, builders: int = 0, modules: Sequence[str] = (), lock: HostLock | None = None) -> None:
        self._count = builders or _cores()
        self._seats = [_Seat(modules) for _ in range(self._count)]
        self._runner = _Seat(modules)
        self._free: queue.SimpleQueue[_Seat] = queue.SimpleQueue()
        for seat in self._seats:
            self._free.put(seat)
        self._host = lock or HostLock()
        self._turn = threading.Lock()
        self.stopwatch = Stopwatch()
        self._stopped = False
        self._directory = tempfile.TemporaryDirectory(prefix="tilewright-", ignore_cleanup_errors=True)
        self._references: dict[str, tuple[Flavour, str] | Failed] = {}
        self._pool = ThreadPoolExecutor(self._count, "build")

    def pids(self) -> list[int]:
        """Process ids of the workers that are there."""
        return [s.worker.pid for s in (*self._seats, self._runner) if s.worker is not None]

    def measure(self, batch: Batch, report: Report | None = None) -> list[MeasureResult]:
        """A result for every candidate, in order; ``report`` gets each with its place as soon as it is known."""
        with self._turn:
            self._stopped = False
            say = report or _no_report
            reference = self._reference(batch)
            if isinstance(reference, Failed):
                results: list[MeasureResult] = [reference] * len(batch.traces)
                for i, result in enumerate(results):
                    say(i, result)
                return results
            run = self._in_turns if batch.rounds else self._one_by_one
            return run(batch, reference, say)

    def abandon(self) -> None:
        """Stop what is being measured: kill the workers, and fail what is left of the batch."""
        self._stopped = True
        for seat in (*self._seats, self._runner):
            if (worker := seat.worker) is not None:
                worker.interrupt()

    def close(self) -> None:
        """End all workers and delete what they kept."""
        self.abandon()
        with self._turn:
            self._pool.shutdown(wait=True)
            for seat in (*self._seats, self._runner):
                seat.vacate()
            self._directory.cleanup()

    # -- a batch -----------------------------------------------------------------------------------------------------
    def _one_by_one(self, batch: Batch, reference: tuple[Flavour, str], report: Report) -> list[MeasureResult]:
        """What takes no longer than the limit is visited again."""
        results: list[MeasureResult] = []
        limit = batch.limit
        config = batch.config
        part = replace(batch, config=config.of_a_visit())
        visits = part.config.visits
        for built in self._built_groups(batch, config.opt):
            begin = len(results)
            for b in built:
                result: MeasureResult = b if isinstance(b, Failed) else self._time(part, reference, b, limit)
                if isinstance(result, Ok):
                    is_slow = limit is not None and result.seconds > limit
                    result = replace(result, preliminary=visits > 1 and not is_slow)
                    if config.slow_factor:
                        limit = min(limit or math.inf, result.seconds * config.slow_factor)
                report(len(results), result)
                results.append(result)
            for visit in range(2, visits + 1):
                for i, b in enumerate(built, begin):
                    before = results[i]
                    if isinstance(b, Built) and isinstance(before, Ok) and before.preliminary:
                        found = self._time(part, reference, b, None, again=True)
                        results[i] = after = _after_visit(before, found, visit == visits)
                        if isinstance(after, Failed) or not after.preliminary:
                            report(i, after)
        return results

    def _in_turns(self, batch: Batch, reference: tuple[Flavour, str], report: Report) -> list[MeasureResult]:
        """Interleaved samples. If a candidate takes the runner down with it, each is measured by itself instead."""
        built = [b for group in self._built_groups(batch, _FULL_EFFORT) for b in group]
        fine = tuple(b for b in built if isinstance(b, Built))
        config = batch.config
        job = Interleave(fine, config, batch.rounds)
        seconds = config.timeout_s * max(1, len(fine)) + interleave_seconds(job)
        with self._holding(self._host.timing(), RUNNING):
            answer = self._run(batch, reference, job, seconds)
        self._note_waits(answer if isinstance(answer, list) else [])
        if isinstance(answer, Failed):
            alone = replace(batch, config=replace(config, repeat=batch.rounds, slow_factor=0.0), limit=None)
            results: list[MeasureResult] = [
                b if isinstance(b, Failed) else self._time(alone, reference, b, None) for b in built
            ]
        else:
            answers = iter(answer if isinstance(answer, list) else [])
            results = [b if isinstance(b, Failed) else _result(next(answers), b) for b in built]
        for i, result in enumerate(results):
            report(i, result)
        return results

    # -- building ----------------------------------------------------------------------------------------------------
    def _built_groups(self, batch: Batch, opt: int) -> Iterator[list[Built | Failed]]:
        """The candidates in groups, built; with ``overlap`` the next group is begun before this one is timed."""
        size = _GROUPS_A_BUILDER * self._count
        groups = [batch.traces[i : i + size] for i in range(0, len(batch.traces), size)]
        ahead: list[Future[Built | Failed]] = []
        for n, group in enumerate(groups):
            with self._holding(self._host.building() if not batch.config.overlap else nullcontext(), BUILDING):
                futures = ahead or self._start_builds(batch, group, opt)
                built = [f.result() for f in futures]
            if batch.config.overlap and n + 1 < len(groups):
                ahead = self._start_builds(batch, groups[n + 1], opt)
            yield built

    def _start_builds(self, batch: Batch, traces: Sequence[str], opt: int) -> list[Future[Built | Failed]]:
        config = batch.config
        jobs = [Build(batch.subject, t, opt) for t in traces]
        return [self._pool.submit(self._build, j, config.build_timeout_s, config.memory_bytes) for j in jobs]

    def _build(self, job: Build, timeout: float, memory: int | None) -> Built | Failed:
        seat = self._free.get()
        try:
            answer = self._ask(seat, lambda w: w.call(job, timeout, memory), FailureKind.COMPILE_TIMEOUT)
        finally:
            self._free.put(seat)
        if not isinstance(answer, (Built, Failed)):
            raise InternalError(f"a builder answered {answer!r}")
        return answer

    # -- running -----------------------------------------------------------------------------------------------------
    def _time(
        self, batch: Batch, reference: tuple[Flavour, str], built: Built, limit: float | None, again: bool = False
    ) -> MeasureResult:
        seconds = batch.config.timeout_s + STORED * batch.config.patience_s
        with self._holding(self._host.timing(), RUNNING):
            answer = self._run(batch, reference, Time(built, batch.config, limit, again), seconds)
        self._note_waits([answer])
        return _result(answer, built)

    @contextmanager
    def _holding(self, slot: AbstractContextManager[None], part: str) -> Iterator[None]:
        """The block has the slot of this host, and is a part of the time that measuring takes."""
        with ExitStack() as stack:
            with self.stopwatch.part(WAITING):
                stack.enter_context(slot)
            with self.stopwatch.part(part):
                yield

    def _note_waits(self, answers: Sequence[object]) -> None:
        """Some of what running took was waiting for the machine to be as fast as usual."""
        self.stopwatch.move(RUNNING, WAITING, sum(a.waited for a in answers if isinstance(a, Timed)))

    def _run(self, batch: Batch, reference: tuple[Flavour, str], job: Job, timeout: float) -> object:
        """The runner's answer to ``job``, with the subject's data in place."""

        def call(worker: WorkerProcess) -> object:
            if worker.prepared != batch.subject.key:
                worker.prepared = None
                failed = worker.call(Prepare(batch.subject, *reference), batch.config.reference_timeout_s)
                if isinstance(failed, Failed):
                    return failed
                worker.prepared = batch.subject.key
            return worker.call(job, timeout, batch.config.memory_bytes)

        return self._ask(self._runner, call, FailureKind.RUN_TIMEOUT)

    def _reference(self, batch: Batch) -> tuple[Flavour, str] | Failed:
        """What the naive schedule computes: made once a subject."""
        key = batch.subject.key
        if key not in self._references:
            made = self._make_reference(batch)
            if isinstance(made, Failed) and made.kind is FailureKind.WORKER_LOST:
                return made
            self._references[key] = made
        return self._references[key]

    def _make_reference(self, batch: Batch) -> tuple[Flavour, str] | Failed:
        seconds = batch.config.reference_timeout_s
        with self._holding(self._host.building(), REFERENCE):
            naive = self._build(Build(batch.subject, None, _FULL_EFFORT), seconds, None)
        if isinstance(naive, Failed):
            return replace(naive, message=f"naive schedule: {naive.message}")
        path = Path(self._directory.name) / batch.subject.key
        path.mkdir(exist_ok=True)
        job = MakeReference(batch.subject, naive, str(path))
        with self._holding(self._host.timing(), REFERENCE):
            answer = self._ask(self._runner, lambda w: w.call(job, seconds), FailureKind.RUN_TIMEOUT)
        if isinstance(answer, Failed):
            return replace(answer, message=f"naive schedule: {answer.message}")
        return next((f, str(path)) for f in FLAVOURS if f == answer)

    def _ask(self, seat: _Seat, call: Callable[[WorkerProcess], object], slow: FailureKind) -> object:
        """``call`` with the seat's worker. ``slow``: the kind of failure that a time-out is."""
        failed = Failed(FailureKind.WORKER_LOST, "measuring was interrupted")
        for _ in range(_TRIES):
            if self._stopped:
                break
            try:
                return call(seat.sit())
            except WorkerGone as e:
                seat.vacate()
                failed = _failure(e, slow)
                if failed.kind is not FailureKind.WORKER_LOST:
                    break
        return failed


def _failure(e: WorkerGone, slow: FailureKind) -> Failed:
    if e.timed_out:
        return Failed(slow, str(e))
    if e.for_lack_of_memory:
        return Failed(FailureKind.MEMORY, str(e))
    return Failed(FailureKind.WORKER_LOST if e.from_outside else FailureKind.CRASH, str(e))


def _result(answer: object, built: Built) -> MeasureResult:
    if isinstance(answer, Failed):
        return answer
    if not isinstance(answer, Timed):
        raise InternalError(f"the runner answered {answer!r}")
    return Ok(statistics.median(answer.samples), answer.samples, answer.error, built.seconds)


def _after_visit(before: Ok, visit: MeasureResult, last: bool) -> MeasureResult:
    """What is known of a candidate after one more visit. A failure counts (a race may show only once), unless it is the
    worker's."""
    if isinstance(visit, Failed):
        return visit if visit.kind.is_hard else replace(before, preliminary=False)
    seconds, error = min(before.seconds, visit.seconds), max(before.error, visit.error)
    return Ok(seconds, (*before.samples, *visit.samples), error, before.compile_seconds, not last)


def _no_report(_place: int, _result: MeasureResult) -> None:
    return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


@functools.cache
def _shared_workers(builders: int, modules: tuple[str, ...]) -> WorkerPool:
    """The workers of this process for jobs that come through an executor from elsewhere."""
    workers = WorkerPool(builders, modules)
    atexit.register(workers.close)
    return workers


def measure_batch(batch: Batch) -> list[MeasureResult]:
    """Measure a batch on this host. This is the function that executors run."""
    return _shared_workers(batch.config.builders, batch.modules).measure(batch)
