"""Long formulas under names: values, substitution, bounds, equality and text, in chains that no tree could hold."""

from __future__ import annotations

import pytest

from tilewright.core.arith.bounds import interval, is_nonneg
from tilewright.core.arith.expr import IntExpr, const, of_atom, var
from tilewright.core.arith.named import MAX_SIZE, definitions, named_in, short, with_named
from tilewright.core.arith.parse import parse

N = var("n")


def chain(levels: int, start: IntExpr = N) -> IntExpr:
    """A size that twice holds the one before: tens of thousands of levels would be a tree of as many doublings."""
    e = start
    for _ in range(levels):
        e = short(e + (e - 2) // 2 + 1)
    return e


def chain_value(levels: int, n: int) -> int:
    for _ in range(levels):
        n = n + (n - 2) // 2 + 1
    return n


def test_short_formulas_have_no_name() -> None:
    assert short(N + 1) == N + 1
    assert not named_in((chain(2),))
    long = chain(8)
    assert long.size <= MAX_SIZE
    assert named_in((long,))


@pytest.mark.parametrize("levels", [3, 8, 3000])
def test_values(levels: int) -> None:
    e = chain(levels)
    for n in (2, 3, 17, 2):
        assert e.evaluate({"n": n, "other": 5}) == chain_value(levels, n)
    assert e.free_vars() == {"n"}
    assert e.is_plain
    with pytest.raises(KeyError):
        e.evaluate({})


@pytest.mark.parametrize("levels", [3, 8, 3000])
def test_what_replaces_a_variable_replaces_it_in_the_formula(levels: int) -> None:
    e = chain(levels)
    assert e.substitute({"m": const(3)}) is e
    assert e.substitute({"n": const(5)}).value() == chain_value(levels, 5)
    assert e.substitute({"n": var("m") * 3}) == chain(levels, var("m") * 3)
    assert e.substitute({"n": var("m")}).substitute({"m": N}) == e


def test_equal_formulas_are_equal_whoever_made_them() -> None:
    assert chain(50) == chain(50)
    assert hash(chain(50)) == hash(chain(50))
    assert chain(50) != chain(50, N + 1)
    assert len(str(chain(50))) < 20 * MAX_SIZE


def test_a_size_is_at_least_what_its_formula_is_and_never_negative() -> None:
    long = sum((var(f"v{i}") for i in range(MAX_SIZE + 1)), const(7))
    assert interval(short(long), {}) == (7, None)
    assert interval(short(long - 100), {}) == (0, None)
    assert is_nonneg(chain(3000), {})


def test_text_and_definitions() -> None:
    e = chain(12)
    names: dict[str, IntExpr] = {}
    for x in definitions((e, e + 1)):
        names[x.name] = short(parse(str(x.formula), names))
    assert parse(str(e), names) == e
    assert [x.name for x in definitions((e,))] == list(names)


def test_named_sizes_are_replaced_wherever_they_stand() -> None:
    (a,) = named_in((chain(4),))
    inside = (of_atom(a) * 2 + 1) // 7 % 5 + N
    assert with_named(inside, lambda x: var("k")) == (var("k") * 2 + 1) // 7 % 5 + N
    assert with_named(N // 2, lambda x: const(0)) == N // 2
