"""A user's schedule: :class:`tilewright.schedule.schedule.Schedule`, with what it compiles to and what it costs."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.api.aliases import Aliases
from tilewright.api.replay import Replay
from tilewright.autotune.base.measure_result import Failed, Ok
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import LocalMeasurer
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.codegen.assembly_loops import AssemblyLoops, assembly_loops
from tilewright.codegen.detect_cpu import parse_target, require_runs_here
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.kernel import CallableKernel, build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.port_pressure import PortPressure, port_pressure
from tilewright.codegen.prepare.steps import prepare
from tilewright.core.errors import InputError, MeasurementError, TargetError
from tilewright.core.options import as_whole, shown
from tilewright.machine.target import Target
from tilewright.schedule.trace import Trace

_DEFAULTS = EvaluatorConfig()


class Schedule(Aliases):
    """A function under transformation, to look at, run and time. Each step is a method that checks first, raises
    ScheduleError where it cannot prove that the function stays what it is, and returns the names that it made.

    >>> import tilewright
    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> A = placeholder("A", (20,), dtypes.float32)
    >>> s = tilewright.Schedule(build_func("double", [A], [compute("B", (20,), lambda i: A[i] + A[i])]))
    >>> s.vectorize(s.split("B_i", (None, 8))[1])
    >>> import numpy as np
    >>> s.build()([np.arange(20, dtype=np.float32)])[0][-1]
    np.float32(38.0)
    >>> s.time().seconds  # doctest: +SKIP
    2.1e-08
    """

    def undo(self, count: int = 1) -> None:
        """Take back the last ``count`` steps. Raises InputError if there are not so many."""
        number = as_whole(count)
        if number is None or not 0 <= number <= len(self.trace):
            raise InputError(f"undo: expected a number of steps, 0 to {len(self.trace)}, got {shown(count)}")
        kept = Trace(self.trace.steps[: len(self.trace) - number])
        self.func, self.trace = kept.apply(self.original), kept

    def replay(self, dims: Mapping[str, int] | None = None, *, target: str | Target | None = None) -> Replay:
        """The steps one by one, with the function after each of them."""
        return Replay(self.original, self.trace, target, dims)

    def build(self, target: str | Target | None = None) -> CallableKernel:
        """Machine code for the function in its present form, callable on numpy arrays."""
        return build(self.func, target)

    def assembly(self, target: str | Target | None = None) -> str:
        """The machine code of the function in its present form, as text."""
        where = parse_target(target)
        return assembly_text(emit_kernel(prepare(self.func, where), where, self.func.name), where)

    def inner_loops(self, target: str | Target | None = None) -> AssemblyLoops:
        """The innermost loops of :meth:`assembly`, and what kinds of instructions an iteration has. Raises TargetError
        for another architecture than x86-64."""
        where = parse_target(target)
        if not where.triple.startswith("x86_64"):
            raise TargetError(f"inner_loops({self.func.name}): expected x86-64, got {where.triple}")
        return assembly_loops(self.assembly(where))

    def port_pressure(self, target: str | Target | None = None) -> PortPressure:
        """How long an iteration of each innermost loop takes at least, by what the manual says of the CPU: a model, not
        a measurement. Raises TargetError for a CPU that it does not know.

        >>> import tilewright
        >>> from tilewright.core import dtypes
        >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
        >>> a = placeholder("A", (64, 16), dtypes.float32)
        >>> s = tilewright.Schedule(build_func("double", [a], [compute("B", (64, 16), lambda i, j: a[i, j] * 2.0)]))
        >>> s.vectorize("B_j")
        >>> [x.bound_by for x in s.port_pressure("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4").bounds]
        ['stores']
        """
        where = parse_target(target)
        return port_pressure(self.inner_loops(where), where)

    def time(
        self, dims: Mapping[str, int] | None = None, *, target: str | Target | None = None,
        number: int = _DEFAULTS.number, repeat: int = _DEFAULTS.repeat, min_repeat_ms: float = _DEFAULTS.min_repeat_ms,
        enable_cpu_cache_flush: bool = False, timeout_s: float = 60.0,
    ) -> Ok:  # fmt: skip
        """What a run takes, measured in a worker process on random inputs; parameters as in TVM's ``time_evaluator``.

        ``dims``: sizes of the function's dims. The result has ``seconds`` (the median of ``samples``) and ``error``
        against the function as it was declared. Raises MeasurementError if there is no time, and why: a wrong
        result, a crash, a time-out.
        """
        where = parse_target(target)
        require_runs_here(where, f"time({self.original.name})")
        config = EvaluatorConfig(
            number, repeat, min_repeat_ms, enable_cpu_cache_flush=enable_cpu_cache_flush, timeout_s=timeout_s,
            build_timeout_s=timeout_s, opt=3,
        )  # fmt: skip
        with LocalMeasurer(config) as measurer:
            task = Task(self.original, where, dict(dims or {}))
            (result,) = measurer.measure(task, [Candidate((), self.trace, self.func)])
        if isinstance(result, Failed):
            raise MeasurementError(f"time({self.original.name}): {result.kind}: {result.message}")
        return result
