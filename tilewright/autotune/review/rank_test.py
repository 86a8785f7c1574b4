"""Are two samples from one distribution? The test of Mann and Whitney (also of Wilcoxon, for two samples), and Holm's
correction for many of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

_K = TypeVar("_K")

_EXACT = 64
"""Up to so many values of both samples the distribution is counted, above it is taken to be normal."""


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """The probability, if both are from one distribution, that the sums of their ranks are at least as far apart as
    they are, in either direction; equal values share their rank. 1 if one is empty.

    Exact for up to 64 values, ties included: all ways to draw ``len(a)`` of the ranks are counted. Source: Mann and
    Whitney, On a test of whether one of two random variables is stochastically larger than the other, 1947.
    """
    if not a or not b:
        return 1.0
    ranks = _doubled_ranks([*a, *b])
    total, observed = sum(ranks), sum(ranks[: len(a)])
    expected = total * len(a) / len(ranks)  # of the doubled sum
    distance = abs(observed - expected)
    if len(ranks) > _EXACT:
        return _normal(ranks, len(a), distance)
    ways = _ways(ranks, len(a))
    far = sum(n for s, n in ways.items() if abs(s - expected) >= distance - 1e-9)
    return far / math.comb(len(ranks), len(a))


def smallest_p(n: int, m: int) -> float:
    """The least that :func:`rank_test` can give for ``n`` and ``m`` values: with too few nothing is significant."""
    return min(1.0, 2.0 / math.comb(n + m, n))


def holm(found: Mapping[_K, float]) -> dict[_K, float]:
    """Probabilities of many tests, corrected: below 5 % for any only with a probability of 5 %, if there is no
    difference in all of them. Source: Holm, A simple sequentially rejective multiple test procedure, 1979."""
    out: dict[_K, float] = {}
    least = 0.0
    for done, (name, p) in enumerate(sorted(found.items(), key=lambda x: x[1])):
        least = max(least, min(1.0, p * (len(found) - done)))
        out[name] = least
    return out


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that shared ranks are whole."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    out = [0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            out[i] = start + end + 1  # twice the mean of start + 1 ... end
        start = end
    return out


def _ways(ranks: Sequence[int], count: int) -> dict[int, int]:
    """In how many ways ``count`` of the ranks have each sum."""
    ways: list[dict[int, int]] = [{0: 1}, *({} for _ in range(count))]
    for r in ranks:
        for k in range(count, 0, -1):
            for s, n in ways[k - 1].items():
                ways[k][s + r] = ways[k].get(s + r, 0) + n
    return ways[count]


def _normal(ranks: Sequence[int], count: int, distance: float) -> float:
    n = len(ranks)
    mean = sum(ranks) / n
    spread = sum((r - mean) ** 2 for r in ranks) / (n - 1)
    deviation = math.sqrt(count * (n - count) * spread / n)
    return math.erfc(distance / (deviation * math.sqrt(2.0))) if deviation else 1.0
