"""Random traces on random programs: machine code of the scheduled function against the interpreter of the plain one.

More seeds from the command line: ``python -m tilewright.tests.codegen.test_traces 1000 5000``.
"""

from __future__ import annotations

import dataclasses
import random
import sys

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core.errors import ScheduleError
from tilewright.schedule.default import default_trace
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tests.schedule.fuzz_nests import random_nest
from tilewright.tests.schedule.fuzz_traces import random_step
from tilewright.tests.schedule.helper import random_args
from tilewright.tests.tensor_ir.random_programs import random_program as random_function

STEPS = 10


def scheduled(seed: int) -> tuple[Func, Func, Trace, str]:
    """A program, the program after a random trace, and how they came about."""
    rng = random.Random(seed)
    call, func = random_nest(rng)
    func = dataclasses.replace(func, intrinsics=())  # those of the nests have no code
    trace, after = Trace(), func
    for _ in range(STEPS):
        step = random_step(rng, after)
        try:
            after = step.apply(after)
        except ScheduleError:
            continue
        trace = trace.then(step)
    return func, after, trace, f"seed {seed}: {call}\n{trace}"


def compare(before: Func, after: Func, note: str, seed: int) -> None:
    kernel = build(after, opt=1)
    sizes = [dict.fromkeys(before.dims, v) for v in (1, 7, 8, 0)] if before.dims else [{}]
    for dims in sizes:
        args = random_args(before, dims)
        want = interpret(before, args, dims)
        for threads in (1, 2):
            for w, g in zip(want, kernel(args, dims, threads), strict=True):
                np.testing.assert_allclose(
                    g, w, rtol=1e-5, atol=1e-6, err_msg=f"{note}\ndims={dims} threads={threads}\n{after!s}"
                )


@pytest.mark.parametrize("seed", range(40))
def test_random_trace(seed: int) -> None:
    before, after, _, note = scheduled(seed)
    compare(before, after, note, seed)


@pytest.mark.parametrize("seed", range(25))
def test_default_trace_of_a_random_function(seed: int) -> None:
    p = random_function(seed)
    trace = default_trace(p.func, detect_host())
    after = trace.apply(p.func)
    want = interpret(p.func, p.args, p.dims)
    kernel = build(after, opt=1)
    note = f"random_program({seed})\n{trace}\n{after!s}"
    for threads in (1, 2):
        for w, g in zip(want, kernel(p.args, p.dims, threads), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5, err_msg=f"threads={threads} {note}")


if __name__ == "__main__":
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        first, last, _, text = scheduled(number)
        compare(first, last, text, number)
