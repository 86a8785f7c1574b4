"""Bounds and proofs: whatever is proved holds at every point, by enumeration over random ranges."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.arith.bounds import (
    Ranges,
    extremes,
    interval,
    is_less,
    is_nonneg,
    loop_range,
    simplify,
    spread,
    upper_bound,
)
from tilewright.core.arith.expr import IntExpr, ceildiv, const, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.arith.parse import parse
from tilewright.tests.core.arith.test_expr import build, trees

extents = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))


def ranges_of(n: tuple[int, int, int], ragged: bool) -> Ranges:
    """Loops a, b, c; with ``ragged``, b is the inner loop of a tiled extent."""
    inner = minimum(3, n[1] * 3 - 1 - 3 * var("a")) if ragged else const(n[1])
    outer = n[1] if ragged else n[0]
    return {"a": loop_range(outer), "b": loop_range(inner), "c": loop_range(n[2])}


def points(ranges: Ranges) -> Iterator[dict[str, int]]:
    def extend(names: list[str], env: dict[str, int]) -> Iterator[dict[str, int]]:
        if not names:
            yield env
            return
        low, high = ranges[names[0]]
        for x in range(low.evaluate(env), high.evaluate(env) + 1):
            yield from extend(names[1:], env | {names[0]: x})

    yield from extend(list(ranges), {})


def test_what_is_taken_from_a_minimum_of_itself_and_more_has_a_bound() -> None:
    q, n = var("f") // var("a"), var("n")
    assert upper_bound(maximum(0, minimum(q, n - 1) - q + 1), {}) == 1
    assert upper_bound(q - maximum(q, n), {}) == 0
    assert upper_bound(maximum(q, n) - q, {}) is None


@settings(max_examples=300, deadline=None)
@given(trees(), extents, st.booleans())
def test_interval_and_signs_hold_everywhere(t: object, n: tuple[int, int, int], ragged: bool) -> None:
    e, ranges = build(t), ranges_of(n, ragged)
    low, high = interval(e, ranges)
    values = [e.evaluate(p) for p in points(ranges)]
    assert low is None or low <= min(values)
    assert high is None or high >= max(values)
    top = upper_bound(e, ranges)
    assert top == high if high is not None else top is None or top >= max(values)
    assert not is_nonneg(e, ranges) or min(values) >= 0
    assert not is_less(e, 7, ranges) or max(values) < 7


@settings(max_examples=300, deadline=None)
@given(trees(), extents, st.booleans(), st.booleans())
def test_simplify_means_the_same(t: object, n: tuple[int, int, int], ragged: bool, rests: bool) -> None:
    e, ranges = build(t), ranges_of(n, ragged)
    s = simplify(e, ranges, rests)
    for p in points(ranges):
        assert s.evaluate(p) == e.evaluate(p)


@pytest.mark.parametrize("each", [2, 4, 8])
def test_steps_of_three_dimensions_a_few_at_a_time_are_a_straight_line(each: int) -> None:
    """Their places in memory, where no few of them end in the middle of a dimension."""
    ranges = {"s_0": loop_range(9 * each // 2), "s_1": loop_range(2)}
    step = var("s_0") * 2 + var("s_1")
    down, across, words = step // (3 * each), step // each % 3, step % each
    place = [simplify(i, ranges, rests=True) for i in (down, across, words)]
    assert simplify((place[0] * 3 + place[1]) * each + place[2], ranges) == step


@settings(max_examples=300, deadline=None)
@given(trees(), extents, st.booleans())
def test_extremes_enclose(t: object, n: tuple[int, int, int], ragged: bool) -> None:
    e, ranges = build(t), ranges_of(n, ragged)
    inner = {k: v for k, v in ranges.items() if k != "a"}
    ends = extremes(e, inner, {"a": ranges["a"]})
    if ends is not None:
        assert not (ends[0].free_vars() | ends[1].free_vars()) & inner.keys()
        for p in points(ranges):
            assert ends[0].evaluate(p) <= e.evaluate(p) <= ends[1].evaluate(p)


@settings(max_examples=200, deadline=None)
@given(trees(), st.fixed_dictionaries({n: st.integers(0, 20) for n in "abc"}))
def test_spread_means_the_same(t: object, env: dict[str, int]) -> None:
    assert spread(build(t)).evaluate(env) == build(t).evaluate(env)


def test_split_of_a_divisible_extent_is_plain() -> None:
    ranges = {"i_0": loop_range(ceildiv(24, 6))}
    assert simplify(minimum(6, 24 - 6 * var("i_0")), ranges) == 6


def test_packed_tile_indices() -> None:
    ranges = {"no": loop_range(var("N") // 16), "ni": loop_range(16)}
    e = var("no") * 16 + var("ni")
    assert simplify(e // 16, ranges) == var("no")
    assert simplify(e % 16, ranges) == var("ni")
    ragged = {"no": loop_range(ceildiv(var("N"), 16)), "ni": loop_range(parse("min(16, N - 16*no)"))}
    assert simplify(e // 16, ragged) == var("no")
    assert is_less(e, var("N"), ragged)


def test_symbolic_divisors() -> None:
    ranges = {"q": loop_range(5), "r": loop_range(var("n"))}
    e = var("q") * var("n") + var("r")
    assert simplify(e // var("n"), ranges) == var("q")
    assert simplify(e % var("n"), ranges) == var("r")


def test_tile_ends() -> None:
    ranges: dict[str, tuple[IntExpr, IntExpr]] = {
        "io": loop_range(ceildiv(var("M"), 6)),
        "ii": loop_range(parse("min(6, M - 6*io)")),
    }
    assert extremes(parse("6*io + ii"), {"ii": ranges["ii"]}) == (parse("6*io"), parse("6*io + min(6, M - 6*io) - 1"))
    whole = extremes(parse("6*io + ii"), ranges)
    assert whole is not None
    for m in range(1, 30):
        assert whole[1].evaluate({"M": m}) == m - 1


def test_enumeration_helper_sees_every_point() -> None:
    assert len(list(points(ranges_of((2, 3, 4), False)))) == len(list(itertools.product(range(2), range(3), range(4))))


@pytest.mark.parametrize("size", [var("w"), (var("w") + 3) // 4, (var("w") + 1) // 2], ids=str)
def test_whole_tiles_of_a_symbolic_size_are_inside_it(size: IntExpr) -> None:
    """Also where the size is a quotient itself, so that a division of it is kept as one by the product."""
    tile = {"o": loop_range(size // 6)}
    assert is_nonneg((size + 5) // 6 - size // 6, {})
    assert not is_nonneg(size // 6 - (size + 5) // 6, {})
    assert simplify(minimum(size - var("o") * 6, 6), tile) == 6
    assert simplify(minimum(size - 1, var("o") * 6 + 5), tile) == var("o") * 6 + 5
    assert simplify(minimum(size - 2, var("o") * 6 + 5), tile) != var("o") * 6 + 5
    for w in range(100):
        n = size.evaluate({"w": w})
        assert (n + 5) // 6 >= n // 6
        assert all(n - o * 6 >= 6 for o in range(n // 6))


def test_a_divisor_that_turns_out_to_be_zero_stays_one() -> None:
    e = var("f") // minimum(var("n"), 0)
    assert simplify(e, {}) == e
