"""How sizes that a model takes for granted are judged."""

from __future__ import annotations

import pytest

from tilewright.core.arith.expr import var
from tilewright.core.assumptions import Assumption, Ones, Sizes

EQUAL, BROADCAST, UNFIT = Sizes.EQUAL, Sizes.BROADCAST, Sizes.UNFIT


@pytest.mark.parametrize(
    ("ones", "verdicts"),
    [
        (Ones.NEITHER, (EQUAL, UNFIT, UNFIT, UNFIT)),
        (Ones.RIGHT, (EQUAL, UNFIT, BROADCAST, UNFIT)),
        (Ones.EITHER, (EQUAL, BROADCAST, BROADCAST, UNFIT)),
    ],
)
def test_verdicts(ones: Ones, verdicts: tuple[Sizes, ...]) -> None:
    a = Assumption(var("n"), var("m"), "add", ones)
    pairs = ((5, 5), (1, 5), (5, 1), (5, 6))
    assert tuple(a.met_by({"n": n, "m": m}) for n, m in pairs) == verdicts


def test_a_division_by_a_size_of_zero_fits_nothing() -> None:
    a = Assumption(var("n") // var("m"), var("n"), "view")
    assert a.met_by({"n": 4, "m": 0}) is UNFIT
    assert "got (n//m) = None and n = 4" in a.refusal({"n": 4, "m": 0})


def test_refusal() -> None:
    a = Assumption(var("n") + 1, var("m"), "add")
    message = "node 'add': expected dimensions that agree, got n + 1 = 3 and m = 4 (m=4, n=2)"
    assert a.refusal({"n": 2, "m": 4}) == message
