"""The user's schedule: run it, time it, look at it."""

from __future__ import annotations

import doctest
import io
import re
import sys

import pytest

import tilewright
from tilewright.api import schedule as scheduling
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.console import coloured
from tilewright.core.errors import InputError, MeasurementError
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.ir import Func
from tilewright.tests.screen import Screen


def doubled() -> Func:
    a = placeholder("A", (var("n"),), dtypes.float32)
    return build_func("doubled", [a], [compute("B", (var("n"),), lambda i: a[i] + a[i])])


def test_the_example_runs() -> None:
    assert doctest.testmod(scheduling).failed == 0


def test_a_schedule_is_timed_in_another_process() -> None:
    s = tilewright.Schedule(doubled())
    s.vectorize(s.split("B_i", (None, 8))[1])
    found = s.time({"n": 1000}, repeat=2, min_repeat_ms=0.0)
    assert len(found.samples) == 2
    assert found.seconds > 0
    assert found.error == 0.0
    assert s.mod is s.func


def test_a_copy_is_of_the_same_kind() -> None:
    assert isinstance(tilewright.Schedule(doubled()).copy(), tilewright.Schedule)


def test_sizes_are_asked_for() -> None:
    with pytest.raises(InputError, match="task doubled: expected a size for every dim, got none for n"):
        tilewright.Schedule(doubled()).time()


def test_what_cannot_be_timed_is_an_error_of_its_own() -> None:
    s = tilewright.Schedule(doubled())
    s.trace = tilewright.Trace.from_text('split("nowhere", factors=(None, 2))')
    with pytest.raises(MeasurementError, match=r"time\(doubled\): illegal: .*split\(nowhere\): expected the name"):
        s.time({"n": 8}, repeat=1)


def test_colours_are_for_terminals_and_change_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    s = tilewright.Schedule(doubled())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "10")
    for out, colours in ((Screen(1000), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stdout", out)
        s.show()
        assert ("\x1b[" in out.getvalue()) is colours
        assert re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()) == f"{s}\n"
    shown = coloured('parallel for i in range(8): x = "in" + float32(1.5)')
    assert [(shown.plain[a:b], style) for a, b, style in shown.spans] == [
        ("parallel", "yellow"), ("for", "magenta"), ("in", "magenta"), ("range", "magenta"), ("8", "cyan"),
        ('"in"', "green"), ("float32", "blue"), ("1.5", "cyan"),
    ]  # fmt: skip
