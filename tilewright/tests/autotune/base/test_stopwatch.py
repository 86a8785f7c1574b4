"""Seconds by part. Time is a number here."""

from __future__ import annotations

import pytest

from tilewright.autotune.base.stopwatch import Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_inside_counts_for_the_inner_part_alone() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    clock.now = 5.0  # nothing is open: nobody's
    with watch.part("outer"):
        clock.now += 1.0
        for _ in range(2):
            with watch.part("inner"):
                clock.now += 2.0
            clock.now += 0.5
    clock.now += 7.0
    with watch.part("last"):
        clock.now += 0.25
    assert watch.seconds == {"outer": 2.0, "inner": 4.0, "last": 0.25}
    assert list(watch.seconds) == ["outer", "inner", "last"]


def test_a_part_ends_with_an_error() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    with pytest.raises(KeyError), watch.part("outer"), watch.part("inner"):  # noqa: PT012 - the clock goes on
        clock.now += 1.0
        raise KeyError
    clock.now += 9.0
    with watch.part("next"):
        clock.now += 1.0
    assert watch.seconds == {"outer": 0.0, "inner": 1.0, "next": 1.0}


def test_moving_keeps_the_sum() -> None:
    clock = Clock()
    watch = Stopwatch(clock)
    with watch.part("running"):
        clock.now += 3.0
    watch.move("running", "waiting", 1.0)
    assert watch.seconds == {"running": 2.0, "waiting": 1.0}
