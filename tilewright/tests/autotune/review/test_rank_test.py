"""The rank test against counting all arrangements, known tables, and what it must not do: find what is not there."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.autotune.review.rank_test import holm, rank_test, smallest_p


def _counted(a: list[float], b: list[float]) -> float:
    """All ways to draw the first sample's values from both: how many are as far from the middle."""
    both = a + b
    ranks = [sum(x < y for x in both) + (sum(x == y for x in both) + 1) / 2 for y in both]
    middle = sum(ranks) * len(a) / len(both)
    far = abs(sum(ranks[: len(a)]) - middle)
    sums = [sum(ranks[i] for i in chosen) for chosen in itertools.combinations(range(len(both)), len(a))]
    return sum(abs(s - middle) >= far - 1e-9 for s in sums) / len(sums)


@pytest.mark.parametrize("seed", range(20))
def test_all_arrangements_are_counted(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(0, 6, rng.integers(1, 6)).astype(float).tolist() for _ in range(2))
    assert rank_test(a, b) == pytest.approx(_counted(a, b))
    assert rank_test(a, b) == pytest.approx(rank_test(b, a))


def test_known_values() -> None:
    """Of a table of critical values: n = m = 5, U = 2 has p = 0.0317 in both directions, U = 3 0.0556."""
    low = [1.0, 2.0, 3.0, 4.0, 7.0]
    assert rank_test(low, [5.0, 6.0, 8.0, 9.0, 10.0]) == pytest.approx(8 / 252)
    assert rank_test([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]) == pytest.approx(0.1)
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(9, 9) == pytest.approx(2 / 48620)
    assert rank_test([], [1.0]) == 1.0
    assert rank_test([2.0] * 5, [2.0] * 7) == 1.0


def test_many_values() -> None:
    """Beyond 64 by the normal distribution, near what counting gives."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.0, 1.0, 32), rng.normal(0.6, 1.0, 32)
    exact = rank_test(a.tolist(), b.tolist())
    more = rank_test([*a.tolist(), 0.3], b.tolist())
    assert 0.5 < more / exact < 2.0
    assert rank_test([1.0] * 50, [1.0] * 50) == 1.0
    assert rank_test(list(map(float, range(50))), list(map(float, range(100, 150)))) < 1e-12


def test_chance_is_found_as_often_as_it_says() -> None:
    """Equal distributions with outliers: 5 % of the tests are below 5 %, not more."""
    rng = np.random.default_rng(1)
    draws = rng.exponential(1.0, (400, 18)) ** 3
    found = sum(rank_test(d[:9].tolist(), d[9:].tolist()) < 0.05 for d in draws)
    assert 6 <= found <= 34


def test_holm() -> None:
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.5})
    assert found == pytest.approx({"a": 0.04, "c": 0.09, "b": 0.09, "d": 0.5})
    assert holm({}) == {}
