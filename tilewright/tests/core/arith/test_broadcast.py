"""The atom ``broadcast(...)``: canonical form, text, values, bounds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.core.arith.bounds import interval
from tilewright.core.arith.broadcast import broadcasted
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.arith.parse import parse

A, B, C = var("a"), var("b"), var("c")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (broadcasted(), "1"),
        (broadcasted(A), "a"),
        (broadcasted(A, 1), "a"),
        (broadcasted(A, A), "a"),
        (broadcasted(B, A), "broadcast(a, b)"),
        (broadcasted(broadcasted(A, B), C), "broadcast(a, b, c)"),
        (broadcasted(broadcasted(A, B), B), "broadcast(a, b)"),
        (broadcasted(A, 7, B), "7"),
        (broadcasted(minimum(A, 512), A), "a"),
        (broadcasted(minimum(A, 512), B), "broadcast(b, min(512, a))"),
        (broadcasted(minimum(A, 1), A), "broadcast(a, min(1, a))"),
        (broadcasted(minimum(A, B), A), "broadcast(a, min(a, b))"),
        (broadcasted(A, 0), "0"),
        (broadcasted(A + 1, B) * 2 + 3, "broadcast(a + 1, b)*2 + 3"),
    ],
)
def test_text(e: IntExpr, text: str) -> None:
    assert str(e) == text
    assert parse(text) == e


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_values_are_numpys(n: int) -> None:
    e = broadcasted(A, B, C)
    for sizes in itertools.product({1, n}, repeat=3):
        env = dict(zip("abc", sizes, strict=True))
        (want,) = np.broadcast_shapes(*((s,) for s in sizes))
        assert e.evaluate(env) == want
        assert e.substitute(env) == const(want)
        assert e.substitute({"a": env["a"]}).evaluate(env) == want


def test_bounds() -> None:
    assert interval(broadcasted(A, B), {}) == (0, None)
    assert interval(broadcasted(A, B), {"a": (const(1), const(4)), "b": (const(1), const(9))}) == (1, 9)
