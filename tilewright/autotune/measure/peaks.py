"""The machine's measured limits: multiply-adds a second and bytes a second, on a number of threads.

Both are measured with this package's own code: register tiles whose operands stay in cache, and a sum over an array far
larger than the last-level cache. These are the two lines of the roofline (Williams et al., 2009).
"""

from __future__ import annotations

import functools
import time

import numpy as np

from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.machine.target import Target
from tilewright.runtime.profile import Peaks
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import Val, build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func

_DEPTH = 128
_ROW_TILES = 4
_REPEATS = 1024
_READ_BYTES = 128 << 20


@functools.cache
def measure_peaks(target: Target, threads: int) -> Peaks:
    """The best of several short runs, about half a second in all. The machine should be otherwise idle."""
    pinned = target.with_threads(threads)
    tiles = _tiles(pinned)
    flops = 2.0 * float(np.prod([int(d) for d in tiles.params[-1].shape])) * _DEPTH
    rows = _rows()
    return Peaks(flops / _best_seconds(tiles, pinned), _READ_BYTES / _best_seconds(rows, pinned))


def _tiles(target: Target) -> Func:
    """The same product many times: a few register tiles of rows with one packed panel, all of it in the first cache."""
    width = 2 * target.lanes(4)
    height = target.tile_rows(2) * _ROW_TILES
    batch = _REPEATS * target.threads
    a = placeholder("A", (height, _DEPTH), dtypes.float32)
    b = placeholder("B", (1, _DEPTH, width), dtypes.float32)
    k = reduce_axis(_DEPTH, "k")

    def product(t: IntExpr, m: IntExpr, no: IntExpr, ni: IntExpr):  # type: ignore[no-untyped-def]
        return sum_over(a[m, k] * b[no, k, ni], k)

    def result(t: IntExpr, m: IntExpr, n: IntExpr) -> Val:
        return acc[t, m, n // width, n % width]

    acc = compute("acc", (batch, height, 1, width), product)
    out = compute("out", (batch, height, width), result)
    return build_func("tiles", [a, b], [out], [acc])


def _rows() -> Func:
    """Sums of long rows."""
    count, length = 64, _READ_BYTES // (64 * 4)
    a = placeholder("A", (const(count), const(length)), dtypes.float32)
    k = reduce_axis(length, "k")
    return build_func("rows", [a], [compute("out", (count,), lambda i: sum_over(a[i, k], k))])


def _best_seconds(func: Func, target: Target) -> float:
    kernel = build(default_trace(func, target).apply(func), target)
    inputs = [np.ones([int(d) for d in b.shape], np.float32) for b in func.params[:-1]]
    arrays, _ = kernel.arguments(inputs, {})
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        kernel.run(arrays, {}, target.threads)
        best = min(best, time.perf_counter() - start)
    return best
