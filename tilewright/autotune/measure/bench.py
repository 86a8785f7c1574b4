"""Runs inside a worker: a candidate loaded next to its data, called as a compiled model would call it.

The call goes through an entry function (:mod:`tilewright.codegen.native.entry`), so a time contains what it contains in
a network: one native call and a pool of threads that is already there. Short kernels run several times in one call, one
after the other like the kernels of a network. What a network streams through, its weights, comes from several copies in
turn, so that a kernel does not find all of it in the caches where the network would not either.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from tilewright.autotune.measure.guard_pages import GuardedArray
from tilewright.autotune.measure.worker_protocol import Built
from tilewright.codegen.emit.function import emit_kernel, is_parallel, workspaces
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.native.entry import EntryStep, emit_entry, entry_imports
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.machine.target import Target
from tilewright.runtime.resources.arrays import address
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.ir import Func

SYMBOL = "kernel"
BURST = 16
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_LARGEST_FLUSH = 256 << 20


def build_scheduled(scheduled: Func, target: Target, dims: dict[str, int], opt: int) -> Built:
    """Machine code of a scheduled function."""
    start = time.perf_counter()
    ready = prepare(scheduled, target)
    code = compile_object(emit_kernel(ready, target, SYMBOL), target, opt)
    spaces = tuple((b.dtype.name, tuple(d.evaluate(dims) for d in b.shape)) for b in workspaces(ready, target))
    return Built(code, spaces, is_parallel(ready), time.perf_counter() - start)


class Entries:
    """Object code of entry functions for one kernel, once and ``BURST`` times in a row; made when first needed."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._made: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def get(self, args: int, dims: int) -> tuple[bytes, bytes]:
        if (args, dims) not in self._made:
            step = EntryStep(SYMBOL, args, dims)
            texts = [emit_entry(n, [step] * k, self._target) for n, k in (("once", 1), ("burst", BURST))]
            once, burst = (compile_object(t, self._target, opt=1) for t in texts)
            self._made[args, dims] = (once, burst)
        return self._made[args, dims]


class LoadedKernel:
    """A candidate's code, its results and its tables. Free it with ``close``, or use it in a ``with`` statement.

    ``inputs``: equal lists of arrays (some of them the same arrays) that successive runs use in turn.
    """

    def __init__(
        self, built: Built, func: Func, dims: dict[str, int], inputs: Sequence[Sequence[np.ndarray]], target: Target,
        entries: Entries,
    ) -> None:  # fmt: skip
        self._inputs = inputs
        outputs = func.params[len(func.params) - func.outputs :]
        self.outputs = [GuardedArray(tuple(d.evaluate(dims) for d in b.shape), b.dtype.numpy) for b in outputs]
        self._spaces = [GuardedArray(shape, dtypes.from_name(name).numpy) for name, shape in built.workspaces]
        results = [address(g.array) for g in (*self.outputs, *self._spaces)]
        rows = [[*map(address, inputs[i % len(inputs)]), *results] for i in range(BURST)]
        self._pointers = np.array(rows, np.uint64)
        self._dims = np.array([dims[d] for d in func.dims] * BURST, np.int64)
        once, burst = entries.get(len(rows[0]), len(func.dims))
        self._library = Library([built.code, once, burst], ["once", "burst"], entry_imports(target))
        self._once = _ENTRY(self._library.addresses["once"])
        self._burst = _ENTRY(self._library.addresses["burst"])
        self._parallel = built.parallel
        self._pool = PoolHandle(target.threads, thread_pool_code())
        self._rows = [address(self._pointers[i]) for i in range(BURST)]
        self._next = 0

    def __enter__(self) -> LoadedKernel:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        self._library.close()

    def results(self) -> tuple[list[np.ndarray], float]:
        """The outputs of one run that starts with nothing computed, and the seconds it took."""
        for g in (*self.outputs, *self._spaces):
            g.poison()
        seconds = self.run(1)
        return [g.array for g in self.outputs], seconds

    def is_contained(self) -> bool:
        """True if nothing was written next to the outputs and workspaces."""
        return all(g.is_intact() for g in (*self.outputs, *self._spaces))

    def run(self, count: int) -> float:
        """Run ``count`` times; the seconds that took."""
        bursts, rest = divmod(count, BURST)
        first, self._next = self._next, (self._next + rest) % BURST
        singles = [self._rows[(first + i) % BURST] for i in range(rest)]
        rows, dims = self._rows[0], address(self._dims)
        once, burst = self._once, self._burst
        with self._pool.borrowed(self._parallel) as pool:
            start = time.perf_counter()
            for _ in range(bursts):
                burst(rows, dims, pool, None)
            for row in singles:
                once(row, dims, pool, None)
            return time.perf_counter() - start

    def run_cold(self, flush: Callable[[], object]) -> Callable[[int], float]:
        """As :meth:`run`, with ``flush`` called before every run and not counted."""

        def run(count: int) -> float:
            total = 0.0
            for _ in range(count):
                flush()
                total += self.run(1)
            return total

        return run


def cache_flusher(target: Target, entries: Entries) -> LoadedKernel:
    """A kernel that streams through twice the last cache on all threads."""
    size = min(_LARGEST_FLUSH, 2 * max(target.l3_bytes, target.l2_bytes * target.threads)) // 4
    a = placeholder("A", (size,), dtypes.float32)
    func = build_func("flush", [a], [compute("B", (size,), lambda i: a[i] + 1.0)])
    built = build_scheduled(default_trace(func, target).apply(func), target, {}, opt=1)
    return LoadedKernel(built, func, {}, [[np.ones(size, np.float32)]], target, entries)
