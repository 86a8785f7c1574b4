"""The program of a worker process: takes jobs from its standard input, answers on its standard output.

A worker is started fresh (never forked), keeps what it has loaded between jobs, and may be killed at any moment. It
leaves when its parent does, or when it has had nothing to do for long. A message is its length in eight bytes, then a
pickle.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import os
import pickle
import queue
import signal
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tilewright.autotune.base.measure_result import Failed, FailureKind
from tilewright.autotune.measure.accuracy import Tolerance, compare, tolerance_of
from tilewright.autotune.measure.bench import BURST, Entries, LoadedKernel, build_scheduled, cache_flusher
from tilewright.autotune.measure.guard_pages import locked_copy
from tilewright.autotune.measure.inputs import FLAVOURS, Flavour, make_inputs
from tilewright.autotune.measure.noise_monitor import NoiseMonitor, noise_monitor_of
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig, TimeEvaluator, evaluate
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
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.errors import ParseError, ScheduleError, TilewrightError
from tilewright.machine.target import Target
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import loops_around
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

HEADER = struct.Struct("<Q")
READY = "ready"
_IDLE_SECONDS = 600.0
_KEPT_FUNCTIONS = 8
_MAX_STREAMED = 96 << 20
_MIN_ROUNDS = 3
_HOPELESS = 2.0
_BUILD_ERRORS = (TilewrightError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError)


@dataclass(slots=True)
class _Prepared:
    """A subject with its data. ``inputs``: lists of arrays that runs use in turn, see ``LoadedKernel``."""

    subject: Subject
    func: Func
    dims: dict[str, int]
    inputs: list[list[np.ndarray]]
    expected: list[np.ndarray]
    tolerance: Tolerance


class Worker:
    """What one worker knows: functions it has parsed, the subject it has data for, entry code."""

    def __init__(self) -> None:
        self._funcs: OrderedDict[str, Func] = OrderedDict()
        self._steps = StepMemory()
        self._prepared: _Prepared | None = None
        self._entries: dict[str, Entries] = {}
        self._noise: dict[int, NoiseMonitor] = {}
        self._flusher: LoadedKernel | None = None

    def do(self, job: Job) -> object:
        """The answer to a job; a Failed if it is the candidate's fault."""
        match job:
            case Build():
                return self.build(job)
            case MakeReference():
                return self.make_reference(job)
            case Prepare():
                self.prepare(job)
                return None
            case Time():
                return self.time(job)
            case Interleave():
                return self.interleave(job)

    # -- building ----------------------------------------------------------------------------------------------------
    def build(self, job: Build) -> Built | Failed:
        """Replay the trace, emit, compile."""
        start = time.perf_counter()
        func = self._func(job.subject.text)
        try:
            scheduled = naive(func) if job.trace is None else Trace.from_text(job.trace).apply(func, self._steps)
        except (ScheduleError, ParseError) as e:
            return Failed(FailureKind.ILLEGAL, str(e))
        try:
            built = build_scheduled(scheduled, job.subject.target, dict(job.subject.dims), job.opt)
        except _BUILD_ERRORS as e:
            return Failed(FailureKind.COMPILE_ERROR, f"{type(e).__name__}: {e}")
        return Built(built.code, built.workspaces, built.parallel, time.perf_counter() - start)

    def _func(self, text: str) -> Func:
        func = self._funcs.get(text)
        if func is None:
            func = self._funcs[text] = parse_func(text)
            if len(self._funcs) > _KEPT_FUNCTIONS:
                self._funcs.popitem(last=False)
        else:
            self._funcs.move_to_end(text)
        return func

    # -- the reference -----------------------------------------------------------------------------------------------
    def make_reference(self, job: MakeReference) -> Flavour:
        """Run the naive schedule on inputs that give finite results, if some do, and write the results down."""
        subject, dims = job.subject, dict(job.subject.dims)
        func = self._func(subject.text)
        best: tuple[float, Flavour] | None = None
        for flavour in FLAVOURS:
            inputs = make_inputs(func, dims, subject.seed, flavour)
            entries = self._entries_of(subject.target)
            with LoadedKernel(job.naive, func, dims, [inputs], subject.target, entries) as kernel:
                results, _ = kernel.results()
                share = _finite_share(results)
                if best is None or share > best[0]:
                    best = (share, flavour)
                    for i, a in enumerate(results):
                        a.tofile(_reference_file(job.path, i))
            if share == 1.0:
                break
        return FLAVOURS[0] if best is None else best[1]

    def prepare(self, job: Prepare) -> None:
        """Make the inputs anew and map the reference; both are read-only."""
        self._prepared = None
        subject, dims = job.subject, dict(job.subject.dims)
        func = self._func(subject.text)
        thread_pool_code()
        own = [locked_copy(a) for a in make_inputs(func, dims, subject.seed, job.flavour)]
        inputs = [own]
        for _ in range(1, _copies(subject, own)):
            inputs.append([locked_copy(a) if i in subject.streamed else a for i, a in enumerate(own)])
        expected = []
        for i, b in enumerate(func.params[len(func.params) - func.outputs :]):
            shape = tuple(d.evaluate(dims) for d in b.shape)
            path = _reference_file(job.path, i)
            empty = path.stat().st_size == 0
            expected.append(np.empty(shape, b.dtype.numpy) if empty else np.memmap(path, b.dtype.numpy, "r", 0, shape))
        self._prepared = _Prepared(subject, func, dims, inputs, expected, tolerance_of(func, dims))

    # -- timing ------------------------------------------------------------------------------------------------------
    def time(self, job: Time) -> Timed | Failed:
        """Check one candidate, time it, check it again (a race may show only once). One that is far beyond the limit
        is not warmed up; if it is long as well, one sample is all it gets. The checked run alone is no verdict on a
        short one: nothing is in the caches yet, and the threads may be asleep."""
        with self._load(job.built) as kernel:
            first, seconds = (0.0, 0.0) if job.again else self._check(kernel)
            if isinstance(first, Failed):
                return first
            run = self._runner(kernel, job.config)
            hopeless = job.limit is not None and seconds > _HOPELESS * job.limit
            config = replace(job.config, warmup=0) if hopeless else job.config
            noise = self._noise_of(job.built)
            before = noise.waited
            samples = evaluate(run, config, job.limit, noise)
            waited = noise.waited - before
            if hopeless and len(samples) == 1:
                return Timed(samples, first, waited)
            last, _ = self._check(kernel)
            return last if isinstance(last, Failed) else Timed(samples, max(first, last), waited)

    def interleave(self, job: Interleave) -> list[Timed | Failed]:
        """One sample of each in turn, beginning with another one in every round."""
        with contextlib.ExitStack() as stack:
            kernels = [stack.enter_context(self._load(b)) for b in job.built]
            checks = [self._check(k)[0] for k in kernels]
            fine = [i for i, c in enumerate(checks) if not isinstance(c, Failed)]
            noises = {i: self._noise_of(job.built[i]) for i in fine}
            timers = {i: TimeEvaluator(self._runner(kernels[i], job.config), job.config, noises[i]) for i in fine}
            samples: dict[int, list[float]] = {i: [] for i in fine}
            waited = dict.fromkeys(fine, 0.0)
            begin = time.perf_counter()
            for r in range(job.rounds):
                if r >= _MIN_ROUNDS and time.perf_counter() - begin > interleave_seconds(job):
                    break
                for i in (*fine[r % len(fine) :], *fine[: r % len(fine)]) if fine else ():
                    before = noises[i].waited
                    samples[i].append(timers[i].sample())
                    waited[i] += noises[i].waited - before
        return [c if isinstance(c, Failed) else Timed(tuple(samples[i]), c, waited[i]) for i, c in enumerate(checks)]

    def _load(self, built: Built) -> LoadedKernel:
        p = self._ready()
        return LoadedKernel(built, p.func, p.dims, p.inputs, p.subject.target, self._entries_of(p.subject.target))

    def _ready(self) -> _Prepared:
        if self._prepared is None:
            raise TilewrightError("worker: a job to time came before its data was prepared")
        return self._prepared

    def _check(self, kernel: LoadedKernel) -> tuple[float | Failed, float]:
        """The error of a run, or what is wrong with it; and the seconds it took."""
        p = self._ready()
        results, seconds = kernel.results()
        error, wrong = compare(results, p.expected, p.tolerance)
        if wrong is None and not kernel.is_contained():
            wrong = "it wrote outside its outputs"
        return (error if wrong is None else Failed(FailureKind.WRONG_RESULT, wrong)), seconds

    def _noise_of(self, built: Built) -> NoiseMonitor:
        """What tells disturbed moments from others for as many threads as the kernel uses."""
        threads = self._ready().subject.target.threads if built.parallel else 1
        if threads not in self._noise:
            self._noise[threads] = noise_monitor_of(threads)
        return self._noise[threads]

    def make_flusher(self, job: Job) -> None:
        """Make what empties the caches, if ``job`` wants that. It is as large as they are: no candidate's memory."""
        if isinstance(job, Time | Interleave) and job.config.enable_cpu_cache_flush and self._flusher is None:
            target = self._ready().subject.target
            self._flusher = cache_flusher(target, self._entries_of(target))

    def _runner(self, kernel: LoadedKernel, config: EvaluatorConfig) -> Callable[[int], float]:
        flusher = self._flusher
        if flusher is None or not config.enable_cpu_cache_flush:
            return kernel.run
        return kernel.run_cold(lambda: flusher.run(1))

    def _entries_of(self, target: Target) -> Entries:
        return self._entries.setdefault(target.legality_key(), Entries(target))


def interleave_seconds(job: Interleave) -> float:
    """After how many seconds an interleaved measurement starts no further round."""
    return 5 * job.config.max_seconds * len(job.built)


def naive(func: Func) -> Func:
    """``func`` as it was declared; the outermost loop with work to share spread over threads where that is legal."""
    s = Schedule(func)
    for name in s.blocks():
        loops = loops_around(s.func, name)
        leading = next((i for i, x in enumerate(loops) if x.extent.value() != 1), None)
        if leading is None:
            continue
        names = [x.var for x in loops[: leading + 1]]
        s.attempt(partial(_fuse_and_spread, names=names))
    return s.func


def _fuse_and_spread(s: Schedule, names: Sequence[str]) -> None:
    s.parallel(s.fuse(*names) if len(names) > 1 else names[0])


def _copies(subject: Subject, inputs: list[np.ndarray]) -> int:
    """How many copies of the weights make up what the network has of them, within limits."""
    own = sum(inputs[i].nbytes for i in subject.streamed)
    return max(1, min(BURST, min(subject.footprint, _MAX_STREAMED) // own)) if own else 1


def _finite_share(arrays: list[np.ndarray]) -> float:
    count = sum(a.size for a in arrays)
    finite = 0
    for a in arrays:
        if a.dtype.kind in "biu":
            finite += a.size
        else:
            finite += int(np.isfinite(a.astype(np.complex128 if a.dtype.kind == "c" else np.float64)).sum())
    return finite / count if count else 1.0


def _reference_file(path: str, output: int) -> Path:
    return Path(path) / f"output{output}.bin"


# -- the process -----------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def capped_memory(extra: int | None) -> Iterator[None]:
    """Let this process allocate at most ``extra`` bytes more while the block runs."""
    if extra is None or resource is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = _address_space() + extra
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _address_space() -> int:
    """Bytes of address space in use; a guess where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
    except OSError:
        return 4 << 30
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def read_message(stream: BinaryIO) -> object:
    """The next message. Raises EOFError at the end."""
    head = _read(stream, HEADER.size)
    return pickle.loads(_read(stream, HEADER.unpack(head)[0]))


def write_message(stream: BinaryIO, message: object) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    stream.write(HEADER.pack(len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO, count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise EOFError
    return data


def _listen(stream: BinaryIO, jobs: queue.SimpleQueue[tuple[Job, int | None]]) -> None:
    """Pass jobs on; end the process, whatever it is doing, when the parent is gone."""
    while True:
        try:
            jobs.put(read_message(stream))  # type: ignore[arg-type]
        except (EOFError, OSError):
            os.killpg(os.getpgrp(), signal.SIGKILL)


def main(modules: list[str]) -> None:
    """Serve until the parent goes away. ``modules`` are imported first."""
    answers = os.fdopen(os.dup(1), "wb")
    source = os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)  # what a candidate prints goes where messages of crashes go
    faulthandler.enable()
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in modules:
        importlib.import_module(name)
    worker = Worker()
    jobs: queue.SimpleQueue[tuple[Job, int | None]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(source, jobs), daemon=True).start()
    write_message(answers, READY)
    while True:
        try:
            job, memory = jobs.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            os._exit(0)
        write_message(answers, serve(worker, job, memory))


def serve(worker: Worker, job: Job, memory: int | None) -> object:
    """The answer to one job under a memory cap."""
    try:
        worker.make_flusher(job)
        with capped_memory(memory):
            return worker.do(job)
    except MemoryError as e:
        return Failed(FailureKind.MEMORY, f"out of memory: {e}" if str(e) else "out of memory")
