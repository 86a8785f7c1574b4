"""Integer expressions: canonical form, text, substitution; against plain evaluation on random expressions."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.arith.expr import IntExpr, as_var, ceildiv, const, product, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.arith.parse import parse
from tilewright.core.errors import ParseError

NAMES = ("a", "b", "c")
RING = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
Tree = tuple[object, ...]


def trees(depth: int = 4) -> st.SearchStrategy[object]:
    """Syntax trees: numbers, names, and (operation, left, right)."""
    leaf = st.one_of(st.integers(-9, 20), st.sampled_from(NAMES))
    ops = st.sampled_from((*RING, "min", "max"))
    return st.recursive(leaf, lambda t: st.tuples(ops, t, t), max_leaves=2**depth // 2)


def build(t: object) -> IntExpr:
    """The tree as an expression; divisors are made positive constants or a symbol plus one."""
    if isinstance(t, int):
        return const(t)
    if isinstance(t, str):
        return var(t)
    op, left, right = t  # type: ignore[misc]
    a, b = build(left), build(right)
    if op in ("//", "%"):
        b = const(abs(b.const) + 1) if b.is_const else var("a") + 1
    if op in RING:
        return RING[op](a, b)
    return (minimum if op == "min" else maximum)(a, b)


def plain(t: object, env: dict[str, int]) -> int:
    """The tree evaluated with Python's own integers."""
    if isinstance(t, int):
        return t
    if isinstance(t, str):
        return env[t]
    op, left, right = t  # type: ignore[misc]
    a, b = plain(left, env), plain(right, env)
    if op in ("//", "%"):
        divisor = build(right)
        b = abs(divisor.const) + 1 if divisor.is_const else env["a"] + 1
    if op in RING:
        return RING[op](a, b)
    return (min if op == "min" else max)(a, b)


envs = st.fixed_dictionaries({n: st.integers(0, 30) for n in NAMES})


@settings(max_examples=300, deadline=None)
@given(trees(), envs)
def test_canonical_form_means_the_same(t: object, env: dict[str, int]) -> None:
    assert build(t).evaluate(env) == plain(t, env)


@settings(max_examples=200, deadline=None)
@given(trees())
def test_text_round_trip(t: object) -> None:
    e = build(t)
    assert parse(str(e)) == e


@settings(max_examples=200, deadline=None)
@given(trees(), trees(3), envs)
def test_substitution(t: object, by: object, env: dict[str, int]) -> None:
    replaced = build(t).substitute({"b": build(by)})
    assert replaced.evaluate(env) == build(t).evaluate(env | {"b": build(by).evaluate(env)})
    assert "b" not in replaced.free_vars() or "b" in build(by).free_vars()


@settings(max_examples=200, deadline=None)
@given(trees(), envs)
def test_coefficient(t: object, env: dict[str, int]) -> None:
    e = build(t)
    c = e.coefficient("b")
    if c is not None:
        step = e.evaluate(env | {"b": env["b"] + 1}) - e.evaluate(env)
        assert step == c.evaluate(env)


@settings(max_examples=100, deadline=None)
@given(trees(), trees())
def test_equal_expressions_hash_alike(s: object, t: object) -> None:
    a, b = build(s), build(t)
    assert (a + b) - b == a
    assert hash((a + b) - b) == hash(a)
    assert a + b == b + a
    assert a * b == b * a


def test_ring_facts() -> None:
    x, n = var("x"), var("n")
    assert (x // 7) * 7 + x % 7 == x
    assert (x // n) * n + x % n == x
    y = 16 * x + 8 * n + 3  # its remainder by 7 is that of 2*x + n + 3
    assert (y // 7) * 7 * n + (y % 7) * n == y * n
    z = 384 * x + 12 * n + 5  # a loop of [7, 19, 3] elements in tiles: z // 3 // 19 is z // 57
    assert (z // 57) * 57 + (z // 3 % 19) * 3 + z % 3 == z
    assert (2 * x + 4) // 2 == x + 2
    assert (16 * x + 5) // 16 == x
    assert (x % 16) % 4 == x % 4
    assert x // 4 // 8 == x // 32
    assert x % 420 // 20 == x // 20 % 21
    assert ceildiv(n, 4).evaluate({"n": 9}) == 3
    assert minimum(x, x + 1) == x
    assert maximum(x, x + 1, x - 2) == x + 1
    assert product([2, x, 3]) == 6 * x
    assert as_var(x) == "x"
    assert as_var(x + 1) is None
    assert (n * x).coefficient("x") == n
    assert (x // 2).coefficient("x") is None


def test_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        var("x") // 0
    with pytest.raises(ParseError, match="does not parse"):
        parse("a +")
    with pytest.raises(ParseError, match="not an integer expression"):
        parse("a / b")
    with pytest.raises(ValueError, match="expected a constant"):
        int(var("x"))
    with pytest.raises(TypeError):
        var("x") + "a"  # type: ignore[operator]
