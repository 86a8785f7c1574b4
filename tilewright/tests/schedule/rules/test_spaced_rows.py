"""Rows that lie whole pages apart are put apart where a set of the first-level cache has not the ways for a tile."""

import dataclasses

import numpy as np
import pytest

from tilewright.codegen.kernel import build
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tests.schedule.kernels import conv, packed_matmul

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 8192, 1 << 18, 1 << 23, 1)
"""Two ways, and tiles of six rows."""


def copy_of_rows(rows: int, columns: int, depth: int, target: Target) -> list[int | None] | None:
    """The shape of the copy that the default schedule makes of A, if any; the kernel computes what it should."""
    func = packed_matmul(rows, columns, depth)
    after = default_trace(func, target).apply(func)
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (rows, depth)).astype(np.float32)
    bp = rng.integers(-3, 4, (columns // 16, depth, 16)).astype(np.float32)
    (got,) = build(after)([a, bp, np.zeros(columns, np.float32)], {}, target.threads)
    expected = np.maximum(a @ bp.transpose(1, 0, 2).reshape(depth, columns), 0)
    np.testing.assert_array_equal(got, expected)
    copies = [[d.value() for d in b.shape] for b in buffers(after) if b.name == "A_global"]
    return copies[0] if copies else None


@pytest.mark.parametrize(
    ("rows", "columns", "found"), [(20, 256, [20, 1040]), (400, 128, [400, 1040]), (20, 64, None), (1, 256, None)]
)
def test_a_copy_has_rows_in_sets_of_their_own(rows: int, columns: int, found: list[int] | None) -> None:
    assert copy_of_rows(rows, columns, 1024, TARGET) == found


@pytest.mark.parametrize("depth", [1000, 1040])
def test_rows_that_do_not_crowd_stay(depth: int) -> None:
    assert copy_of_rows(20, 256, depth, TARGET) is None


def test_more_ways_take_the_rows_as_they_lie() -> None:
    assert copy_of_rows(20, 256, 1024, dataclasses.replace(TARGET, l1_bytes=32768)) is None


@pytest.mark.parametrize("threads", [1, 2])
def test_what_threads_may_not_pay_for_is_not_copied(threads: int) -> None:
    assert (copy_of_rows(8, 128, 1024, TARGET.with_threads(threads)) is not None) == (threads == 1)


def test_half_a_page_apart_takes_half_as_many_ways() -> None:
    assert copy_of_rows(20, 256, 1536, dataclasses.replace(TARGET, l1_bytes=4 * 4096)) is None
    assert copy_of_rows(20, 256, 1536, TARGET) == [20, 1040 + 1024]


def test_a_stage_that_makes_the_operand_has_the_room_itself() -> None:
    func = conv(4, 8, 1024, 16, 3, 1, 1)
    after = default_trace(func, TARGET).apply(func)
    assert [b.shape[-1].value() for b in buffers(after) if b.name == "Xp"] == [1040]
