"""What a build does grows with the model: Python calls are counted, for models of n and of 2n nodes."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import parser

import tilewright
from tilewright.compile import Stage
from tilewright.core.arith.named import MAX_SIZE
from tilewright.core.plan import HostStep, Plan
from tilewright.graph_ir.ops.base import MAX_FORMULA
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tests.api.large_models import (
    MODELS,
    concat,
    maximum,
    pooled,
    shape_arithmetic,
    split,
    windowed_attention,
)

SIZES = {
    "chain": 100, "random_dag": 60, "convolutions": 20, "outputs": 100, "concat": 200, "split": 200, "maximum": 200,
    "nested_loops": 4, "shape_arithmetic": 20, "windowed_attention": 3,
    "pooled": 40,
}  # fmt: skip
GROWTH = 2.6


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python functions while ``work`` runs."""
    count = 0

    def note(frame: types.FrameType, event: str, given: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def growth(name: str, n: int, stage: Stage) -> float:
    """Calls for a model of 2n beyond a small one, over those for n beyond it."""
    models = [MODELS[name](k) for k in (1, 1 + n, 1 + 2 * n)]
    small, single, double = (calls_of(partial(tilewright.compile, m, stop_after=stage, threads=2)) for m in models)
    return (double - small) / (single - small)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_passes_and_lowering_are_linear(name: str) -> None:
    tilewright.compile(MODELS[name](2), stop_after="lower", threads=2)
    assert growth(name, SIZES[name], "lower") < GROWTH


@pytest.mark.parametrize("name", ["chain", "convolutions"])
def test_schedules_are_linear(name: str) -> None:
    tilewright.compile(MODELS[name](2), stop_after="schedule", threads=2)
    assert growth(name, SIZES[name] // 4, "schedule") < GROWTH


def sizes_in(blocks: int) -> set[str]:
    """The sizes in the result of so many blocks of attention in windows."""
    graph = tilewright.compile(windowed_attention(blocks), stop_after="import")
    return {str(d) for name in graph.outputs for d in graph.values[name].shape}


def test_an_image_padded_rolled_and_cropped_has_its_own_size_again() -> None:
    assert sizes_in(1) == sizes_in(4) == {"1", "h", "w", "8"}


def test_blocks_of_one_kind_share_their_kernels() -> None:
    few, many = (len(tilewright.compile(windowed_attention(n), stop_after="lower").funcs) for n in (2, 6))
    assert few == many


@pytest.mark.parametrize("levels", [2, 6, 40])
def test_sizes_that_are_long_formulas_are_found_at_the_call(levels: int) -> None:
    model = tilewright.compile(shape_arithmetic(levels))
    for size in (1, 7, 90):
        wanted = size
        for k in range(levels):
            wanted = min(max((wanted + 1) // (2 + k % 2), 3) * 2, wanted)
        (y,) = model.run({"x": np.zeros((size, 2), np.float32)}).values()
        assert y.shape == (wanted, 2)
        np.testing.assert_array_equal(y, np.full((wanted, 2), 0.5, np.float32))
    graph = tilewright.compile(shape_arithmetic(levels), stop_after="passes")
    assert all(d.size <= MAX_FORMULA for v in graph.values.values() for d in v.data or ())


@pytest.mark.parametrize("levels", [1, 7, 40])
def test_sizes_made_of_sizes(levels: int) -> None:
    model = tilewright.compile(pooled(levels))
    for size in (16, 33, 100):
        x = np.random.default_rng(size).standard_normal((1, 2, size, 3)).astype(np.float32)
        wanted = x
        for _ in range(levels):
            n = wanted.shape[2] // 16
            part = wanted[:, :, : n * 16].reshape(1, 2, n, 16, 3).max(axis=3)
            wanted = np.concatenate([part, wanted], axis=2)
        np.testing.assert_array_equal(model.run({"v0": x})[f"v{levels}"], wanted)


def test_sizes_made_of_sizes_stay_short() -> None:
    graph = tilewright.compile(pooled(500), stop_after="import")
    assert max(d.size for v in graph.values.values() for d in v.shape) <= MAX_SIZE
    assert len(tilewright.compile(pooled(500), stop_after="lower").funcs) < 20


def host_steps(plan: Plan) -> Iterator[str]:
    return (s.op for s in plan.steps if isinstance(s, HostStep))


@pytest.mark.parametrize(("count", "wanted"), [(128, set()), (129, {"Split", "Sum"}), (3000, {"Split", "Sum"})])
def test_operators_of_very_many_operands_run_on_the_host(count: int, wanted: set[str]) -> None:
    model = tilewright.compile(split(count))
    x = np.arange(3 * count, dtype=np.float32).reshape(count, 3) % 7
    np.testing.assert_array_equal(model.run({"x": x})["y"], x.sum(axis=0, keepdims=True))
    assert set(host_steps(tilewright.compile(split(count), stop_after="lower").plan)) == wanted


@pytest.mark.parametrize("count", [127, 128, 2000])
def test_concat_and_max_of_very_many_operands(count: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    factors = np.arange(count, dtype=np.float32) % 7 + 2
    joined = tilewright.compile(concat(count)).run({"x": x})["y"]
    np.testing.assert_array_equal(joined, (factors[:, None, None] * x).reshape(2 * count, 3))
    largest = tilewright.compile(maximum(count)).run({"x": x})["y"]
    np.testing.assert_array_equal(largest, np.full((2, 3), count - 2, np.float32))
    assert "128 of a kernel" in tilewright.compile(concat(129)).explain()


def test_a_sample_of_cubic_interpolation_is_written_out_once() -> None:
    """Sixteen taps, each mirrored at both ends: four vectors side by side were 4 MB of LLVM IR."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n,c,h,w] x, float[n,p,q,2] at) => (float[n,c,p,q] y)
        { y = GridSample<mode = "cubic", padding_mode = "reflection">(x, at) }""")
    funcs = tilewright.compile(model, cache=False, progress=False, stop_after="schedule")
    loops = [s.kind for f in funcs.values() for s in walk(f.body) if isinstance(s, Loop) and s.var.startswith("o0")]
    assert "vectorized" in loops
    assert "unrolled" not in loops
