"""Integer expressions: the one language of tensor dimensions, loop extents and buffer indices.

Grammar (also the text form, which :func:`tilewright.core.arith.parse.parse` reads back)::

    IntExpr ::= sum of  coefficient * Atom * Atom * ...   + constant      (kept canonical at all times)
    Atom    ::= name                        a dimension symbol or a loop variable
              | (IntExpr) // (IntExpr)      floor division, as in Python
              | (IntExpr) % (IntExpr)       Euclidean remainder for a positive divisor, as in Python
              | min(IntExpr, ...) | max(IntExpr, ...)      (:mod:`tilewright.core.arith.minmax`)
              | broadcast(IntExpr, ...)     that argument which is not 1 (:mod:`tilewright.core.arith.broadcast`)
              | size_DIGEST                 a long formula under a name (:mod:`tilewright.core.arith.named`)
              | any subclass of Atom that another room defines (tensor_ir: a value loaded from memory)

Because an expression is always in canonical form, two expressions that differ only by ring arithmetic compare
equal, the stride of a loop variable is a dictionary look-up, and ``(x // c) * c + x % c`` is ``x``.
Facts that need the ranges of variables live in :mod:`tilewright.core.arith.bounds`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from typing import NoReturn, TypeAlias

from tilewright.core.arith.polynomial import Factor, Sum, divide_exact, multiply


class Atom(Factor):
    """An indivisible factor, which prints as the grammar says."""

    __slots__ = ()

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        """The expression with every variable of ``env`` replaced."""
        raise NotImplementedError

    def children(self) -> tuple[IntExpr, ...]:
        return ()

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        """The expression that the atom is with other children."""
        return of_atom(self)


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

    @property
    def is_plain(self) -> bool:
        return True


class Operation(Atom):
    """Base of the atoms that have argument expressions."""

    __slots__ = ("_free", "_hash", "_size", "_text", "args")
    symbol = ""

    def __init__(self, args: tuple[IntExpr, ...]) -> None:
        self.args = args
        self._size: int | None = None
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

    @property
    def is_plain(self) -> bool:
        return all([a.is_plain for a in self.args])

    @property
    def size(self) -> int:
        if self._size is None:
            self._size = 1 + sum(a.size for a in self.args)
        return self._size

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return self.rebuilt(*[a.substitute(env) for a in self.args])

    def children(self) -> tuple[IntExpr, ...]:
        return self.args

    def require_known(self) -> None:
        for e in self.args:
            for a in e.atoms():
                a.require_known()


class FloorDiv(Operation):
    __slots__ = ()
    symbol = "//"

    def _format(self) -> str:
        return f"{_paren(self.args[0])}//{_paren(self.args[1])}"

    def factor_text(self) -> str:
        return f"({self})"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return children[0] // children[1]

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.args[0].evaluate(env) // self.args[1].evaluate(env)


class Mod(Operation):
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

    def factor_text(self) -> str:
        return f"({self})"

    def rebuilt(self, *children: IntExpr) -> IntExpr:
        return children[0] % children[1]

    def evaluate(self, env: Mapping[str, int]) -> int:
        return self.args[0].evaluate(env) % self.args[1].evaluate(env)


Monomial: TypeAlias = tuple[Atom, ...]


class IntExpr(Sum[Atom]):
    """A canonical integer polynomial over atoms. Immutable; build with operators, :func:`var`, :func:`const`."""

    __slots__ = ()

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
            if len(mono) == 1 and isinstance(mono[0], Var):
                constant += c if mono[0].name == name else 0
                continue
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
        if type(other) is int:
            return IntExpr(self.terms, self.const + other) if other else self
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = other if type(other) is IntExpr else as_expr(other)
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
        if type(other) is int:
            return IntExpr(self.terms, self.const - other) if other else self
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = other if type(other) is IntExpr else as_expr(other)
        if not o.terms:
            return self if o.const == 0 else IntExpr(self.terms, self.const - o.const)
        return self + (-o)

    def __rsub__(self, other: IntLike) -> IntExpr:
        return as_expr(other) + (-self)

    def __mul__(self, other: IntLike) -> IntExpr:
        if type(other) is not IntExpr and not hasattr(other, "__index__"):
            return NotImplemented
        o = other if type(other) is IntExpr else as_expr(other)
        if not o.terms:
            if o.const == 0:
                return ZERO
            if o.const == 1:
                return self
            return IntExpr(tuple((m, c * o.const) for m, c in self.terms), self.const * o.const)
        if not self.terms:
            return o * self
        return _make(*multiply(self, o))

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
            if all([a.name not in env if type(a) is Var else a.free_vars().isdisjoint(env) for a in mono]):
                terms[mono] = terms.get(mono, 0) + c
                continue
            term = mono[0].substitute(env)
            for a in mono[1:]:
                term = term * a.substitute(env)
            for m, k in term.terms:
                terms[m] = terms.get(m, 0) + k * c
            constant += term.const * c
        return _make(terms, constant)

    def __bool__(self) -> NoReturn:
        raise TypeError(f"{self} may be zero or not: an index or a size is no Python condition")

    def __repr__(self) -> str:
        return f"IntExpr({self})"


IntLike: TypeAlias = int | IntExpr


def _paren(e: IntExpr) -> str:
    text = str(e)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _make(terms: dict[Monomial, int], constant: int) -> IntExpr:
    """The canonical expression: no zero terms, terms sorted by text, div-mod pairs joined."""
    if 0 in terms.values():
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
        same = [(q, x) for q in atoms if isinstance(q, FloorDiv) and (x := _dividend(q, a)) is not None]
        if not same:  # the usual case
            return None
        found, num = min(same, key=lambda pair: str(pair[0]))
        quotient = of_atom(found)
    rest = mono[:i] + mono[i + 1 :]
    c = terms[mono]
    pair = IntExpr(((rest, 1),), 0) if rest else ONE
    product = pair * quotient * den * c
    if product.const or any(terms.get(m) != k for m, k in product.terms):
        return None
    left = {m: k for m, k in terms.items() if m != mono and m not in dict(product.terms)}
    return _make(left, constant) + pair * num * c


def _dividend(q: FloorDiv, a: Mod) -> IntExpr | None:
    """``x`` if ``q`` is ``x // d`` and ``a`` is ``x % d``, or that of ``x`` less a multiple of the constant ``d``.

    Splitting a loop turns ``z // k // d`` into ``z // (k*d)``: that is ``x // d`` too, with ``x = z // k``.
    """
    whole, d = q.args[1].value(), a.args[1].value()
    if not whole or not d or whole % d or whole // d < 1:
        return None
    x = _floordiv(q.args[0], const(whole // d))
    apart = x - a.args[0]
    return x if apart.const % d == 0 and all(c % d == 0 for _, c in apart.terms) else None


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


def as_atom(e: IntExpr) -> Atom | None:
    """The atom, if the expression is just one; else None."""
    one = len(e.terms) == 1 and e.const == 0 and e.terms[0][1] == 1 and len(e.terms[0][0]) == 1
    return e.terms[0][0][0] if one else None


def as_var(e: IntExpr) -> str | None:
    """The name, if the expression is one bare variable; else None."""
    a = as_atom(e)
    return a.name if isinstance(a, Var) else None


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
    exact = divide_exact(num, den)
    if exact is not None:
        return _make(*exact)
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
            g = gcd(d, *(c for _, c in rest))
            if g > 1:  # (g*x + r) % (g*d') == (x + r // g) % d' * g + r % g
                return _mod(IntExpr(tuple((m, c // g) for m, c in rest), r // g), const(d // g)) * g + r % g
            return of_atom(Mod((IntExpr(rest, r), den)))
    if num == den or divide_exact(num, den) is not None or num.value() == 0:
        return ZERO
    return of_atom(Mod((num, den)))


def with_atoms(e: IntExpr, value: Callable[[Atom], IntExpr]) -> IntExpr:
    """``e`` with ``value`` of each atom in its place, canonical again."""
    out = const(e.const)
    for mono, c in e.terms:
        out = out + product(map(value, mono)) * c
    return out


def ceildiv(a: IntLike, b: IntLike) -> IntExpr:
    """``a / b`` rounded up, for positive ``b``."""
    b = as_expr(b)
    return (as_expr(a) + b - 1) // b


def product(args: Iterable[IntLike]) -> IntExpr:
    """The product of ``args`` (one for none)."""
    out, number = ONE, 1
    for a in args:
        e = as_expr(a)
        if e.terms:
            out = out * e
        else:
            number *= e.const
    return out * number
