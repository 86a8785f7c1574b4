"""The most that a condition allows, and how often it is asked."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from tilewright.core.bisection import longest_within, taken_within


@pytest.mark.parametrize("most", [0, 1, 2, 7, 64])
def test_every_limit_is_found_in_few_questions(most: int) -> None:
    for limit in range(most + 1):
        asked: list[int] = []

        def is_within(n: int, limit: int = limit, asked: list[int] = asked) -> bool:
            asked.append(n)
            return n <= limit

        assert longest_within(most, is_within) == limit
        assert len(asked) == len(set(asked)) <= most.bit_length() + 1
        assert 0 not in asked


def test_nothing_is_found_where_only_nothing_is_allowed() -> None:
    assert longest_within(5, lambda n: False) == 0
    assert longest_within(-1, lambda n: False) == 0


def test_what_fits_behind_what_does_not() -> None:
    alone = {"a": 3.0, "b": 4.0, "c": 4.5, "d": 2.0, "e": 1.5, "f": 99.0}
    asked: list[tuple[str, ...]] = []

    def error(some: Sequence[str]) -> float:
        asked.append(tuple(some))
        return math.hypot(*(alone[x] for x in some))

    assert taken_within("abcd", alone, 5.0, error, 1) == ["a", "b"]
    assert taken_within("abcde", alone, 5.5, error, 1) == ["a", "b"]
    assert taken_within("abcde", alone, 5.5, error, 2) == ["a", "b", "d"]
    assert taken_within("cabde", alone, 5.0, error, 2) == ["c", "d"]
    assert taken_within("f", alone, 50.0, error, 3) == []
    assert not any("f" in some for some in asked)
