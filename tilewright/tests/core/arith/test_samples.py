"""Sample points refute what is false without a search, and never what is true; a search ends in any case."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.arith import bounds
from tilewright.core.arith.bounds import is_nonneg, loop_range
from tilewright.core.arith.expr import IntExpr, ceildiv, const, var
from tilewright.core.arith.minmax import maximum, minimum, with_parts_joined
from tilewright.core.arith.samples import is_refuted, sample_points
from tilewright.tests.core.arith.test_expr import build, trees

W, TILE, ROW = var("w"), var("tile"), var("row")
TILES = (("tile", loop_range(ceildiv(W, 6))), ("row", loop_range(6)))


def test_that_the_last_tile_is_whole_is_refuted_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = W - TILE * 6 - ROW - 1
    assert is_refuted(whole, TILES)
    monkeypatch.setattr(bounds, "_Proof", None)
    assert not is_nonneg(whole, dict(TILES))


def test_what_is_true_is_not_refuted_and_proved() -> None:
    started = W - TILE * 6 - 1
    assert not is_refuted(started, TILES)
    assert is_nonneg(started, dict(TILES))


def test_a_loop_without_a_step_refutes_nothing() -> None:
    assert not list(sample_points((("i", loop_range(0)),)))
    assert not is_refuted(const(-1) - var("i"), (("i", loop_range(0)),))


@given(trees(), st.integers(-3, 3))
@settings(max_examples=200, deadline=None)
def test_a_refuted_statement_has_a_counterexample(tree: object, shift: int) -> None:
    e = build(tree) + shift
    if is_refuted(e, ()):
        assert any(e.evaluate(p) < 0 for p in sample_points(()))


def nested(levels: int) -> IntExpr:
    """A size of ``levels`` levels, each of which reads the one before twice."""
    size = W
    for k in range(levels):
        size = minimum(maximum(ceildiv(size, 2 + k % 2), 3) * 2, size)
    return size


@pytest.mark.parametrize("levels", [4, 8])
def test_a_search_ends_after_so_many_goals(levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    goals = 0
    follows = bounds._Proof._follows

    def counted(self: bounds._Proof, e: IntExpr, depth: int) -> bool:
        nonlocal goals
        goals += 1
        return follows(self, e, depth)

    monkeypatch.setattr(bounds._Proof, "_follows", counted)
    monkeypatch.setattr(bounds, "is_refuted", lambda e, ranges: False)
    assert not is_nonneg(nested(levels) * 3 - nested(levels - 1) - TILE * 5 - ROW, dict(TILES))
    assert 0 < goals <= 256


@pytest.mark.parametrize("size", [0, 1, 2, 3, 17])
def test_the_parts_of_what_was_cut_are_the_whole(size: int) -> None:
    x = W + var("p") % 4
    parts = minimum(x, 2) + maximum(x - 2, 0)
    assert with_parts_joined(parts) == x
    assert with_parts_joined(parts * 3 + var("q")) == x * 3 + var("q")
    assert parts.evaluate({"w": size, "p": 7}) == x.evaluate({"w": size, "p": 7})
    assert with_parts_joined(minimum(x, 2) + maximum(x - 3, 0)) == minimum(x, 2) + maximum(x - 3, 0)
