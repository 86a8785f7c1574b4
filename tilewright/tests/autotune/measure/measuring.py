"""Small tasks and candidates for the tests of measuring."""

from __future__ import annotations

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import EvaluatorConfig
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core import dtypes
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func

FAULTS = "tilewright.tests.autotune.measure.faults"
QUICK = EvaluatorConfig(
    repeat=2, min_repeat_ms=0.0, timeout_s=20.0, build_timeout_s=20.0, memory_bytes=512 << 20, builders=1
)


def matmul(m: int = 24, n: int = 32, k: int = 40, name: str = "matmul") -> Func:
    """C = A @ B, every sum in a loop nest of its own."""
    a, b = placeholder("A", (m, k), dtypes.float32), placeholder("B", (k, n), dtypes.float32)
    r = reduce_axis(k, "k")
    return build_func(name, [a, b], [compute("C", (m, n), lambda i, j: sum_over(a[i, r] * b[r, j], r))])


def task(func: Func | None = None, threads: int = 1) -> Task:
    return Task(func or matmul(), detect_host().with_threads(threads))


def candidate(func: Func, trace: Trace) -> Candidate:
    return Candidate((), trace, trace.apply(func))


def split(t: Task, factor: int) -> Candidate:
    """The rows split by ``factor``."""
    s = Schedule(t.func)
    s.split("C_i", factors=(None, factor))
    return candidate(t.func, s.trace)


def faulty(t: Task, fault: str) -> Candidate:
    """A candidate with a fault of :mod:`tilewright.tests.autotune.measure.faults`."""
    s = Schedule(t.func)
    s.prefetch("C_i", fault)
    return candidate(t.func, s.trace)
