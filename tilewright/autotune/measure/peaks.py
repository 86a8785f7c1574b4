"""What this machine does: its peaks on a number of threads, and what work costs on one.

All is measured with this package's own code: register tiles whose operands stay in cache, and sums over an array far
larger than the last-level cache, are the two lines of the roofline (Williams et al., 2009). Sums over arrays that fit
in a cache, arithmetic without reuse, exponentials and an empty parallel loop are what estimates assume numbers for.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.native.dot_products import CHAINS, DotProduct, dot_product_text, dot_products_of
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.machine.costs import Costs
from tilewright.machine.target import Target
from tilewright.runtime.profile import Peaks
from tilewright.schedule.default import default_trace
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import Val, build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func

_DEPTH = 128
_ROW_TILES = 4
_REPEATS = 1024
_READ_BYTES = 128 << 20
_STEPS = 64
_ELEMENTS = 1 << 18
_TURNS = 20_000
_FEW = 1 << 14
_MANY_RUNS = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """One core of this machine, in a nanosecond.

    ``multiply_adds``: scalar operations of register tiles, two for each; ``operations``: of formulas without reuse;
    ``exponentials``. ``l1``, ``l2``, ``l3``, ``memory``: bytes that sums read from there (None: there is no third
    level). ``parallel_start``: nanoseconds by which an empty parallel loop is longer on all threads than on one.
    """

    multiply_adds: float
    operations: float
    exponentials: float
    l1: float
    l2: float
    l3: float | None
    memory: float
    parallel_start: float

    def costs(self, assumed: Costs) -> Costs:
        """``assumed`` with the rates that were measured."""
        return replace(
            assumed,
            multiply_add_rate=self.multiply_adds,
            operation_rate=self.operations,
            memory_rate=self.memory,
            stream_rate=self.l3 or self.memory,
        )


@functools.cache
def measure_peaks(target: Target, threads: int) -> Peaks:
    """The best of several short runs, about half a second in all. The machine should be otherwise idle."""
    pinned = target.with_threads(threads)
    tiles = _tiles(pinned)
    flops = 2.0 * float(np.prod([int(d) for d in tiles.params[-1].shape])) * _DEPTH
    size = _beyond_caches(target)
    rows = _rows(size)
    products: dict[str, float] = {}
    for d, rate in measure_dot_products(target):
        products.setdefault(d.product, rate * threads)
    return Peaks(flops / _best_seconds(tiles, pinned), size / _best_seconds(rows, pinned), products)


def memory_reader(target: Target, threads: int) -> Callable[[], float]:
    """A function that sums up an array far larger than the last-level cache, on ``threads`` threads, and gives the
    bytes of a second. To be called beside what is compared with it: what memory delivers changes with what neighbours
    on the same machine read, and with where a virtual machine has its processors."""
    size = _beyond_caches(target)
    read = _runner(_rows(size), target.with_threads(threads))

    def rate() -> float:
        start = time.perf_counter()
        read()
        return size / (time.perf_counter() - start)

    return rate


@functools.cache
def measure_costs(target: Target) -> Measured:
    """The best of several short runs of each, about a second in all. The machine should be otherwise idle."""
    one = target.with_threads(1)
    peaks = measure_peaks(target, 1)
    l3 = max(target.l3_share_bytes, target.nearby_bytes)
    return Measured(
        peaks.flops_per_second / 1e9,
        2.0 * _STEPS * _ELEMENTS / _best_seconds(_elementwise("steps", _steps), one) / 1e9,
        _ELEMENTS / _best_seconds(_elementwise("exp", lambda x: op("exp", x)), one) / 1e9,
        _cached_rate(target.l1_working_bytes, one),
        _cached_rate(target.resident_bytes, one),
        _cached_rate(l3, one) if target.l3_bytes else None,
        peaks.bytes_per_second / 1e9,
        _parallel_start(target),
    )


@functools.cache
def measure_dot_products(target: Target) -> tuple[tuple[DotProduct, float], ...]:
    """Instructions for products of narrow elements, and operations in a second of each on one thread: the best of
    several runs of a millisecond."""
    return tuple((d, _instruction_rate(d, target)) for d in dot_products_of(target))


def _instruction_rate(d: DotProduct, target: Target) -> float:
    library = Library([compile_object(dot_product_text("spin", d, target), target)], ("spin",), {})
    spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.addresses["spin"])
    return CHAINS * _TURNS * d.operations / _best_of(lambda: spin(_TURNS))


def _cached_rate(size: int, target: Target) -> float:
    """Bytes in a nanosecond of sums over an array of ``size`` bytes that is read again and again."""
    costs = replace(target.costs, side_by_side=2 * target.costs.side_by_side)  # partial sums that wait for loads alone
    repeats = max(1, (_READ_BYTES >> 1) // size)
    seconds = _best_seconds(_rows(size, repeats), replace(target, own_costs=costs))
    return size * repeats / seconds / 1e9


def _parallel_start(target: Target) -> float:
    func = _elementwise("start", lambda x: x + 1.0, target.threads)
    s = Schedule(func)
    s.parallel(s.loops("out")[0])
    alone, together = (_best_seconds(func, target.with_threads(n), s.trace, 200) for n in (1, target.threads))
    return max(0.0, together - alone) * 1e9


def _steps(x: Val) -> Val:
    for _ in range(_STEPS):
        x = x * 0.5 + 1.0
    return x


def _elementwise(name: str, formula: Callable[[Val], Val], size: int = _ELEMENTS) -> Func:
    a = placeholder("A", (size,), dtypes.float32)
    return build_func(name, [a], [compute("out", (size,), lambda i: formula(a[i]))])


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


def _rows(size: int, repeats: int = 1) -> Func:
    """Sums of rows, ``size`` bytes in all, that are read ``repeats`` times."""
    count = 64 if repeats == 1 else 1
    length = size // (count * 4)
    a = placeholder("A", (const(count), const(length)), dtypes.float32)
    k = reduce_axis(length, "k")
    return build_func("rows", [a], [compute("out", (repeats, count), lambda t, i: sum_over(a[i, k], k))])


def measure_denormals() -> float:
    """How many times as long multiplications take here whose results are denormal numbers, a millisecond in all."""
    out, small = np.empty(_FEW, np.float32), np.full(_FEW, 2.0**-10, np.float32)
    plain = _best_of(lambda: np.multiply(np.float32(1), small, out=out), _MANY_RUNS)
    return _best_of(lambda: np.multiply(np.float32(2.0**-120), small, out=out), _MANY_RUNS) / plain


def _beyond_caches(target: Target) -> int:
    return max(_READ_BYTES, target.beyond_bytes)


def _best_seconds(func: Func, target: Target, trace: Trace | None = None, runs: int = 8) -> float:
    return _best_of(_runner(func, target, trace), runs)


def _runner(func: Func, target: Target, trace: Trace | None = None) -> Callable[[], object]:
    """The function on arrays of ones."""
    kernel = build((trace or default_trace(func, target)).apply(func), target)
    inputs = [np.ones([int(d) for d in b.shape], np.float32) for b in func.params[:-1]]
    arrays, _ = kernel.arguments(inputs, {})
    return lambda: kernel.run(arrays, {}, target.threads)


def _best_of(call: Callable[[], object], runs: int = 8) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
