"""Kernels that read and write at positions from memory, run on arrays with forbidden pages on both sides.

    python -m tilewright.tests.lowering.foreign_memory

prints each case before it runs, so that the last line names the one that ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import numpy as np

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.frontend import from_onnx
from tilewright.lowering.group import lower_group
from tilewright.schedule.default import default_trace
from tilewright.tests.api.indexed import CASES, INDEX, Case, Feed, plain
from tilewright.tests.lowering.lowered import group_of

NATIVE = {n: c for n, c in CASES.items() if c.op not in ("Unsqueeze", "ReduceSum")}
_KEPT: list[mmap.mmap] = []


def fenced(array: np.ndarray, at_end: bool) -> np.ndarray:
    """A copy of ``array`` that touches a page which nobody may read or write: behind it, or before it."""
    page = mmap.PAGESIZE
    inside = -(-max(array.nbytes, 1) // page) * page
    mapping = mmap.mmap(-1, inside + 2 * page)
    _KEPT.append(mapping)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for fence in (start, start + page + inside):
        if protect(ctypes.c_void_p(fence), ctypes.c_size_t(page), ctypes.c_int(0)):
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = page + (inside - array.nbytes if at_end else 0)
    out: np.ndarray = np.ndarray(array.shape, array.dtype, mapping, offset)
    out[...] = array
    return out


def feeds(case: Case) -> Iterator[Feed]:
    """Indices at the edges, far away, and at the ends of their type; regions that are no numbers."""
    ends = np.iinfo(case.feed(0)[INDEX].dtype)
    for index in (case.low, case.high, case.low - 1, case.high + 1, 1 << 20, -(1 << 20), int(ends.min), int(ends.max)):
        yield case.feed(index)
    if case.op == "RoiAlign":
        for value in (np.nan, np.inf, -np.inf, 1e30, -1e30):
            yield {**case.feed(0), "r": np.full((2, 4), value, np.float32)}


def run(name: str, clamps: bool, symbolic: bool) -> None:
    """Every feed, in arrays with a fence behind and before them, on one thread and on two."""
    case = NATIVE[name]
    graph = from_onnx(plain(case, symbolic=symbolic))
    host = detect_host().with_threads(2)
    low = lower_group(graph, group_of(graph), host, clamps)
    kernel = build(default_trace(low.func, host).apply(low.func))
    for k, feed in enumerate(feeds(case)):
        print(f"{name} clamps={clamps} symbolic={symbolic} feed {k}", flush=True)
        dims = {str(d): n for i in graph.inputs for d, n in zip(graph.values[i].shape, feed[i].shape, strict=True)}
        args = [feed[i] for i in low.inputs] + [p.evaluate(graph.constants) for p in low.constants]
        arrays, outputs = kernel.arguments(args, {d: dims[d] for d in low.func.dims})
        for at_end in (True, False):
            for threads in (1, 2):
                kernel.run([fenced(a, at_end) for a in arrays], {d: dims[d] for d in low.func.dims}, threads)
        del outputs


def main() -> None:
    for name in NATIVE:
        for clamps in (False, True):
            run(name, clamps, symbolic=False)
        run(name, True, symbolic=True)
    print("done")


if __name__ == "__main__":
    main()
