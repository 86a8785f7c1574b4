"""Longest common and increasing subsequences, against the definition."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from tilewright.edit.differences import alignment
from tilewright.edit.differences.alignment import common_subsequence, increasing_subsequence


def _length(a: str, b: str) -> int:
    """The length of a longest common subsequence, by the usual table."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for j, y in enumerate(b):
            row.append(before[j] + 1 if x == y else max(row[-1], before[j + 1]))
    return row[-1]


@pytest.mark.parametrize("seed", range(40))
def test_common_subsequence(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = ("".join(rng.choice(list("abc"), rng.integers(0, 90))) for _ in range(2))
    pairs = common_subsequence(a, b)
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < n for (i, j), (k, n) in pairwise(pairs))
    assert len(pairs) == _length(a, b)


def test_sequences_that_are_too_long_keep_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "LARGEST", 8)
    assert common_subsequence("abcdz", "axxcz") == [(0, 0), (4, 4)]


@pytest.mark.parametrize("seed", range(20))
def test_increasing_subsequence(seed: int) -> None:
    numbers = np.random.default_rng(seed).permutation(9).tolist()
    found = increasing_subsequence(numbers)
    assert all(i < j and numbers[i] < numbers[j] for i, j in pairwise(found))
    rising = (c for n in range(10) for c in combinations(numbers, n) if list(c) == sorted(c))
    assert len(found) == max(map(len, rising))
