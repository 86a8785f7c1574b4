"""Two schedules of one function against each other, in this process: for traces that are known to be legal."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

from tilewright.autotune.measure.inputs import make_inputs
from tilewright.codegen.kernel import build
from tilewright.machine.target import Target
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func

_LEAST, _MOST = 3, 200


def time_ratio(
    func: Func, trace: Trace, other: Func, other_trace: Trace, target: Target, dims: Mapping[str, int], seconds: float
) -> float:
    """The median time of the first schedule divided by that of the second, run in turns for about ``seconds``.

    ``other`` is the same function under other names. The dims are those of both, by position.
    """
    sizes = list(dims.values())
    first = _runner(func, trace, target, dict(zip(func.dims, sizes, strict=True)))
    second = _runner(other, other_trace, target, dict(zip(other.dims, sizes, strict=True)))
    return _in_turns(first, second, seconds)


def _in_turns(first: Callable[[], object], second: Callable[[], object], seconds: float) -> float:
    first()
    second()
    taken: tuple[list[float], list[float]] = ([], [])
    begin = time.perf_counter()
    while len(taken[1]) < _LEAST or (len(taken[1]) < _MOST and time.perf_counter() - begin < seconds):
        for run, samples in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
    return statistics.median(taken[0]) / statistics.median(taken[1])


def _runner(func: Func, trace: Trace, target: Target, dims: Mapping[str, int]) -> Callable[[], object]:
    kernel = build(trace.apply(func), target)
    arrays, _ = kernel.arguments(make_inputs(func, dims, seed=0), dims)
    return lambda: kernel.run(arrays, dims, target.threads)
