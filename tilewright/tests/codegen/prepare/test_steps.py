"""The steps before emission: each is verified, prints, parses back, and leaves every value as it was."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.prepare import steps
from tilewright.codegen.prepare.steps import STEPS, prepare
from tilewright.core.errors import VerifyError
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, Func, walk
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.fuzz_jit import cases

COPY = """
def f(X: float32[8], Y: out(float32[8])):
    for i in range(8):
        Y[i] = X[i]
"""


@pytest.mark.parametrize("seed", range(40_000, 40_025))
def test_every_step_keeps_every_value(seed: int) -> None:
    for case in cases(seed):
        p = case.program
        want = interpret(p.func, p.args, p.dims)
        func = case.scheduled
        for name, step in STEPS.items():
            func = step(func, case.target)
            verify(func)
            assert parse_func(str(func)) == func, name
            for got, w in zip(interpret(func, p.args, p.dims), want, strict=True):
                np.testing.assert_allclose(got, w, rtol=1e-3, atol=1e-3, err_msg=f"{name}, {case.kind}")
        assert not [s for s in walk(func.body) if isinstance(s, Alloc) and s.buffer.scope == "local"]


def test_steps_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(func: Func, target: object) -> Func:
        return dataclasses.replace(func, body=parse_func(COPY.replace("X[i]", "X[i + 8]")).body)

    with pytest.raises(VerifyError, match="invariant 12"):
        prepare(broken(parse_func(COPY), None), detect_host())
    monkeypatch.setattr(steps, "STEPS", {"broken": broken})
    with pytest.raises(VerifyError, match="invariant 12"):
        prepare(parse_func(COPY), detect_host())
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    assert prepare(parse_func(COPY), detect_host())
