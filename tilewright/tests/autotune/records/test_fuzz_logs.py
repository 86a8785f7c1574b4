"""Logs damaged at random; :mod:`tilewright.tests.autotune.records.fuzz_logs` goes on as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tests.autotune.records.fuzz_logs import check, damaged, sample

FAILED = (21, 23, 112, 135, 662, 992, 3261)
"""Found: times beyond the calendar, numbers beyond all others, objects nested in front of a trace, bytes that are no
UTF-8 in lines of definitions and in those that name them."""


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_damaged_logs_are_read(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        check(seed, tmp_path)


@pytest.mark.parametrize("seed", FAILED)
def test_what_once_failed(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


def test_logs_are_damaged() -> None:
    """Half of the lines, and differently from seed to seed."""
    found = [damaged(seed) for seed in range(20)]
    assert len({data for data, _ in found}) == 20
    assert 0.3 < sum(len(good) for _, good in found) / (20 * len(sample())) < 0.8
