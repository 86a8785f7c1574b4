"""Differential fuzzing: wild programs under default and random traces, machine code against the interpreter.

``python -m tilewright.tests.codegen.fuzz_jit --count 1000 --seed 0`` runs a thousand programs, each as two cases: the
default trace for one of a row of targets, and a random trace (or a random trace and then the default one). Every case
runs with one thread and with two or three. What must be equal is compared bit for bit, the rest within the tolerance
that the program states (:mod:`tilewright.tests.tensor_ir.wild_programs`). All arrays lie against unreadable pages, at
their end in one run and at their start in the other, so that an access outside of them is a crash.

The cases run in worker processes: a crash or a hang costs one case, and is reported like a wrong result, with a
reproducer to paste.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection, wait

import numpy as np

from tilewright.codegen.detect_cpu import detect_host, parse_target, runs_here
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.kernel import CallableKernel
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.prepare import steps
from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.schedule.fuzz_traces import random_step
from tilewright.tests.tensor_ir.wild_programs import WildProgram, wild_program

RANDOM_STEPS = 14
BATCH = 16
HANG_SECONDS = 120
START = "spawn"


@dataclass(frozen=True)
class Case:
    """One scheduled program for one target."""

    seed: int
    kind: str
    target: Target
    program: WildProgram
    trace: Trace
    scheduled: Func

    @property
    def symbol(self) -> str:
        return f"wild_{self.seed}_{self.kind}"

    def ready(self) -> Func:
        """The function as it is emitted."""
        return steps.prepare(self.scheduled, self.target)


@cache
def targets() -> tuple[Target, ...]:
    """Targets whose code this machine runs: its own, narrow vectors, few and many registers, one to three threads."""
    host = detect_host()
    plain = parse_target("llvm -mcpu=x86-64") if host.triple.startswith("x86_64") else host
    wide = (replace(host, threads=2), replace(host, threads=1, vector_registers=32))
    narrow = (
        replace(host, vector_bits=128, vector_registers=8, threads=3),
        replace(plain, threads=2),
        replace(host, vector_bits=max(128, host.vector_bits // 2), threads=1, l2_bytes=4096),
    )
    return tuple(t for t in (*wide, *narrow) if runs_here(t))


def default_case(seed: int, target: Target | None = None) -> Case:
    """Program ``seed`` under the default trace for one of the targets; every other one as if it were large work."""
    program = wild_program(seed)
    target = target or targets()[seed % len(targets())]
    large = replace(target.costs, parallel_ns=0, never_parallel_ns=0)
    trace = default_trace(program.func, replace(target, own_costs=large) if seed % 2 else target)
    return Case(seed, "default", target, program, trace, trace.apply(program.func))


def random_case(seed: int, then_default: bool = False) -> Case:
    """Program ``seed`` under a random trace, continued by the default rules or not."""
    rng = random.Random(seed)
    program = wild_program(seed)
    target = targets()[(seed // 2) % len(targets())]
    trace, func = Trace(), program.func
    for _ in range(5 if then_default else RANDOM_STEPS):
        step = random_step(rng, func)
        try:
            func = step.apply(func)
        except ScheduleError:
            continue
        trace = trace.then(step)
    if then_default:
        rest = default_trace(func, target)
        trace, func = trace.then(*rest.steps), rest.apply(func)
    return Case(seed, "mixed" if then_default else "random", target, program, trace, func)


def cases(seed: int) -> Iterator[Case]:
    """The cases of one program."""
    yield default_case(seed)
    yield random_case(seed, then_default=seed % 4 == 0)


# -- running ---------------------------------------------------------------------------------------------------------
class Arena:
    """Memory in slots that end, and begin, at a page that nobody may touch."""

    def __init__(self, slots: int = 32, slot_bytes: int = 1 << 20) -> None:
        self.page = mmap.PAGESIZE
        self.slot_bytes, self.slots = slot_bytes, slots
        self.memory = mmap.mmap(-1, slots * slot_bytes)
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for i in range(slots):
            for at in (self.base + i * slot_bytes, self.base + (i + 1) * slot_bytes - self.page):
                if libc.mprotect(at, self.page, 0) != 0:
                    raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, slot: int, shape: Sequence[int], dtype: np.dtype, at_end: bool) -> np.ndarray:
        """An array in ``slot``, filled with a pattern, against one of its borders."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if slot >= self.slots or size > self.slot_bytes - 2 * self.page:
            raise ValueError(f"no room for {size} bytes in slot {slot}")
        inner = slot * self.slot_bytes + self.page
        start = inner + (self.slot_bytes - 2 * self.page - size if at_end else 0)
        raw = np.frombuffer(self.memory, np.uint8, size, start)
        raw[:] = 0xA5
        return raw.view(dtype).reshape(tuple(shape))


@cache
def arena() -> Arena:
    """The arena of this process."""
    return Arena()


def run_kernel(
    kernel: CallableKernel, args: Sequence[np.ndarray], dims: Mapping[str, int], threads: int
) -> list[np.ndarray]:
    """The outputs of one run on guarded memory."""
    func, at_end = kernel.func, threads == 1
    count = len(func.params) - func.outputs
    buffers = (*func.params, *kernel.workspaces)
    arrays = []
    for slot, b in enumerate(buffers):
        a = arena().place(slot, _sizes(b.shape, dims), b.dtype.numpy, at_end)
        if slot < count:
            a[...] = args[slot]
        elif b.dtype.kind == "b":
            a[...] = True
        arrays.append(a)
    kernel.run(arrays, dims, threads)
    return [a.copy() for a in arrays[count : len(func.params)]]


def _sizes(shape: Sequence[IntExpr], dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(s.evaluate(dims) for s in shape)


def difference(got: np.ndarray, want: np.ndarray, dtype: DType, tolerance: float) -> str:
    """What is wrong with ``got``; empty if nothing is."""
    if dtype.kind != "f":
        wrong = got != want
    else:
        wide = np.float64
        with np.errstate(all="ignore"):
            g, w = got.astype(wide), want.astype(wide)
            same = (g == w) | (np.isnan(g) & np.isnan(w))
            finite = np.abs(w[np.isfinite(w)])
            scale = float(finite.max()) if finite.size else 0.0
            near = np.abs(g - w) <= tolerance * (np.abs(w) + scale) if tolerance else np.zeros(g.shape, bool)
        wrong = ~(same | near)
    if not wrong.any():
        return ""
    at = tuple(int(x) for x in np.argwhere(wrong)[0])
    count = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"{count}, first at {list(at)}: got {got[at]!r}, want {want[at]!r}"


def check(case: Case, kernel: CallableKernel, want: Sequence[np.ndarray]) -> str:
    """What is wrong with the results of a case; empty if nothing is."""
    p = case.program
    outputs = p.func.params[len(p.func.params) - p.func.outputs :]
    for threads in (1, 2 + case.seed % 2):
        results = run_kernel(kernel, p.args, p.dims, threads)
        for b, got, expected, tolerance in zip(outputs, results, want, p.tolerance, strict=True):
            if wrong := difference(got, expected, b.dtype, tolerance):
                return f"output {b.name} with {threads} threads: {wrong}"
    return ""


def reproducer(case: Case, problem: str) -> str:
    """A script that shows the problem again."""
    p = case.program
    arrays = [
        f"    np.frombuffer(bytes.fromhex({a.tobytes().hex()!r}), dtypes.from_name({b.dtype.name!r}).numpy)"
        f".reshape({a.shape}),"
        for a, b in zip(p.args, p.func.params, strict=False)
    ]
    return "\n".join(
        [
            f"# {case.kind} trace of wild_program({case.seed}): {problem}",
            "import numpy as np",
            "from tilewright.codegen.kernel import build",
            "from tilewright.core import dtypes",
            "from tilewright.machine.target import Target",
            "from tilewright.schedule.trace import Trace",
            "from tilewright.tensor_ir.interpreter import interpret",
            "from tilewright.tensor_ir.text import parse_func",
            f"func = parse_func('''{p.func!s}''')",
            f"trace = Trace.from_text('''{case.trace}''')",
            f"target = {case.target!r}",
            f"dims = {p.dims!r}",
            "args = [",
            *arrays,
            "]",
            "after = trace.apply(func)",
            "print('interpreted:', interpret(func, args, dims))",
            "print('scheduled:  ', interpret(after, args, dims))",
            f"print('compiled:   ', build(after, target, 1)(args, dims, {2 + case.seed % 2}))",
        ]
    )


def prepare(seed: int, kinds: Sequence[str] = ()) -> tuple[list[tuple[Case, bytes]], list[str]]:
    """The compiled cases of a program, and the problems on the way there."""
    compiled: list[tuple[Case, bytes]] = []
    case: Case | None = None
    try:
        for case in cases(seed):
            if kinds and case.kind not in kinds:
                continue
            verify(case.scheduled)
            text = emit_kernel(case.ready(), case.target, case.symbol)
            compiled.append((case, compile_object(text, case.target, 1)))
    except Exception:  # noqa: BLE001 - whatever goes wrong is the finding
        problem = traceback.format_exc(limit=-4)
        known = "" if case is None else f"last case: {case.kind}\n{case.trace}"
        return compiled, [f"seed {seed}: cannot be compiled\n{problem}{known}\n"]
    return compiled, []


def run_compiled(compiled: Sequence[tuple[Case, bytes]]) -> Iterator[tuple[int, str]]:
    """The seeds that were run, each with its problem if there is one; one library holds them all."""
    library = Library([blob for _, blob in compiled], [case.symbol for case, _ in compiled])
    want: list[np.ndarray] = []
    last = -1
    for case, _ in compiled:
        yield case.seed, ""
        p = case.program
        if case.seed != last:
            want, last = interpret(p.func, p.args, p.dims), case.seed
        problem = check(case, CallableKernel(case.ready(), library, case.symbol, case.target), want)
        if problem:
            yield case.seed, reproducer(case, problem)
    library.close()


def run_seed(seed: int) -> list[str]:
    """All cases of one program in this process: the problems found."""
    compiled, problems = prepare(seed)
    return problems + [text for _, text in run_compiled(compiled) if text]


# -- worker processes ------------------------------------------------------------------------------------------------
def _work(connection: Connection) -> None:
    """Serve batches of seeds: ``("run", seed)`` before a seed runs, ``("bad", seed, text)``, ``("done",)``."""
    while (seeds := connection.recv()) is not None:
        compiled: list[tuple[Case, bytes]] = []
        for seed in seeds:
            connection.send(("run", seed))
            more, problems = prepare(seed)
            compiled += more
            for text in problems:
                connection.send(("bad", seed, text))
        for seed, text in run_compiled(compiled):
            connection.send(("bad", seed, text) if text else ("run", seed))
        connection.send(("done",))


@dataclass
class Worker:
    """A process, the batch it is at, and the seed it was last heard of."""

    process: multiprocessing.process.BaseProcess
    connection: Connection
    batch: list[int]
    seed: int
    heard: float


def _start(batch: list[int]) -> Worker:
    context = multiprocessing.get_context(START)
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    ours.send(batch)
    return Worker(process, ours, batch, batch[0], time.monotonic())


def fuzz(seeds: Sequence[int], workers: int = 2, progress: bool = False) -> dict[int, str]:
    """Run all seeds in worker processes; the problems by seed."""
    batches = [list(seeds[i : i + BATCH]) for i in range(0, len(seeds), BATCH)]
    problems: dict[int, str] = {}
    active: list[Worker] = []
    finished = 0
    while batches or active:
        while batches and len(active) < workers:
            active.append(_start(batches.pop(0)))
        ready = wait([w.connection for w in active], 5)
        for w in list(active):
            if w.connection in ready:
                w.heard = time.monotonic()
                try:
                    event = w.connection.recv()
                except EOFError:
                    event = ("crash",)
            elif time.monotonic() - w.heard > HANG_SECONDS:
                event = ("hang",)
            else:
                continue
            if event[0] == "run":
                w.seed = event[1]
            elif event[0] == "bad":
                problems[event[1]] = event[2]
            elif event[0] == "done":
                finished += len(w.batch)
                if progress:
                    print(f"\r{finished} programs, {len(problems)} problems", end="", file=sys.stderr, flush=True)
                if batches:
                    w.batch = batches.pop(0)
                    w.connection.send(w.batch)
                else:
                    w.connection.send(None)
                    w.process.join()
                    active.remove(w)
            else:
                _bury(w, event[0], problems, batches)
                active.remove(w)
    if progress:
        print(file=sys.stderr)
    return problems


def _bury(w: Worker, how: str, problems: dict[int, str], batches: list[list[int]]) -> None:
    """Note what killed a worker, and put back the rest of its batch."""
    w.process.kill()
    w.process.join()
    if w.seed not in problems:
        problems[w.seed] = f"{how} (exit code {w.process.exitcode}) at seed {w.seed}\n{_scripts(w.seed)}"
    rest = [s for s in w.batch if s != w.seed and s not in problems]
    if rest:
        batches.append(rest)


def _scripts(seed: int) -> str:
    """Reproducers of all cases of a program that took its process down."""
    try:
        return "\n\n".join(reproducer(case, "crash or hang") for case in cases(seed))
    except Exception:  # noqa: BLE001 - a report must not fail
        return traceback.format_exc(limit=-3)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="machine code against the interpreter on random programs")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    start = time.monotonic()
    problems = fuzz(range(options.seed, options.seed + options.count), options.workers, progress=True)
    for seed in sorted(problems):
        print(f"{'=' * 100}\n{problems[seed]}")
    seconds = time.monotonic() - start
    print(f"{options.count} programs, {2 * options.count} cases, {len(problems)} problems, {seconds:.0f} s")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
