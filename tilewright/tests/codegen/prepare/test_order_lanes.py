"""Vectorized loops whose lanes depend on each other run in order; those inside of lanes are written out."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.order_lanes import order_lanes
from tilewright.codegen.prepare.steps import prepare
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tensor_ir.text import parse_func

HOST = detect_host()
HEAD = "def f(A: float32[9, 9], C: out(float32[9, 9])):\n"
PLAIN = (
    HEAD
    + """
    for i in range(9):
        for j in vectorized(9):
            C[i, j] = A[j, i]
"""
)
ONE_PLACE = (
    HEAD
    + """
    for i in range(9):
        for z in range(9):
            C[i, z] = A[z, i]
        for j in vectorized(9):
            C[i, 0] = A[i, j]
"""
)
INNER_EXTENT = (
    HEAD
    + """
    for i in range(9):
        for z in range(9):
            C[i, z] = A[z, i]
        for j in vectorized(9):
            for k in range(j + 1):
                C[i, j] = add(C[i, j], A[i, k])
"""
)
NESTED = (
    HEAD
    + """
    for i in vectorized(9):
        for j in vectorized(9):
            C[i, j] = A[j, i]
"""
)
ONE_LANE = (
    HEAD
    + """
    for i in range(9):
        for one in vectorized(1):
            for j in vectorized(9):
                C[i + one, j] = A[j, i]
"""
)


def kinds(func: Func) -> dict[str, str]:
    return {s.var: s.kind for s in walk(func.body) if isinstance(s, Loop) and s.kind != "serial"}


@pytest.mark.parametrize(("text", "after"), [
    (PLAIN, {"j": "vectorized"}), (ONE_PLACE, {}), (INNER_EXTENT, {}), (NESTED, {"i": "vectorized", "j": "unrolled"}),
    (ONE_LANE, {"one": "vectorized", "j": "vectorized"}),
], ids=["plain", "one place", "inner extent", "nested", "one lane"])  # fmt: skip
def test_lanes(text: str, after: dict[str, str]) -> None:
    func = parse_func(text)
    assert kinds(order_lanes(func, HOST)) == after
    a = np.arange(81, dtype=np.float32).reshape(9, 9)
    (want,) = interpret(func, [a], {})
    np.testing.assert_array_equal(build(func)([a])[0], want)


def test_what_lies_in_a_workspace_has_no_copy_per_lane() -> None:
    func = parse_func(
        "def f(m: dim, A: float32[8, m], C: out(float32[8])):\n    for i in vectorized(8):\n"
        "        T = local(float32[m])\n        for j in range(m):\n            T[j] = A[i, j]\n        C[i] = T[0]\n"
    )
    assert kinds(prepare(func, HOST)) == {}
    a = np.arange(24, dtype=np.float32).reshape(8, 3)
    np.testing.assert_array_equal(build(func)([a], {"m": 3})[0], a[:, 0])
