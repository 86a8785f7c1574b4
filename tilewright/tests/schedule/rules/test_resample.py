"""Rows made in vectors and picked from (resizing): numbers on awkward sizes, and where the rows are made."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret as interpret_graph
from tilewright.graph_ir.ir import Graph
from tilewright.schedule.default import default_trace
from tilewright.schedule.rules.resample import sampled_stage
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import loops_around
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, walk
from tilewright.tests.lowering.lowered import lower

Dim = int | str


def resized(
    n: Dim, h: Dim, w: Dim, sizes: tuple[int, int], channels: int = 3, interleaved: bool = True, mode: str = "linear",
    antialias: int = 0,
) -> Graph:  # fmt: skip
    """Pixels of bytes, channels together or apart, to planes of floats."""
    b = GraphBuilder("resized")
    shape = (n, h, w, channels) if interleaved else (n, channels, h, w)
    x = b.input("x", "uint8", shape)
    if interleaved:
        x = b.op("Transpose", x, perm=(0, 3, 1, 2))
    y = b.op(
        "Resize", b.op("Cast", x, to=dtypes.float32), None, None, np.array(sizes, np.int64), axes=(2, 3), mode=mode,
        antialias=antialias,
    )  # fmt: skip
    return b.build(b.op("Mul", y, np.float32(0.5)))


CASES: list[tuple[Graph, dict[str, int]]] = [
    (resized(1, 12, 40, (9, 23)), {}),
    (resized(2, 13, 17, (5, 31), interleaved=False), {}),
    (resized(1, 5, 7, (11, 16), channels=4), {}),
    (resized(1, 1, 1, (4, 3)), {}),
    (resized(2, 9, 37, (1, 1), channels=1), {}),
    (resized(1, 12, 40, (9, 23), mode="cubic"), {}),
    (resized(1, 31, 23, (9, 5), antialias=1), {}),
    (resized(1, "h", "w", (9, 23)), {"h": 12, "w": 40}),
    (resized(1, "h", "w", (9, 23)), {"h": 1, "w": 5}),
    (resized("n", "h", "w", (16, 8), interleaved=False), {"n": 2, "h": 7, "w": 19}),
    (resized("n", "h", "w", (16, 8), interleaved=False), {"n": 0, "h": 7, "w": 19}),
    (resized("n", "h", "w", (6, 13), mode="cubic"), {"n": 2, "h": 5, "w": 11}),
    (resized(1, "h", "w", (6, 13), antialias=1), {"h": 20, "w": 17}),
    (resized(1, "h", "w", (9, 16), antialias=1, channels=4), {"h": 30, "w": 48}),
    (resized("n", "h", "w", (6, 13), antialias=1, interleaved=False), {"n": 2, "h": 11, "w": 70}),
    (resized("n", "h", "w", (6, 13), antialias=1, interleaved=False), {"n": 1, "h": 1, "w": 1}),
    (resized(1, "h", "w", (3, 5), antialias=1, mode="cubic"), {"h": 20, "w": 17}),
    (resized(2, 40, 70, (3, 16), antialias=1, interleaved=False), {}),
]


@pytest.mark.parametrize(("graph", "dims"), CASES, ids=[str(k) for k in range(len(CASES))])
@pytest.mark.parametrize("threads", [1, 2])
def test_numbers(graph: Graph, dims: dict[str, int], threads: int) -> None:
    low = lower(graph)
    target = detect_host().with_threads(threads)
    trace = default_trace(low.func, target)
    shape = [d.evaluate(dims) for d in graph.values["x"].shape]
    x = np.random.default_rng(1).integers(0, 255, shape, dtype=np.uint8)
    args = [x, *(p.evaluate(graph.constants) for p in low.constants)]
    (plain,) = interpret(trace.apply(low.func), args, dims)
    if x.size:
        want = np.asarray(interpret_graph(graph, {"x": x})[graph.outputs[0]])
        np.testing.assert_allclose(plain, want, rtol=1e-4, atol=1e-3)
    (got,) = build(trace.apply(low.func), target)(args, dims, threads)
    np.testing.assert_allclose(got, plain, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("h", [12, "h"])
def test_rows_are_made_where_they_are_read(h: Dim) -> None:
    low = lower(resized(1, h, 40, (9, 23)))
    after = default_trace(low.func, detect_host().with_threads(2)).apply(low.func)
    rows = loops_around(after, "o0")[0]
    made = loops_around(after, "resize")
    assert made[0] is rows
    assert rows.extent == 9
    assert made[-1].kind == "vectorized"
    assert len([x for x in made if x.kind != "vectorized" and x.extent != 1]) <= 3, "columns and channels are one loop"


@pytest.mark.parametrize("w", [70, "w"])
def test_filters_keep_vectors_in_registers(w: Dim) -> None:
    low = lower(resized(1, 40, w, (9, 16), antialias=1))
    after = default_trace(low.func, detect_host().with_threads(2)).apply(low.func)
    local = {s.buffer.name for s in walk(after.body) if isinstance(s, Alloc) and s.buffer.scope == "local"}
    assert {"resize_global", "resize_1"} <= local
    for block in ("resize", "resize_1"):
        *around, last = loops_around(after, block)
        assert last.kind == "vectorized"
        taps = [x for x in around if x.kind == "serial"][-1]
        assert taps.var.startswith("tap")
        assert {x.kind for x in around[around.index(taps) + 1 :]} <= {"unrolled"}
    assert loops_around(after, "resize")[0] is loops_around(after, "o0")[0]


def test_what_has_no_rows() -> None:
    b = GraphBuilder("nearest")
    x = b.input("x", "float32", (1, 3, 8, 8))
    nearest = lower(b.build(b.op("Resize", x, None, None, np.array([1, 3, 5, 5], np.int64), mode="nearest")))
    for name in Schedule(nearest.func).blocks():
        assert sampled_stage(Schedule(nearest.func), name) is None
    s = Schedule(lower(resized(1, 12, 40, (9, 23))).func)
    assert sampled_stage(s, "resize_1") == "resize"
    assert sampled_stage(s, "resize") is None, "rows are picked, not elements of rows"
