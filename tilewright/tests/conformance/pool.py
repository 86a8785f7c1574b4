"""Runs cases in worker processes, so that one that crashes or hangs costs only itself."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from tilewright.tests.conformance.cases import Case
from tilewright.tests.conformance.runner import run_case

SECONDS_PER_CASE = 60.0
SECONDS_PER_NETWORK = 300.0
_CASES_PER_WORKER = 400


@dataclass(slots=True)
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    done: int = 0
    case: str = ""
    since: float = 0.0


def run_all(
    cases: Mapping[str, Case],
    jobs: int,
    on_result: Callable[[str, str, float], None] = lambda name, text, seconds: None,
    run: Callable[[Case], str] = run_case,
) -> dict[str, str]:
    """The result of every case. ``on_result`` gets name, result and seconds as they come; ``run`` runs one."""
    todo = sorted(cases, key=lambda n: n.startswith("light/"), reverse=True)[::-1]
    results: dict[str, str] = {}
    workers: list[_Worker] = []
    while todo or any(w.case for w in workers):
        while todo and len([w for w in workers if w.case]) < jobs:
            worker = next((w for w in workers if not w.case and w.done < _CASES_PER_WORKER), None)
            if worker is None:
                for old in [w for w in workers if not w.case]:
                    _stop(old)
                    workers.remove(old)
                worker = _start(cases, run)
                workers.append(worker)
            worker.case, worker.since = todo.pop(), time.monotonic()
            worker.pipe.send(worker.case)
        busy = [w for w in workers if w.case]
        ready = wait([w.pipe for w in busy], timeout=1.0)
        for w in busy:
            text = _result_of(w, w.pipe in ready)
            if text is None:
                continue
            results[w.case] = text
            on_result(w.case, text, time.monotonic() - w.since)
            w.case = ""
            w.done += 1
        workers = [w for w in workers if w.process.is_alive()]
    for w in workers:
        _stop(w)
    return results


def _result_of(w: _Worker, ready: bool) -> str | None:
    """What the worker says, or that it died or took too long (then it is ended); None if it still works."""
    if ready:
        try:
            return str(w.pipe.recv())
        except EOFError:
            w.process.join(10)
            return f"failing: the process ended with exit code {w.process.exitcode}"
    limit = SECONDS_PER_NETWORK if w.case.startswith("light/") else SECONDS_PER_CASE
    if time.monotonic() - w.since > limit:
        w.process.kill()
        w.process.join(10)
        return f"failing: not done in {limit:.0f} seconds"
    return None


def _start(cases: Mapping[str, Case], run: Callable[[Case], str]) -> _Worker:
    """A worker forked off this process, which has the cases in memory and runs no threads of its own."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, ours, cases, run), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _stop(w: _Worker) -> None:
    w.pipe.close()
    w.process.join(5)
    if w.process.is_alive():
        w.process.kill()
        w.process.join(5)


def _work(pipe: Connection, other: Connection, cases: Mapping[str, Case], run: Callable[[Case], str]) -> None:
    other.close()
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the life of the worker
    while True:
        try:
            name = pipe.recv()
        except EOFError:
            return
        pipe.send(run(cases[name]))


def shard(names: Sequence[str], k: int, n: int) -> list[str]:
    """Part ``k`` of ``n`` of the cases."""
    return sorted(names)[k::n]
