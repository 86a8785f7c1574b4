"""Memory in pages of its own, and the pool that constants lie in."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from llvmlite import binding

from tilewright.core.io import pages
from tilewright.core.io.pages import LARGE, Pool, fresh_pages, release_code, trim_heap, whole_pages


@pytest.mark.parametrize("nbytes", [0, 1, 4096, LARGE - 1, LARGE, 3 * LARGE + 5])
def test_fresh_pages_begin_at_a_page_and_can_be_written_to_their_end(nbytes: int) -> None:
    a = fresh_pages(nbytes)
    unit = 2 << 20 if nbytes >= LARGE else 4096
    assert a.nbytes == nbytes
    assert not a.any()
    if nbytes:
        assert a.__array_interface__["data"][0] % unit == 0
    assert whole_pages(nbytes) % unit == 0
    a[:] = 7
    assert (a == 7).all()


def test_placed_arrays_are_equal_aligned_apart_and_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_BLOCK", 4096)
    rng = np.random.default_rng(0)
    pool = Pool()
    shapes: list[tuple[int, ...]] = [(), (3,), (5, 7), (40, 30), (2, 3, 700), (0, 4)]
    types = [np.dtype(t) for t in (np.float32, np.int64, np.bool_, np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4)]
    given = [rng.integers(0, 2, s).astype(t) for s in shapes for t in types]
    placed = [pool.place(a) for a in given]
    for a, b in zip(given, placed, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(a, b)
        if a.size:
            assert b.__array_interface__["data"][0] % 64 == 0
            with pytest.raises(ValueError, match="read-only"):
                b[...] = 1


def test_strings_stay_where_they_are() -> None:
    a = np.array(["x", None], object)
    assert Pool().place(a) is a


def test_trimming_the_heap_changes_nothing() -> None:
    a = np.arange(1 << 16)
    trim_heap()
    assert (a == np.arange(1 << 16)).all()


def test_released_code_is_read_again_when_it_runs() -> None:
    triple = binding.get_default_triple()
    before = _resident("libllvmlite")
    release_code("libllvmlite")
    released = _resident("libllvmlite")
    assert binding.get_default_triple() == triple
    if before is None or released is None:
        pytest.skip("needs /proc/self/smaps, which this system does not have")
    assert before > 0
    assert released < 0.1 * before
    release_code("no such library")


def _resident(library: str) -> int | None:
    """Kilobytes of a library's code in memory."""
    maps = Path("/proc/self/smaps")
    if not maps.exists():
        return None
    total, mine = 0, False
    for line in maps.read_text(encoding="utf-8").splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            mine = rest[0] == "r-xp" and library in line
        elif mine and first == "Rss:":
            total += int(rest[0])
    return total
