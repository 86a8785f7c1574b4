"""Builds that check what they are about to compile."""

from __future__ import annotations

import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.config import from_environment
from tilewright.core.errors import VerifyError
from tilewright.kernels import build
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func


def copy(index: str) -> Func:
    return parse_func(
        "def f(X: float32[8], Y: out(float32[8])):\n"
        '    for i in range(8):\n        with block("Y", a=spatial(8, i)):\n'
        f"            Y[a] = X[{index}]"
    )


def test_builds_of_the_tests_are_checked() -> None:
    assert from_environment().verify


def test_a_function_that_reads_past_its_end_is_not_compiled() -> None:
    with pytest.raises(VerifyError, match="invariant 12"):
        build.build_kernels({"f": copy("a + 8")}, detect_host(), None)
    assert build.build_kernels({"f": copy("a")}, detect_host(), None)["f"].code


def test_a_schedule_that_breaks_a_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "schedule_by_rule", lambda func, target, decider: Schedule(copy("a + 8"), Trace(())))
    with pytest.raises(VerifyError, match="invariant 12"):
        build.build_kernels({"f": copy("a")}, detect_host(), None)


def test_other_builds_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    assert build.build_kernels({"f": copy("a + 8")}, detect_host(), None)["f"].code
