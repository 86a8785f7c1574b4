#!/usr/bin/env python3
"""Tune a computation of your own: declare it, say what may be chosen, let the tuner measure, use the winner.

    python examples/tune_own_computation.py [--trials N] [--log FILE]

The computation is a distance matrix, D[i, j] = sum over k of |X[i, k] - Y[k, j]|. Its search space is a program of your
own: it schedules, and asks for every decision that should be searched.
"""

from __future__ import annotations

import argparse

import numpy as np

from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import EvaluatorConfig, LocalMeasurer
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.search.history import TaskResult, Trial
from tilewright.autotune.search.tuner import Budget, TaskTuner, tune_task
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.machine.target import Target
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func


def distances(m: int, n: int, depth: int) -> Func:
    """The computation, without a schedule."""
    x, y = placeholder("X", (m, depth), dtypes.float32), placeholder("Y", (depth, n), dtypes.float32)
    k = reduce_axis(depth, "k")
    d = compute("D", (m, n), lambda i, j: sum_over(op("abs", x[i, k] - y[k, j]), k))
    return build_func("distances", [x, y], [d])


def program(s: Schedule, target: Target) -> None:
    """The search space: a register tile of rows x columns, its size and the depth of unrolling open to choice."""
    rows = int(s.sample_categorical("rows", (2, 4, 6, 8), 4))
    vectors = int(s.sample_categorical("vectors", (1, 2, 4), 2))
    unroll = int(s.sample_categorical("unroll", (1, 2, 4), 1))
    lanes = target.lanes(4)
    copy = s.cache_write("D", "local")  # D is computed in registers, and copied out when a tile is complete
    i, j = s.loops(copy)
    i_0, j_0, *_ = s.tile(i, j, rows, vectors * lanes)
    s.compute_at("D", j_0)
    row, column, k = [x for x in s.loops("D") if x not in (i_0, j_0)]
    s.reorder(k, row, column)
    init = s.decompose_reduction("D", k)
    if unroll > 1:
        _, inner = s.split(k, (None, unroll))
        s.unroll(inner)
    for block in ("D", init, copy):
        *_, outer, last = s.loops(block)
        middle, last = s.split(last, (None, lanes))
        s.vectorize(last)
        s.unroll(middle)
        s.unroll(outer)
    s.parallel(i_0)


def show(tuner: TaskTuner, trial: Trial) -> None:
    """One line a trial."""
    best = tuner.history.best
    if best is not None:
        print(f"trial {trial.number:3d}: {1e3 * trial.seconds:8.3f} ms   best {1e3 * best.seconds:8.3f} ms")


def main(trials: int = 32, log: str | None = None, size: int = 256) -> TaskResult:
    """Tune, build the winner, and check it against numpy."""
    func, target = distances(size, size, size), detect_host()
    task, space = Task(func, target), Space(func, target, program)
    print(f"{space.size()} schedules")
    database = JSONDatabase(log) if log else MemoryDatabase()
    with LocalMeasurer(EvaluatorConfig()) as measurer:
        result = tune_task(task, space, measurer, database=database, budget=Budget(max_trials=trials), callbacks=[show])
    print(f"{result.speedup:.2f} x the first schedule; {result.stopped}")
    if result.best is not None:
        print(result.best.candidate.trace)
        kernel = build(result.best.candidate.func, target)
        rng = np.random.default_rng(0)
        x, y = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
        (d,) = kernel([x, y], threads=target.threads)
        np.testing.assert_allclose(d[:8], np.abs(x[:8, :, None] - y[None]).sum(1), rtol=1e-4)
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--log")
    args = parser.parse_args()
    main(args.trials, args.log)
