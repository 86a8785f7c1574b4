"""Facts about integer expressions whose variables have known ranges: proofs, bounds, simplification.

A :class:`Ranges` maps a variable to an inclusive interval whose ends may mention variables bound before it
(an inner loop's extent may depend on an outer loop). Variables without an entry are dimension symbols: at least 0.
All answers are sound and incomplete: ``False`` means "not proved".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tilewright.core.arith.broadcast import Broadcast
from tilewright.core.arith.expr import (
    ONE,
    ZERO,
    Atom,
    FloorDiv,
    IntExpr,
    IntLike,
    Mod,
    Var,
    as_expr,
    const,
    of_atom,
    var,
)
from tilewright.core.arith.minmax import Max, Min, maximum, minimum
from tilewright.core.arith.named import Named, innermost_first
from tilewright.core.arith.samples import RangeItems, is_refuted
from tilewright.core.memo import by_value

Ranges: TypeAlias = Mapping[str, tuple[IntExpr, IntExpr]]
Interval: TypeAlias = tuple[int | None, int | None]
_DEPTH = 12
_GOALS = 256
"""Goals of one proof, at most. Proofs that are found take a tenth of that."""


def loop_range(extent: IntLike) -> tuple[IntExpr, IntExpr]:
    """The interval of a loop variable that runs from 0 to ``extent`` exclusive."""
    return ZERO, as_expr(extent) - 1


def middle(low: int, high: int) -> int:
    """What a size between two counts for in estimates: their geometric mean."""
    return math.isqrt(max(low, 1) * max(high, 1))


def interval(e: IntExpr, ranges: Ranges) -> Interval:
    """Integer bounds ``(low, high)`` of ``e``; None where there is none. Ends are inclusive."""
    lo: int | None = e.const
    hi: int | None = e.const
    for mono, c in e.terms:
        t: Interval = (1, 1)
        for a in mono:
            t = _times(t, _atom_interval(a, ranges))
        if c < 0:
            t = (t[1], t[0])
        lo = None if lo is None or t[0] is None else lo + c * t[0]
        hi = None if hi is None or t[1] is None else hi + c * t[1]
    return lo, hi


def _times(a: Interval, b: Interval) -> Interval:
    if a == (1, 1):
        return b
    if b == (1, 1):
        return a
    (a_low, a_high), (b_low, b_high) = a, b
    if a_low is None or b_low is None:
        return None, None
    if a_high is not None and b_high is not None:
        corners = a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high
        return min(corners), max(corners)
    return (a_low * b_low, None) if a_low >= 0 and b_low >= 0 else (None, None)


def _atom_interval(a: Atom, ranges: Ranges) -> Interval:
    if isinstance(a, Var):
        if a.name not in ranges:
            return 0, None
        lo, hi = ranges[a.name]
        if not lo.terms and not hi.terms:
            return lo.const, hi.const
        inner = _without(ranges, a.name)
        return interval(lo, inner)[0], interval(hi, inner)[1]
    return _size_interval(a) if a.free_vars().isdisjoint(ranges) else _operation_interval(a, ranges)


@by_value(1 << 13)
def _size_interval(a: Atom) -> Interval:
    return _operation_interval(a, {})


def _operation_interval(a: Atom, ranges: Ranges) -> Interval:
    if isinstance(a, Mod):
        n, d = (interval(x, ranges) for x in a.args)
        top = None if d[1] is None else d[1] - 1
        if n[0] is not None and n[0] >= 0 and n[1] is not None:
            top = n[1] if top is None else min(top, n[1])
        return 0, top
    if isinstance(a, FloorDiv):
        n, d = (interval(x, ranges) for x in a.args)
        if d[0] is not None and d[0] > 0:
            if d[1] == d[0]:
                return (None if n[0] is None else n[0] // d[0], None if n[1] is None else n[1] // d[0])
            low = 0 if n[0] is not None and n[0] >= 0 else None
            return low, (n[1] // d[0] if n[1] is not None and n[1] >= 0 else None)
        return (0 if n[0] is not None and n[0] >= 0 and d[0] is not None and d[0] >= 0 else None), None
    if isinstance(a, (Min, Max)):
        ivs = [interval(x, ranges) for x in a.args]
        los = [x[0] for x in ivs]
        his = [x[1] for x in ivs]
        known_lo = [x for x in los if x is not None]
        known_hi = [x for x in his if x is not None]
        if isinstance(a, Min):
            return (min(known_lo) if len(known_lo) == len(los) else None, min(known_hi) if known_hi else None)
        return (max(known_lo) if known_lo else None, max(known_hi) if len(known_hi) == len(his) else None)
    if isinstance(a, Broadcast):
        lows, highs = zip(*(interval(x, ranges) for x in a.args), strict=True)
        return None if None in lows else min(lows), None if None in highs else max(highs)
    return _named_interval(a) if isinstance(a, Named) else (None, None)


def _named_interval(a: Named) -> Interval:
    """That of its formula, but a size is at least 0."""
    for x in innermost_first(a, lambda x: x.bounds is not None):
        low, high = interval(x.formula, {})
        x.bounds = max(low or 0, 0), high
    return a.bounds or (0, None)


def _without(ranges: Ranges, name: str) -> Ranges:
    """The ranges of the variables bound before ``name``."""
    out: dict[str, tuple[IntExpr, IntExpr]] = {}
    for k, v in ranges.items():
        if k == name:
            break
        out[k] = v
    return out


def is_nonneg(e: IntExpr, ranges: Ranges) -> bool:
    """True if ``e >= 0`` is proved for all values of the variables."""
    lo, hi = interval(e, ranges)
    if lo is not None and lo >= 0:
        return True
    return (hi is None or hi >= 0) and _is_proved(e, tuple(ranges.items()))


@by_value(1 << 15)
def _is_proved(e: IntExpr, ranges: RangeItems) -> bool:
    """The search, remembered: the same is asked again and again as a schedule grows and code is written."""
    return not is_refuted(e, ranges) and _Proof(dict(ranges)).is_found(e, _DEPTH)


class _Proof:
    """The search for a proof that an expression is at least 0. It ends after ``_GOALS`` goals, and then without one."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._failed: dict[IntExpr, int] = {}
        self._left = _GOALS

    def is_found(self, e: IntExpr, depth: int) -> bool:
        """True if ``e >= 0`` follows in at most ``depth`` steps."""
        lo, hi = interval(e, self.ranges)
        if lo is not None and lo >= 0:
            return True
        if depth == 0 or (hi is not None and hi < 0) or self._failed.get(e, 0) >= depth or not self._left:
            return False
        self._left -= 1
        if self._follows(e, depth):
            return True
        self._failed[e] = depth
        return False

    def _follows(self, e: IntExpr, depth: int) -> bool:
        """The steps of a proof where intervals do not tell."""
        for whole in _rounded(e):
            if self.is_found(whole, depth - 1):
                return True
        for mono, c in e.terms:
            first = mono[0]
            if len(mono) == 1 and isinstance(first, (Min, Max)):
                rest = e - of_atom(first) * c
                cases = (self.is_found(rest + x * c, depth - 1) for x in first.args)
                return all(cases) if (c > 0) == isinstance(first, Min) else any(cases)
        for other in (self._with_nested_divisions(e, depth), _with_one_division(e)):
            if other is not None and self.is_found(other, depth - 1):
                return True
        for mono, _ in e.terms:
            for a in mono:
                if isinstance(a, FloorDiv) and (d := a.args[1].value()) is not None and d > 0:
                    scaled = e * d
                    replaced = _replace_atom(scaled, a, d, a.args[0] - a.args[0] % d)
                    if replaced is not None and replaced != scaled:
                        if self.is_found(replaced, depth - 1):
                            return True
                        if not a.args[0].free_vars().isdisjoint(self.ranges) or e.free_vars().isdisjoint(self.ranges):
                            return False
                        return self._follows_at_ends(e, depth)
        return self._follows_at_ends(e, depth)

    def _follows_at_ends(self, e: IntExpr, depth: int) -> bool:
        """The proof with a variable in which ``e`` is linear at that end of its range where ``e`` is least."""
        for name in reversed(list(self.ranges)):
            coeff = e.coefficient(name)
            if coeff is None or coeff == 0:
                continue
            lo_e, hi_e = self.ranges[name]
            sign = _sign(coeff, self.ranges)
            if sign is None:
                continue
            return self.is_found(e.substitute({name: lo_e if sign > 0 else hi_e}), depth - 1)
        return False

    def _with_nested_divisions(self, e: IntExpr, depth: int) -> IntExpr | None:
        """``e`` with ``q >= 0`` for ``x // a`` and ``(q + k) // b`` for ``(x + k*a) // (a*b)``; None if there are none.

        A division of a division is kept as one by the product, in which a whole number of the inner one is not seen.
        """
        found = [a for a in dict.fromkeys(e.atoms()) if isinstance(a, FloorDiv) and (a.args[1].value() or 0) > 1]
        if len(found) < 2:
            return None
        inner = min(found, key=lambda a: (int(a.args[1]), str(a)))
        x, small = inner.args[0], int(inner.args[1])
        out, changed = e, False
        q = var(f"{inner}")
        for a in found:
            times, rest = divmod(int(a.args[1]), small)
            apart = (a.args[0] - x).value()
            if a is not inner and not rest and apart is not None and apart % small == 0:
                replaced = _replace_atom(out, a, 1, (q + apart // small) // times)
                changed = changed or replaced is not None
                out = out if replaced is None else replaced
        if not changed or not self.is_found(x, depth - 1):
            return None
        return _replace_atom(out, inner, 1, q)


def _rounded(e: IntExpr) -> Iterator[IntExpr]:
    """``e`` with ``min(...) // d * d`` written with a remainder, where the minimum stands outside the division as well.

    To look at the cases of the minimum first would lose that both are the same.
    """
    limits = {a for mono, _ in e.terms for a in mono if isinstance(a, (Min, Max))}
    for a in dict.fromkeys(e.atoms()) if limits else ():
        if isinstance(a, FloorDiv) and (d := a.args[1].value()) is not None and limits.intersection(a.args[0].atoms()):
            replaced = _replace_atom(e, a, d, a.args[0] - a.args[0] % d)
            if replaced is not None and replaced != e:
                yield replaced


def _with_one_division(e: IntExpr) -> IntExpr | None:
    """A lower bound of ``e``: ``(x + n) // d`` taken as ``x // d + n // d`` where ``x // d`` is subtracted; or None."""
    single = {mono[0]: c for mono, c in e.terms if len(mono) == 1 and isinstance(mono[0], FloorDiv)}
    for a, c in single.items():
        for b, k in single.items():
            if c > 0 > k and a.args[1] == b.args[1] and (d := a.args[1].value()) is not None and d > 0:
                apart = (a.args[0] - b.args[0]).value()
                if apart is not None and apart >= 0:
                    return e + (of_atom(b) - of_atom(a) + apart // d) * c
    return None


def _replace_atom(e: IntExpr, a: Atom, d: int, value: IntExpr) -> IntExpr | None:
    """``e`` with ``d * a`` replaced by ``value`` in every term; None where a coefficient is not divisible."""
    kept = tuple((mono, c) for mono, c in e.terms if a not in mono)
    out = IntExpr(kept, e.const)
    for mono, c in e.terms:
        if a in mono:
            if c % d:
                return None
            i = mono.index(a)
            rest = mono[:i] + mono[i + 1 :]
            factor = IntExpr(((rest, 1),), 0) if rest else ONE
            out = out + factor * value * (c // d)
    return out


def is_less(a: IntLike, b: IntLike, ranges: Ranges) -> bool:
    """True if ``a < b`` is proved."""
    return is_nonneg(as_expr(b) - as_expr(a) - 1, ranges)


def upper_bound(e: IntExpr, ranges: Ranges) -> int | None:
    """An integer that ``e`` never exceeds, or None. ``min(q, n) - q`` never exceeds 0, whatever ``q`` is."""
    top = interval(e, ranges)[1]
    for mono, c in e.terms if top is None else ():
        a = mono[0]
        if len(mono) > 1 or not isinstance(a, (Min, Max)):
            continue
        rest = e - of_atom(a) * c
        tops = [upper_bound(rest + x * c, ranges) for x in a.args]
        known = [t for t in tops if t is not None]
        if (c > 0) == isinstance(a, Min):
            return min(known, default=None)
        return max(known) if len(known) == len(tops) else None
    return top


def simplify(e: IntExpr, ranges: Ranges, rests: bool = False) -> IntExpr:
    """``e`` with every division, remainder, minimum and maximum removed that the ranges decide. ``rests``: divisions
    also lose what is too little to count, as ``r`` in ``(4*q + r) // 12`` where ``r`` is less than 4."""
    if not any([isinstance(a, (FloorDiv, Mod, Min, Max)) for mono, _ in e.terms for a in mono]):
        return e
    out = const(e.const)
    for mono, c in e.terms:
        term = const(c)
        for a in mono:
            term = term * (_simplify_size(a) if a.free_vars().isdisjoint(ranges) else _simplify_atom(a, ranges, rests))
        out = out + term
    return out


@by_value(1 << 13)
def _simplify_size(a: Atom) -> IntExpr:
    """What dimension symbols alone decide comes again in every index and every extent."""
    return _simplify_atom(a, {})


def _simplify_atom(a: Atom, ranges: Ranges, rests: bool = False) -> IntExpr:
    if isinstance(a, (FloorDiv, Mod)):
        num, den = (simplify(x, ranges, rests) for x in a.args)
        lo, hi = interval(num, ranges)
        d = den.value()
        if d == 0:  # in a loop that never runs
            return of_atom(a)
        if d is not None and d > 0 and lo is not None and hi is not None and lo // d == hi // d:
            q = lo // d
            return const(q) if isinstance(a, FloorDiv) else num - q * d
        if is_nonneg(num, ranges) and is_less(num, den, ranges):
            return const(0) if isinstance(a, FloorDiv) else num
        if d is None:
            return _split_symbolic(num, den, isinstance(a, FloorDiv), ranges)
        if rests and (found := _without_rest(num, d, isinstance(a, FloorDiv), ranges)) is not None:
            return found
        return num // den if isinstance(a, FloorDiv) else num % den
    if isinstance(a, (Min, Max)):
        args = [simplify(x, ranges, rests) for x in a.args]
        sign = 1 if isinstance(a, Min) else -1
        kept: list[IntExpr] = []
        for i, x in enumerate(args):
            others = kept + args[i + 1 :]
            if not any(is_nonneg((x - y) * sign, ranges) for y in others):
                kept.append(x)
        return (minimum if isinstance(a, Min) else maximum)(*kept)
    return of_atom(a)


def _without_rest(num: IntExpr, d: int, want_quotient: bool, ranges: Ranges) -> IntExpr | None:
    """``(g*q + r) // d`` is ``q // (d / g)``, and ``% d`` is ``g * (q % (d / g)) + r``, where ``0 <= r < g`` is proved
    for a divisor ``g`` of ``d``."""
    for g in sorted({math.gcd(c, d) for _, c in num.terms} - {1, d}, reverse=True):
        rest = IntExpr(tuple((mono, c) for mono, c in num.terms if c % g), num.const % g)
        if rest != 0 and is_nonneg(rest, ranges) and is_less(rest, const(g), ranges):
            whole = (num - rest) // g
            return whole // (d // g) if want_quotient else (whole % (d // g)) * g + rest
    return None


def _split_symbolic(num: IntExpr, den: IntExpr, want_quotient: bool, ranges: Ranges) -> IntExpr:
    """``(q*den + r) // den`` is ``q`` and ``% den`` is ``r`` when ``0 <= r < den`` is proved (symbolic ``den``)."""
    whole, rest = const(0), const(num.const)
    for mono, c in num.terms:
        term = IntExpr(((mono, c),), 0)
        quotient = term // den
        if (quotient * den) == term and not any(isinstance(a, FloorDiv) for a in quotient.atoms()):
            whole = whole + quotient
        else:
            rest = rest + term
    if whole != 0 and is_nonneg(rest, ranges) and is_less(rest, den, ranges):
        return whole if want_quotient else rest
    return num // den if want_quotient else num % den


def extremes(
    e: IntExpr, names: Mapping[str, tuple[IntExpr, IntExpr]], outer: Ranges | None = None
) -> tuple[IntExpr, IntExpr] | None:
    """Symbolic bounds ``(low, high)`` of ``e`` as the variables in ``names`` run over their ranges (outermost first).

    The rest stays symbolic; ``outer`` holds what is known of it. Exact for expressions linear in ``names`` whose
    ranges do not depend on each other, else sound: ``low <= e <= high`` always. None where a variable occurs in an
    atom of another room, or with a coefficient of unknown sign.
    """
    known = outer if outer is not None else {}
    low, high = _end(e, names, known, False), _end(e, names, known, True)
    return None if low is None or high is None else (low, high)


def _end(e: IntExpr, names: Mapping[str, tuple[IntExpr, IntExpr]], outer: Ranges, high: bool) -> IntExpr | None:
    """One end of ``e``: variables are eliminated innermost first, each where it is linear."""
    for name in reversed(list(names)):
        while name in e.free_vars():
            coeff = e.coefficient(name)
            if coeff is not None:
                sign = _sign(coeff, outer)
                if sign is None:
                    return None
                e = e.substitute({name: names[name][1 if (sign > 0) == high else 0]})
                continue
            mono, i = _nonlinear(e, name)
            a = mono[i]
            if isinstance(a, (Min, Max)) and len(mono) == 1:
                return _end_of_cases(e, a, names, outer, high)
            rest = IntExpr(((mono[:i] + mono[i + 1 :], dict(e.terms)[mono]),), 0) if len(mono) > 1 else None
            factor = rest if rest is not None else const(dict(e.terms)[mono])
            sign = None if factor.free_vars() & names.keys() else _sign(factor, outer)
            if sign is None:
                return None
            bound = _atom_end(a, names, outer, (sign > 0) == high)
            if bound is None:
                return None
            e = e + factor * (bound - of_atom(a))
    return e


def _sign(coeff: IntExpr, outer: Ranges) -> int | None:
    lo, hi = interval(coeff, outer)
    if lo is not None and lo >= 0:
        return 1
    return -1 if hi is not None and hi <= 0 else None


def _nonlinear(e: IntExpr, name: str) -> tuple[tuple[Atom, ...], int]:
    """The first atom that has ``name`` inside: its term and its place there; minima and maxima first."""
    found: list[tuple[tuple[Atom, ...], int]] = []
    for mono, _ in e.terms:
        for i, a in enumerate(mono):
            if not isinstance(a, Var) and name in a.free_vars():
                if isinstance(a, (Min, Max)) and len(mono) == 1:
                    return mono, i
                found.append((mono, i))
            elif len(mono) > 1 and mono.count(a) > 1 and name in a.free_vars():
                found.append((mono, i))
    return found[0]


def _end_of_cases(
    e: IntExpr, a: Min | Max, names: Mapping[str, tuple[IntExpr, IntExpr]], outer: Ranges, high: bool
) -> IntExpr | None:
    """``c * min(x, y) + rest`` is the least (greatest for negative ``c``) of ``c*x + rest`` and ``c*y + rest``."""
    c = dict(e.terms)[(a,)]
    rest = e - of_atom(a) * c
    ends = [_end(rest + x * c, names, outer, high) for x in a.args]
    known = [x for x in ends if x is not None]
    least = (c > 0) == isinstance(a, Min)
    if len(known) < len(ends) and not (known and least == high):
        return None
    return minimum(*known) if least else maximum(*known)


def _atom_end(a: Atom, names: Mapping[str, tuple[IntExpr, IntExpr]], outer: Ranges, high: bool) -> IntExpr | None:
    if isinstance(a, Var):
        return names[a.name][1 if high else 0] if a.name in names else None
    if isinstance(a, (Min, Max)):
        return _end_of_cases(of_atom(a), a, names, outer, high)
    if not isinstance(a, (FloorDiv, Mod)) or a.args[1].free_vars() & names.keys():
        return None
    num, den = a.args
    low_end, high_end = _end(num, names, outer, False), _end(num, names, outer, True)
    if isinstance(a, FloorDiv):
        end = high_end if high else low_end
        return None if end is None else simplify(end // den, outer)
    if low_end is not None and high_end is not None:
        whole = simplify(low_end // den, outer) * den
        if is_less(high_end - whole, den, outer):
            return (high_end if high else low_end) - whole
    return den - 1 if high else const(0)


def spread(e: IntExpr) -> IntExpr:
    """``e`` with a sum around a single minimum or maximum moved inside: ``min(a, b) - c`` becomes ``min(a-c, b-c)``."""
    for mono, c in e.terms:
        if len(mono) == 1 and isinstance(mono[0], (Min, Max)) and (c != 1 or len(e.terms) > 1 or e.const):
            a = mono[0]
            rest = e - of_atom(a) * c
            cases = [spread(rest + x * c) for x in a.args]
            return minimum(*cases) if (c > 0) == isinstance(a, Min) else maximum(*cases)
    return e
