"""Integer expressions: the one language of tensor dimensions, loop extents and buffer indices.

Grammar (also the text form, which :func:`tilewright.core.intparse.parse` reads back)::

    IntExpr ::= sum of  coefficient * Atom * Atom * ...   + constant      (kept canonical at all times)
    Atom    ::= name                        a dimension symbol or a loop variable
              | (IntExpr) // (IntExpr)      floor division, as in Python
              | (IntExpr) % (IntExpr)       Euclidean remainder for a positive divisor, as in Python
              | min(IntExpr, ...) | max(IntExpr, ...)
              | any subclass of Atom that another room defines (tensor_ir: a value loaded from memory)

Because an expression is always in canonical form, two expressions that differ only by ring arithmetic compare
equal, the stride of a loop variable is a dictionary look-up, and ``(x // c) * c + x % c`` is ``x``.
Facts that need the ranges of variables live in :mod:`tilewright.core.intbounds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd
from typing import TypeAlias


class Atom:
    """An indivisible factor. Subclasses are immutable, hashable, and print as the grammar says."""

    __slots__ = ()

    def free_vars(self) -> frozenset[str]:
        raise NotImplementedError

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        """The expression with every variable of ``env`` replaced."""
        raise NotImplementedError

    def evaluate(self, env: Mapping[str, int]) -> int:
        raise NotImplementedError

    def children(self) -> tuple[IntExpr, ...]:
        return ()


class Var(Atom):
    """A named integer: a symbolic dimension or a loop variable."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Var) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def free_vars(self) -> frozenset[str]:
        return frozenset((self.name,))

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return as_expr(env[self.name]) if self.name in env else of_atom(self)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return env[self.name]


class _Operation(Atom):
    """Base of the atoms that have argument expressions."""

    __slots__ = ("_free", "_hash", "_text", "args")
    symbol = ""

    def __init__(self, args: tuple[IntExpr, ...]) -> None:
        self.args = args
        self._hash = hash((self.symbol, args))
        self._free: frozenset[str] | None = None
        self._text: str | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and other._hash == self._hash and other.args == self.args)

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._format()
        return self._text

    def _format(self) -> str:
        return f"{self.symbol}({', '.join(map(str, self.args))})"

    def free_vars(self) -> frozenset[str]:
        if self._free is None:
            self._free = frozenset().union(*(a.free_vars() for a in self.args))
        return self._free

    def children(self) -> tuple[IntExpr, ...]:
        return self.args


class FloorDiv(_Operation):
    __slots__ = ()
    symbol = "//"

    def _format(self) -> str:
        return f"{_paren(self.args[0])}//{_paren(self.args[1])}"

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return self.args[0].substitute(env) // self.args[1].substitute(env)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.args[0].evaluate(env) // self.args[1].evaluate(env)


class Mod(_Operation):
    __slots__ = ("_quotient",)
    symbol = "%"

    def __init__(self, args: tuple[IntExpr, ...]) -> None:
        super().__init__(args)
        self._quotient: IntExpr | None = None

    def quotient(self) -> IntExpr:
        """The floor division with the same arguments."""
        if self._quotient is None:
            self._quotient = self.args[0] // self.args[1]
        return self._quotient

    def _format(self) -> str:
        return f"{_paren(self.args[0])} % {_paren(self.args[1])}"

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return self.args[0].substitute(env) % self.args[1].substitute(env)

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.args[0].evaluate(env) % self.args[1].evaluate(env)


class Min(_Operation):
    __slots__ = ()
    symbol = "min"

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return minimum(*(a.substitute(env) for a in self.args))

    def evaluate(self, env: Mapping[str, int]) -> int:
        return min(a.evaluate(env) for a in self.args)


class Max(_Operation):
    __slots__ = ()
    symbol = "max"

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return maximum(*(a.substitute(env) for a in self.args))

    def evaluate(self, env: Mapping[str, int]) -> int:
        return max(a.evaluate(env) for a in self.args)


_PLAIN_ATOMS = frozenset((Var, FloorDiv, Mod, Min, Max))
Monomial: TypeAlias = tuple[Atom, ...]


class IntExpr:
    """A canonical integer polynomial over atoms. Immutable; build with operators, :func:`var`, :func:`const`.
    Variables, hash and text are worked out once, when first asked for."""

    __slots__ = ("_free", "_hash", "_plain", "_text", "const", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...], constant: int) -> None:
        self.terms = terms
        self.const = constant
        self._free: frozenset[str] | None = None if terms else frozenset()
        self._hash: int | None = None
        self._plain: bool | None = None if terms else True
        self._text: str | None = None

    # -- facts -------------------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        return not self.terms

    def value(self) -> int | None:
        """The integer this expression is, or None if it is not a constant."""
        return self.const if not self.terms else None

    def free_vars(self) -> frozenset[str]:
        """Names of all variables that occur anywhere in the expression."""
        if self._free is None:
            atoms = (a for mono, _ in self.terms for a in mono)
            self._free = frozenset().union(*[(a.name,) if type(a) is Var else a.free_vars() for a in atoms])
        return self._free

    @property
    def is_plain(self) -> bool:
        """True if the expression has none but the atoms of this module, so that its variables decide its value."""
        if self._plain is None:
            self._plain = all(type(a) in _PLAIN_ATOMS and all(c.is_plain for c in a.children()) for a in self.atoms())
        return self._plain

    def atoms(self) -> Iterable[Atom]:
        for mono, _ in self.terms:
            yield from mono

    def coefficient(self, name: str) -> IntExpr | None:
        """The stride of variable ``name``: ``self == coefficient * name + rest`` with ``name`` free in neither.

        None when the expression is not linear in the variable; the zero expression when it does not occur.
        """
        if name not in self.free_vars():
            return ZERO
        target = Var(name)
        terms: dict[Monomial, int] = {}
        constant = 0
        for mono, c in self.terms:
            hits = [i for i, a in enumerate(mono) if a == target]
            rest = mono if not hits else mono[: hits[0]] + mono[hits[0] + 1 :]
            if any(name in a.free_vars() for a in rest):
                return None
            if hits:
                if rest:
                    terms[rest] = terms.get(rest, 0) + c
                else:
                    constant += c
        return _make(terms, constant)

    # -- ring ----------------------------------------------------------------------------------------------------
    def __add__(self, other: IntLike) -> IntExpr:
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = as_expr(other)
        if not o.terms:
            return self if o.const == 0 else IntExpr(self.terms, self.const + o.const)
        if not self.terms and self.const == 0:
            return o
        terms = dict(self.terms)
        for mono, c in o.terms:
            terms[mono] = terms.get(mono, 0) + c
        return _make(terms, self.const + o.const)

    __radd__ = __add__

    def __neg__(self) -> IntExpr:
        return IntExpr(tuple((m, -c) for m, c in self.terms), -self.const)

    def __sub__(self, other: IntLike) -> IntExpr:
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = as_expr(other)
        if not o.terms:
            return self if o.const == 0 else IntExpr(self.terms, self.const - o.const)
        return self + (-o)

    def __rsub__(self, other: IntLike) -> IntExpr:
        return as_expr(other) + (-self)

    def __mul__(self, other: IntLike) -> IntExpr:
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = as_expr(other)
        if not o.terms:
            if o.const == 0:
                return ZERO
            if o.const == 1:
                return self
            return IntExpr(tuple((m, c * o.const) for m, c in self.terms), self.const * o.const)
        if not self.terms:
            return o * self
        terms: dict[Monomial, int] = {}
        mine = [*self.terms, ((), self.const)]
        theirs = [*o.terms, ((), o.const)]
        for m1, c1 in mine:
            for m2, c2 in theirs:
                if c1 and c2:
                    mono = tuple(sorted(m1 + m2, key=str)) if m1 and m2 else m1 + m2
                    terms[mono] = terms.get(mono, 0) + c1 * c2
        constant = terms.pop((), 0)
        return _make(terms, constant)

    __rmul__ = __mul__

    def __floordiv__(self, other: IntLike) -> IntExpr:
        return _floordiv(self, as_expr(other))

    def __rfloordiv__(self, other: IntLike) -> IntExpr:
        return _floordiv(as_expr(other), self)

    def __mod__(self, other: IntLike) -> IntExpr:
        return _mod(self, as_expr(other))

    def __rmod__(self, other: IntLike) -> IntExpr:
        return _mod(as_expr(other), self)

    # -- use -----------------------------------------------------------------------------------------------------
    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        """The expression with every variable of ``env`` replaced, canonical again; ``self`` if none occurs."""
        if not self.terms or self.free_vars().isdisjoint(env):
            return self
        terms: dict[Monomial, int] = {}
        constant = self.const
        for mono, c in self.terms:
            if all(a.name not in env if type(a) is Var else a.free_vars().isdisjoint(env) for a in mono):
                terms[mono] = terms.get(mono, 0) + c
                continue
            term = product([a.substitute(env) for a in mono])
            for m, k in term.terms:
                terms[m] = terms.get(m, 0) + k * c
            constant += term.const * c
        return _make(terms, constant)

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The integer value under ``env``. Raises KeyError for a variable that is missing."""
        total = self.const
        for mono, c in self.terms:
            for a in mono:
                c *= a.evaluate(env)
            total += c
        return total

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return not self.terms and self.const == other
        return isinstance(other, IntExpr) and self.const == other.const and self.terms == other.terms

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
            factors = [_factor(a) for a in mono]
            if abs(c) != 1:
                factors.append(str(abs(c)))
            text = "*".join(factors)
            parts.append(("- " if c < 0 else "+ ") + text)
        if self.const or not parts:
            parts.append(("- " if self.const < 0 else "+ ") + str(abs(self.const)))
        first = parts[0]
        parts[0] = first[2:] if first[0] == "+" else "-" + first[2:]
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"IntExpr({self})"


IntLike: TypeAlias = int | IntExpr


def _factor(a: Atom) -> str:
    return f"({a})" if isinstance(a, (FloorDiv, Mod)) else str(a)


def _paren(e: IntExpr) -> str:
    text = str(e)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _make(terms: dict[Monomial, int], constant: int) -> IntExpr:
    """The canonical expression: no zero terms, terms sorted by text, div-mod pairs joined."""
    terms = {m: c for m, c in terms.items() if c}
    remainders = [(mono, i, a) for mono in terms for i, a in enumerate(mono) if isinstance(a, Mod)]
    if remainders:
        atoms = {a for mono in terms for a in mono}
        for mono, i, a in remainders:
            joined = _join_div_mod(terms, constant, mono, i, a, atoms)
            if joined is not None:
                return joined
    if len(terms) > 1:
        return IntExpr(tuple(sorted(terms.items(), key=lambda t: _sort_key(t[0]))), constant)
    return IntExpr(tuple(terms.items()), constant)


def _sort_key(mono: Monomial) -> str:
    return str(mono[0]) if len(mono) == 1 else "*".join(map(str, mono))


def _join_div_mod(
    terms: dict[Monomial, int], constant: int, mono: Monomial, i: int, a: Mod, atoms: set[Atom]
) -> IntExpr | None:
    """``c*rest*(x % d) + c*d*rest*(x // d)`` is ``c*rest*x``: the sum with that pair joined, or None.

    The remainder may be that of ``x`` less a multiple of ``d``. ``atoms``: all that occur in ``terms``.
    """
    num, den = a.args
    quotient = a.quotient()
    if len(quotient.terms) != 1 or quotient.const or quotient.terms[0][1] != 1 or quotient.terms[0][0][0] not in atoms:
        same = [q for q in atoms if isinstance(q, FloorDiv) and q.args[1] == den and _is_same_mod(q, a)]
        if not same:  # the usual case
            return None
        found = min(same, key=str)
        num, quotient = found.args[0], of_atom(found)
    rest = mono[:i] + mono[i + 1 :]
    c = terms[mono]
    pair = IntExpr(((rest, 1),), 0) if rest else ONE
    product = pair * quotient * den * c
    if product.const or any(terms.get(m) != k for m, k in product.terms):
        return None
    left = {m: k for m, k in terms.items() if m != mono and m not in dict(product.terms)}
    return _make(left, constant) + pair * num * c


def _is_same_mod(q: FloorDiv, a: Mod) -> bool:
    """True if the dividends of ``x // d`` and ``y % d`` differ by a multiple of the constant ``d``."""
    d = q.args[1].value()
    if not d:
        return False
    apart = q.args[0] - a.args[0]
    return apart.const % d == 0 and all(c % d == 0 for _, c in apart.terms)


_SMALL = tuple(IntExpr((), n) for n in range(-16, 1025))


def const(n: int) -> IntExpr:
    """The constant ``n``."""
    n = int(n)
    return _SMALL[n + 16] if -16 <= n <= 1024 else IntExpr((), n)


ZERO = const(0)
ONE = const(1)


def of_atom(a: Atom) -> IntExpr:
    """The expression that is just the atom ``a``."""
    return IntExpr((((a,), 1),), 0)


def var(name: str) -> IntExpr:
    """The variable ``name``."""
    return of_atom(Var(name))


def as_expr(x: IntLike) -> IntExpr:
    """``x`` as an expression."""
    return x if isinstance(x, IntExpr) else const(x)


def as_var(e: IntExpr) -> str | None:
    """The name, if the expression is one bare variable; else None."""
    if len(e.terms) == 1 and e.const == 0 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
        a = e.terms[0][0][0]
        return a.name if isinstance(a, Var) else None
    return None


def _divide_exact(num: IntExpr, den: IntExpr) -> IntExpr | None:
    """``num / den`` when ``den`` is one term that divides every term of ``num``; else None."""
    if len(den.terms) != 1 or den.const:
        return None
    dm, dc = den.terms[0]
    out: dict[Monomial, int] = {}
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
    return _make(out, constant)


def _floordiv(num: IntExpr, den: IntExpr) -> IntExpr:
    if not den.terms:
        d = den.const
        if d == 0:
            raise ZeroDivisionError(f"({num}) // 0")
        if d < 0:
            return _floordiv(-num, const(-d))
        if d == 1:
            return num
        if not num.terms:
            return const(num.const // d)
        whole = {m: c // d for m, c in num.terms if c % d == 0}
        rest = tuple((m, c) for m, c in num.terms if c % d)
        q, r = divmod(num.const, d)
        whole_expr = _make(whole, q)
        if not rest:
            return whole_expr
        g = gcd(d, *(c for _, c in rest))
        if g > 1:  # floor((g*x + r) / (g*d')) == floor((x + floor(r/g)) / d')
            return whole_expr + _floordiv(IntExpr(tuple((m, c // g) for m, c in rest), r // g), const(d // g))
        if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1:
            a = rest[0][0][0]
            if isinstance(a, FloorDiv) and (inner := a.args[1].value()) is not None and inner > 0:
                return whole_expr + _floordiv(a.args[0] + r * inner, const(inner * d))
            if r == 0 and isinstance(a, Mod) and (inner := a.args[1].value()) is not None and inner > 0:
                if inner <= d:
                    return whole_expr
                if inner % d == 0:  # x % (d*e) // d == x // d % e, the form that one split of x into many gives
                    return whole_expr + _mod(_floordiv(a.args[0], den), const(inner // d))
        return whole_expr + of_atom(FloorDiv((IntExpr(rest, r), den)))
    if num == den:
        return ONE
    exact = _divide_exact(num, den)
    if exact is not None:
        return exact
    if num.is_const and num.const == 0:
        return ZERO
    return of_atom(FloorDiv((num, den)))


def _mod(num: IntExpr, den: IntExpr) -> IntExpr:
    if not den.terms:
        d = den.const
        if d == 0:
            raise ZeroDivisionError(f"({num}) % 0")
        if d == 1:
            return ZERO
        if d > 0:
            rest = tuple((m, c % d) for m, c in num.terms if c % d)
            r = num.const % d
            if not rest:
                return const(r)
            if len(rest) == 1 and rest[0][1] == 1 and len(rest[0][0]) == 1 and r == 0:
                a = rest[0][0][0]
                if isinstance(a, Mod) and (inner := a.args[1].value()) is not None and inner > 0:
                    if d % inner == 0:
                        return of_atom(a)
                    if inner % d == 0:
                        return _mod(a.args[0], den)
            g = gcd(d, r, *(c for _, c in rest))
            if g > 1:
                return _mod(IntExpr(tuple((m, c // g) for m, c in rest), r // g), const(d // g)) * g
            return of_atom(Mod((IntExpr(rest, r), den)))
    if num == den or _divide_exact(num, den) is not None or num == 0:
        return ZERO
    return of_atom(Mod((num, den)))


def _extremum(args: Iterable[IntLike], kind: type[_Operation], keep_first: int) -> IntExpr:
    """Flatten, drop duplicates and arguments dominated by a constant difference. ``keep_first``: sign."""
    flat: list[IntExpr] = []
    for x in args:
        e = as_expr(x)
        if len(e.terms) == 1 and e.const == 0 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1:
            a = e.terms[0][0][0]
            if isinstance(a, kind):
                flat.extend(a.args)
                continue
        flat.append(e)
    kept: list[IntExpr] = []
    for e in flat:
        for i, k in enumerate(kept):
            d = (e - k).value()
            if d is not None:
                if d * keep_first > 0:
                    kept[i] = e
                break
        else:
            kept.append(e)
    if len(kept) == 1:
        return kept[0]
    return of_atom(kind(tuple(sorted(kept, key=str))))


def minimum(*args: IntLike) -> IntExpr:
    """The least of ``args``."""
    return _extremum(args, Min, -1)


def maximum(*args: IntLike) -> IntExpr:
    """The greatest of ``args``."""
    return _extremum(args, Max, 1)


def ceildiv(a: IntLike, b: IntLike) -> IntExpr:
    """``a / b`` rounded up, for positive ``b``."""
    return (as_expr(a) + as_expr(b) - 1) // as_expr(b)


def product(args: Iterable[IntLike]) -> IntExpr:
    """The product of ``args`` (one for none)."""
    out = ONE
    for a in args:
        out = out * a
    return out
