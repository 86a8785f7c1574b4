"""Arrays that notice, or forbid, being written where they should not be."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from tilewright.autotune.measure.guard_pages import GuardedArray, locked_copy
from tilewright.runtime.resources.arrays import address


@pytest.mark.parametrize("shape", [(3,), (1000, 7), ()])
def test_locked_copies_are_equal_and_closed(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    locked = locked_copy(np.asarray(a))
    np.testing.assert_array_equal(locked, a)
    assert address(locked) % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        locked[...] = 0


def test_empty() -> None:
    assert locked_copy(np.zeros((0, 4), np.int8)).shape == (0, 4)
    assert GuardedArray((0, 4), np.dtype(np.float32)).is_intact()


@pytest.mark.parametrize("at", [-1, 15 * 4])
def test_margins_show_stores_outside(at: int) -> None:
    guarded = GuardedArray((3, 5), np.dtype(np.float32))
    guarded.poison()
    assert np.isnan(guarded.array).all()
    assert guarded.is_intact()
    ctypes.c_uint8.from_address(address(guarded.array) + at).value = 0
    assert not guarded.is_intact()


def test_results_begin_at_the_same_place_of_a_page() -> None:
    kept = [GuardedArray((n,), np.dtype(np.float32)) for n in (3, 1000, 70_000, 3)]
    assert len({address(g.array) % mmap.PAGESIZE for g in kept}) == 1
