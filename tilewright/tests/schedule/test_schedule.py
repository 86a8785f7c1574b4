"""The examples of the user's handle run."""

from __future__ import annotations

import doctest

from tilewright.schedule import schedule


def test_examples_of_the_schedule_module() -> None:
    assert doctest.testmod(schedule).failed == 0
