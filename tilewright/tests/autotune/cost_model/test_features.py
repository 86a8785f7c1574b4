"""Features: fixed length, finite, named, fast; each says what it should about schedules that differ in one thing."""

import sys

import numpy as np
import pytest

from tilewright.autotune.base.space import Space
from tilewright.autotune.cost_model.feature_blocks import FunctionWalk, memory_of
from tilewright.autotune.cost_model.feature_indices import IndexNumbers
from tilewright.autotune.cost_model.features import (
    COLUMNS,
    CYCLES_COLUMN,
    FEATURES,
    SCHEMA,
    SCHEMA_VERSION,
    TaskFeatures,
    features,
)
from tilewright.core.arith.expr import ceildiv, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.errors import InputError
from tilewright.schedule.default import default_trace
from tilewright.schedule.schedule import Schedule
from tilewright.tests.autotune.search.synthetic import TARGET
from tilewright.tests.schedule.helper import PROGRAMS, elementwise, gather, matmul
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like
from tilewright.tests.tensor_ir.random_programs import random_program

KERNELS = {
    "matmul": packed_matmul(128, 256, 64), "ragged": packed_matmul(127, 251, 64), "conv": conv(28, 28, 16, 64, 3, 1, 1),
    "softmax": softmax_like(64, 100),
}  # fmt: skip


def column(row, name):
    return float(row[FEATURES.index(name)])


def test_the_columns_are_named_once_and_versioned():
    assert len(set(COLUMNS)) == len(COLUMNS) == 2 * len(FEATURES)
    # a change of the columns asks for a new version and new numbers here
    assert (SCHEMA_VERSION, SCHEMA["columns"], SCHEMA["digest"]) == (2, 682, "cd2b858bba22855b")


@pytest.mark.parametrize("name", KERNELS)
def test_rows_are_finite_and_repeat(name):
    func = KERNELS[name]
    for scheduled in (func, default_trace(func, TARGET).apply(func)):
        row = features(scheduled, TARGET)
        assert row.shape == (len(FEATURES),)
        assert row.dtype == np.float32
        assert np.isfinite(row).all()
        np.testing.assert_array_equal(row, features(scheduled, TARGET))


@pytest.mark.parametrize("seed", range(8))
def test_any_function_has_features(seed):
    func = random_program(seed).func
    dims = {d: 5 for d in func.dims}
    for scheduled in (func, default_trace(func, TARGET).apply(func)):
        assert np.isfinite(features(scheduled, TARGET, dims)).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_empty_sizes_have_features(name):
    make = PROGRAMS[name]
    func = make(*(var(f"d{i}") for i in range(make.__code__.co_argcount)))
    assert np.isfinite(features(func, TARGET, dict.fromkeys(func.dims, 0))).all()


def test_a_task_compares_with_its_default_schedule():
    func = KERNELS["conv"]
    task = TaskFeatures(func, TARGET)
    default = default_trace(func, TARGET).apply(func)
    plain = task.row(func)
    assert not task.row(default)[len(FEATURES) :].any()
    np.testing.assert_array_equal(plain[: len(FEATURES)], features(func, TARGET))
    np.testing.assert_array_equal(plain[len(FEATURES) :], features(func, TARGET) - features(default, TARGET))


def test_a_missing_dim_is_named():
    func = elementwise(var("n"), 4)
    assert np.isfinite(features(func, TARGET, {"n": 9})).all()
    with pytest.raises(InputError, match=r"features: expected a value for dim n, got \[\]"):
        features(func, TARGET)


def test_work_is_counted_whatever_the_schedule():
    func = packed_matmul(128, 256, 64)
    plain, tiled = (features(f, TARGET) for f in (func, default_trace(func, TARGET).apply(func)))
    assert column(plain, "func.ops.fma") == pytest.approx(np.log2(1 + 128 * 256 * 64), rel=1e-5)
    assert column(tiled, "func.ops.fma") == pytest.approx(column(plain, "func.ops.fma"), rel=1e-5)


def test_a_register_tile_shows_in_accumulators_and_loads():
    func = default_trace(packed_matmul(128, 256, 64), TARGET).apply(packed_matmul(128, 256, 64))
    acc = next(b for b in FunctionWalk(func, TARGET, {}).facts.blocks if b.name == "acc")
    tiles = acc.unrolled
    assert acc.accumulators == tiles
    assert acc.load_ops_body == tiles / 2 + 2, "one broadcast per row, two vectors of the panel"
    assert acc.store_ops_body == 0, "the tile stays in registers"
    assert acc.lanes == 8
    assert acc.vector_utilisation == 1.0


def test_strides_tell_contiguous_broadcast_and_gathered():
    s = Schedule(matmul(16, 16, 16))
    s.reorder("C_i", "k", "C_j")
    s.vectorize("C_j")
    (b,) = FunctionWalk(s.func, TARGET, {}).facts.blocks
    assert (b.broadcast, b.gathered + b.strided) == (1.0, 0.0)
    s = Schedule(matmul(16, 16, 16))
    s.reorder("C_j", "k", "C_i")
    s.vectorize("C_i")
    (b,) = FunctionWalk(s.func, TARGET, {}).facts.blocks
    assert b.strided + b.gathered >= 2, "rows of A and C are apart"
    assert max(x.gathered for x in FunctionWalk(gather(8, 8), TARGET, {}).facts.blocks) == 0.0, "nothing is vectorized"


def test_a_vectorized_gather_is_irregular():
    s = Schedule(gather(8, 8))
    s.reorder("C_j", "C_i")
    s.vectorize("C_i")
    assert max(b.gathered for b in FunctionWalk(s.func, TARGET, {}).facts.blocks) > 0


def test_a_tensorized_nest_is_lanes_written_out():
    s = Schedule(matmul(6, 16, 64))
    s.reorder("k", "C_i", "C_j")
    s.decompose_reduction("C", "k")
    before = features(s.func, TARGET)
    s.tensorize("C_i", "outer_6x16_f32")
    row = features(s.func, TARGET)
    assert column(row, "func.loops.vectorized") == column(before, "func.loops.vectorized") + 1
    assert column(row, "func.loops.unrolled") == column(before, "func.loops.unrolled") + 1
    assert row[CYCLES_COLUMN] < before[CYCLES_COLUMN]


def test_balance_of_parallel_loops():
    s = Schedule(elementwise(3, 1 << 16))
    s.parallel("B_i")
    assert column(features(s.func, TARGET), "func.balance") == pytest.approx(0.75)
    assert column(features(elementwise(3, 1 << 16), TARGET), "func.parallel_share") == 0.0


def test_ragged_loops_are_partly_filled():
    s = Schedule(elementwise(1, 20))
    _, inner = s.split("B_j", (None, 8))
    s.vectorize(inner)
    (b,) = FunctionWalk(s.func, TARGET, {}).facts.blocks
    assert b.points == pytest.approx(20)
    assert b.fill == pytest.approx(20 / 24)


def test_tiling_lowers_the_predicted_traffic():
    func = matmul(256, 256, 256)
    plain = features(func, TARGET)
    s = Schedule(func)
    i, j, *inner = s.tile("C_i", "C_j", 32, 32)
    s.reorder(i, j, "k", *inner)
    assert column(features(s.func, TARGET), "func.traffic.l1") < column(plain, "func.traffic.l1")


def test_the_roofline_prefers_the_default_schedule():
    for func in KERNELS.values():
        plain, good = (features(f, TARGET)[CYCLES_COLUMN] for f in (func, default_trace(func, TARGET).apply(func)))
        assert good < plain - 1


def test_index_numbers():
    numbers = IndexNumbers({"n": 20})
    i, j = var("i"), var("j")
    assert numbers.enter("i", ceildiv(var("n"), 8)) == (3.0, 3.0)
    assert numbers.enter("j", minimum(8, var("n") - i * 8)) == (8.0, pytest.approx(20 / 3))
    assert numbers.strides(i * 8 + j, {}) == {"i": 8.0, "j": 1.0}
    assert numbers.strides((i * 8 + j) // 8, {}) == {"i": 1.0}
    assert numbers.strides((i * 8 + j) % 8, {}) == {"j": 1.0}
    assert numbers.strides(var("a") * 3, {"a": {"i": 2.0}}) == {"i": 6.0}


def test_features_take_few_calls():
    """A search asks for those of a thousand candidates per second, which leaves each some thousand Python calls."""
    rng = np.random.default_rng(0)
    space = Space(KERNELS["conv"], TARGET)
    found = [c.func for c in (space.sample(rng) for _ in range(12)) if c is not None]
    for func in found:
        features(func, TARGET)  # what is remembered of a family of candidates
    calls = 0

    def count(frame, event, arg):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    for func in found:
        features(func, TARGET)
    sys.setprofile(None)
    assert calls / len(found) < 2_000


@pytest.mark.parametrize("name", ["conv", "softmax"])
def test_what_is_remembered_changes_no_number(name):
    space, rng = Space(KERNELS[name], TARGET), np.random.default_rng(1)
    found = [space.default(), *(c for _ in range(12) if (c := space.sample(rng)) is not None)]
    together = [features(c.func, TARGET) for c in found]
    for c, row in zip(found, together, strict=True):
        memory_of.cache_clear()
        np.testing.assert_array_equal(features(c.func, TARGET), row)


def test_an_extent_that_divides_by_the_steps_of_a_loop_without_any():
    numbers = IndexNumbers({"n": 8})
    left = var("n") - 8
    assert numbers.enter("fused", left * 4) == (0.0, 0.0)
    assert numbers.enter("i", minimum(14, var("n") - var("fused") % left)) == (0.0, 0.0)
