"""Sums of products with integer coefficients, whatever the factors are: the data of an integer expression.

Nothing here makes an expression; what an expression of given terms is in canonical form is the business of
:mod:`tilewright.core.arith.expr`. A term is a monomial (a tuple of factors) with its coefficient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar


class Factor:
    """What is multiplied in a sum. Subclasses are immutable and hashable, and have a text."""

    __slots__ = ()

    def free_vars(self) -> frozenset[str]:
        raise NotImplementedError

    def evaluate(self, env: Mapping[str, int]) -> int:
        raise NotImplementedError

    @property
    def is_plain(self) -> bool:
        """True if the values of the variables in it decide the value."""
        return False

    @property
    def size(self) -> int:
        """How many variables and operations it is made of, each use counted."""
        return 1

    def factor_text(self) -> str:
        """The text inside a product."""
        return str(self)

    def require_known(self) -> None:
        """Raise TypeError where comparing with a number would say no for want of knowing."""


F = TypeVar("F", bound=Factor)


class Sum(Generic[F]):
    """The sum of ``terms`` and ``const``. Variables, hash and text are worked out once, when first asked for."""

    __slots__ = ("_free", "_hash", "_plain", "_text", "const", "terms")

    def __init__(self, terms: tuple[tuple[tuple[F, ...], int], ...], constant: int) -> None:
        self.terms = terms
        self.const = constant
        self._free: frozenset[str] | None = None if terms else frozenset()
        self._hash: int | None = None
        self._plain: bool | None = None if terms else True
        self._text: str | None = None

    @property
    def is_const(self) -> bool:
        return not self.terms

    def value(self) -> int | None:
        """The integer this sum is, or None if it is not a constant."""
        return self.const if not self.terms else None

    def free_vars(self) -> frozenset[str]:
        """Names of all variables that occur anywhere in the sum."""
        if self._free is None:
            self._free = frozenset().union(*[a.free_vars() for mono, _ in self.terms for a in mono])
        return self._free

    @property
    def is_plain(self) -> bool:
        """True if the values of its variables decide its value."""
        if self._plain is None:
            self._plain = all([a.is_plain for mono, _ in self.terms for a in mono])
        return self._plain

    @property
    def size(self) -> int:
        """How many variables and operations it is made of, each use counted."""
        return sum(a.size for a in self.atoms())

    def atoms(self) -> Iterator[F]:
        for mono, _ in self.terms:
            yield from mono

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The integer value under ``env``. Raises KeyError for a variable that is missing."""
        total = self.const
        for mono, c in self.terms:
            for a in mono:
                c *= a.evaluate(env)
            total += c
        return total

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, Sum):
            return self.const == other.const and hash(self) == hash(other) and self.terms == other.terms
        if not self.terms:
            return self.const == other
        if isinstance(other, int) or hasattr(other, "__index__"):
            for a in self.atoms():
                a.require_known()
        return False

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.terms, self.const))
        return self._hash

    def __int__(self) -> int:
        if self.terms:
            raise ValueError(f"expected a constant, got {self}")
        return self.const

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._format()
        return self._text

    def _format(self) -> str:
        parts: list[str] = []
        for mono, c in self.terms:
            factors = [a.factor_text() for a in mono]
            if abs(c) != 1:
                factors.append(str(abs(c)))
            text = "*".join(factors)
            parts.append(("- " if c < 0 else "+ ") + text)
        if self.const or not parts:
            parts.append(("- " if self.const < 0 else "+ ") + str(abs(self.const)))
        first = parts[0]
        parts[0] = first[2:] if first[0] == "+" else "-" + first[2:]
        return " ".join(parts)


def multiply(a: Sum[F], b: Sum[F]) -> tuple[dict[tuple[F, ...], int], int]:
    """Terms and constant of ``a * b``; factors are sorted by text."""
    terms: dict[tuple[F, ...], int] = {}
    ours: list[tuple[tuple[F, ...], int]] = [*a.terms, ((), a.const)]
    theirs: list[tuple[tuple[F, ...], int]] = [*b.terms, ((), b.const)]
    for m1, c1 in ours:
        for m2, c2 in theirs:
            if c1 and c2:
                mono = tuple(sorted(m1 + m2, key=str)) if m1 and m2 else m1 + m2
                terms[mono] = terms.get(mono, 0) + c1 * c2
    constant = terms.pop((), 0)
    return terms, constant


def divide_exact(num: Sum[F], den: Sum[F]) -> tuple[dict[tuple[F, ...], int], int] | None:
    """Terms and constant of ``num / den`` when ``den`` is one term that divides every term of ``num``; else None."""
    if len(den.terms) != 1 or den.const:
        return None
    dm, dc = den.terms[0]
    out: dict[tuple[F, ...], int] = {}
    constant = 0
    for m, c in [*num.terms, ((), num.const)]:
        if c == 0:
            continue
        left = list(m)
        for a in dm:
            if a not in left:
                return None
            left.remove(a)
        if c % dc:
            return None
        if left:
            out[tuple(left)] = c // dc
        else:
            constant += c // dc
    return out, constant
