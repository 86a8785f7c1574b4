"""Seeds in child processes with limits of time and memory: a crash or a hang is the verdict of its seed alone.

Where onnxruntime crashes or hangs, the seed is run again without it. The time is the processor's, so that a busy
machine makes no hang; what waits for ever is ended later.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.tests.fuzz_graphs.check import Verdict, Ways, check_seed, shown_error
from tilewright.tests.fuzz_graphs.node import STAGE, Stage

MAX_SECONDS = 60.0
MAX_WAIT = 900.0
MAX_BYTES = 6 << 30
SEEDS_A_PROCESS = 150


@dataclass(slots=True, eq=False)
class _Worker:
    process: multiprocessing.process.BaseProcess
    pipe: multiprocessing.connection.Connection
    stage: Stage
    seed: int = -1
    since: float = 0.0
    spent: float = 0.0
    """The process' own seconds when the seed began."""
    done: int = field(default=0)

    def is_stuck(self) -> bool:
        return _own_seconds(self.process) - self.spent > MAX_SECONDS or time.monotonic() - self.since > MAX_WAIT


def _own_seconds(process: multiprocessing.process.BaseProcess) -> float:
    try:
        text = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    except OSError:
        return 0.0
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def run_seeds(
    seeds: Sequence[int], processes: int, ways: Ways = "some", operators: Sequence[str] = ()
) -> Iterator[tuple[int, Verdict]]:
    """The verdict of each seed, in the order in which they end."""
    left = list(reversed(seeds))
    workers = [_start(ways, operators) for _ in range(min(processes, len(seeds)))]
    try:
        for w in workers:
            _give(w, left)
        while any(w.seed >= 0 for w in workers):
            ready = multiprocessing.connection.wait([w.pipe for w in workers if w.seed >= 0], timeout=1.0)
            for k, w in enumerate(workers):
                if w.seed < 0:
                    continue
                if w.pipe in ready:
                    verdict = _receive(w)
                elif w.is_stuck():
                    verdict = Verdict("hang", f"longer than {MAX_SECONDS:.0f} s")
                else:
                    continue
                if verdict.kind in ("crash", "hang") and w.stage.shared.value == b"onnxruntime":
                    _stop(w)
                    seed = w.seed
                    w = workers[k] = _start(ways, operators)
                    _send(w, seed, alone=True)
                    continue
                yield w.seed, verdict
                w.done += 1
                if verdict.kind in ("crash", "hang") or w.done >= SEEDS_A_PROCESS:
                    _stop(w)
                    w = workers[k] = _start(ways, operators)
                _give(w, left)
    finally:
        for w in workers:
            _stop(w)


def _receive(w: _Worker) -> Verdict:
    try:
        return w.pipe.recv()
    except EOFError:
        w.process.join()
        code = w.process.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return Verdict("crash", f"the process ended with {name}")


def _give(w: _Worker, left: list[int]) -> None:
    if not left:
        w.seed = -1
        return
    _send(w, left.pop())


def _send(w: _Worker, seed: int, alone: bool = False) -> None:
    w.seed, w.since, w.spent = seed, time.monotonic(), _own_seconds(w.process)
    w.pipe.send((seed, alone))


def _start(ways: Ways, operators: Sequence[str]) -> _Worker:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    stage = Stage()
    process = context.Process(target=_serve, args=(theirs, stage, ways, tuple(operators)), daemon=True)
    process.start()
    theirs.close()
    return _Worker(process, ours, stage)


def _stop(w: _Worker) -> None:
    w.pipe.close()
    w.process.kill()
    w.process.join()


def _serve(pipe: multiprocessing.connection.Connection, stage: Stage, ways: Ways, operators: Sequence[str]) -> None:
    STAGE.shared = stage.shared
    warnings.simplefilter("ignore", RuntimeWarning)  # numpy's, of means of nothing and the like
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    while True:
        try:
            seed, alone = pipe.recv()
        except EOFError:
            return
        try:
            verdict, _ = check_seed(seed, ways, operators, alone)
        except Exception as e:  # noqa: BLE001 - whatever it is belongs to the seed
            verdict = Verdict("internal", f"while generating: {shown_error(e)}")
        pipe.send(verdict)
