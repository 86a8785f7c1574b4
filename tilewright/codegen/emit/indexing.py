"""Integer expressions as machine code: loop scopes, hoisting, common subexpressions, addresses.

Every loop is a scope with a level (0: the function). An integer operation is emitted in the first block of the
deepest scope that one of its operands belongs to, so loop-invariant address parts are computed outside the loop,
once. Integer operations are free of side effects, which makes that safe even when the loop does not run. Values read
from memory (``Dyn``) stay where they are used.

An index is first brought into the form ``constant + sum(coefficient * SSA value)``; unrolled loop variables and lanes
are plain integers, so they end up in the constant, which becomes the displacement of the address.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tilewright.codegen.emit.digits import Counter, Digit, Digits
from tilewright.codegen.llvm.builder import BasicBlock, Code
from tilewright.core.arith.bounds import Interval, interval, is_nonneg, simplify
from tilewright.core.arith.broadcast import Broadcast
from tilewright.core.arith.expr import Atom, FloorDiv, IntExpr, Mod, Var, as_atom, of_atom
from tilewright.core.arith.minmax import Max, Min
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Dyn, Expr

_NEAR = 8
"""Steps up to which a quotient and remainder are counted up from others instead of dividing again."""

HERE = 1 << 30  # the level of values that are not hoisted


class Linear(NamedTuple):
    """``const + sum(coefficient * ssa)``."""

    const: int
    terms: dict[str, int]


class LoopScope:
    """The first block of a loop body (or of the function), and the pure values that were emitted there."""

    __slots__ = ("block", "memo")

    def __init__(self, block: BasicBlock) -> None:
        self.block = block
        self.memo: dict[str, str] = {}


class Indexer:
    """Emits integer expressions of one function. ``dyn`` evaluates a value read from memory to an i64 operand."""

    def __init__(self, code: Code, dyn: Callable[[Expr], str]) -> None:
        self.code = code
        self.dyn = dyn
        self.digits = Digits(code)
        self.scopes = [LoopScope(code.entry)]
        self.env: dict[str, int | str] = {}
        self.levels: dict[str, int] = {}
        self.ranges: dict[str, tuple[IntExpr, IntExpr]] = {}
        self._order: dict[str, int] = {}
        self._nonneg: dict[IntExpr, bool] = {}
        self._emitted: dict[tuple[Atom | int | str | None, ...], int | str | Linear] = {}
        """What atoms became under these bindings: names of loop variables are never used again."""
        self._with_constants: dict[tuple[Atom, tuple[tuple[str, int], ...]], IntExpr] = {}

    # -- variables -----------------------------------------------------------------------------------------------
    def define(self, ssa: str, level: int) -> None:
        """Register an SSA value of type i64 that lives at ``level``."""
        self.levels[ssa] = level
        self._order[ssa] = len(self._order)

    def push(self, block: BasicBlock) -> int:
        """Open a loop scope whose first block is ``block``; its level."""
        self.scopes.append(LoopScope(block))
        return len(self.scopes) - 1

    def pop(self) -> None:
        self.scopes.pop()

    # -- emission ------------------------------------------------------------------------------------------------
    def pure(self, level: int, text: str) -> str:
        """The SSA value of a side-effect-free i64 or pointer instruction, emitted once in the scope of ``level``."""
        if level >= HERE:
            name = self.code.name()
            self.code.line(f"{name} = {text}")
            self.define(name, HERE)
            return name
        scope = self.scopes[level]
        name = scope.memo.get(text, "")
        if not name:
            name = self.code.name()
            scope.block.lines.append(f"  {name} = {text}")
            scope.memo[text] = name
            self.define(name, level)
        return name

    def level_of(self, *operands: str) -> int:
        """The deepest level among operands (literals are at 0)."""
        known = self.levels
        return max([known.get(o, 0) for o in operands], default=0)

    def linear(self, e: IntExpr) -> Linear:
        """``e`` under the current bindings."""
        constant = e.const
        terms: dict[str, int] = {}
        for mono, c in e.terms:
            factors: list[str] = []
            inner: Linear | None = None
            for a in mono:
                value = self._atom(a)
                if isinstance(value, int):
                    c *= value
                elif isinstance(value, str):
                    factors.append(value)
                elif not value.terms:
                    c *= value.const
                elif len(mono) == 1:
                    inner = value
                else:
                    factors.append(self.operand(value))
            if c == 0:
                continue
            if inner is not None:
                constant += c * inner.const
                for k, v in inner.terms.items():
                    terms[k] = terms.get(k, 0) + c * v
            elif not factors:
                constant += c
            else:
                factors.sort(key=lambda f: (self.levels[f], self._order[f]))
                ssa = factors[0]
                for f in factors[1:]:
                    ssa = self.pure(self.level_of(ssa, f), f"mul nsw i64 {ssa}, {f}")
                terms[ssa] = terms.get(ssa, 0) + c
        return Linear(constant, {k: v for k, v in terms.items() if v} if 0 in terms.values() else terms)

    def operand(self, e: IntExpr | Linear) -> str:
        """``e`` as an i64 operand."""
        form = e if isinstance(e, Linear) else self.linear(e)
        total = self._sum(self._sorted(form.terms))
        if total is None:
            return str(form.const)
        if form.const:
            total = self.pure(self.level_of(total), f"add nsw i64 {total}, {form.const}")
        return total

    def value(self, e: IntExpr) -> int | str:
        """``e`` as a Python integer where it is constant under the current bindings, else as an i64 operand."""
        form = self.linear(e)
        return self.operand(form) if form.terms else form.const

    def pointer(self, base: str, scalar: str, form: Linear) -> str:
        """The address ``base + form`` counted in elements of LLVM type ``scalar``, outer parts first."""
        ptr = base
        group: list[tuple[str, int]] = []
        items = self._sorted(form.terms)
        for i, (ssa, c) in enumerate(items):
            group.append((ssa, c))
            if i + 1 == len(items) or self.levels[items[i + 1][0]] != self.levels[ssa]:
                offset = self._sum(group)
                ptr = self.pure(self.level_of(ptr, str(offset)), f"getelementptr {scalar}, ptr {ptr}, i64 {offset}")
                group = []
        if form.const:
            ptr = self.pure(self.level_of(ptr), f"getelementptr {scalar}, ptr {ptr}, i64 {form.const}")
        return ptr

    def nonneg(self, e: IntExpr) -> bool:
        """True if ``e >= 0`` is proved from the loop ranges."""
        if e not in self._nonneg:
            self._nonneg[e] = is_nonneg(e, self.ranges)
        return self._nonneg[e]

    def bounds(self, e: IntExpr) -> Interval:
        """Integer bounds of ``e`` from the loop ranges."""
        return interval(e, self.ranges)

    def _sorted(self, terms: dict[str, int]) -> list[tuple[str, int]]:
        if len(terms) < 2:
            return list(terms.items())
        return sorted(terms.items(), key=lambda t: (self.levels[t[0]], self._order[t[0]]))

    def _sum(self, items: list[tuple[str, int]]) -> str | None:
        total: str | None = None
        for ssa, c in items:
            term = ssa if c == 1 else self.pure(self.levels[ssa], f"mul nsw i64 {ssa}, {c}")
            total = term if total is None else self.pure(self.level_of(total, term), f"add nsw i64 {total}, {term}")
        return total

    # -- atoms ---------------------------------------------------------------------------------------------------
    def _atom(self, a: Atom) -> int | str | Linear:
        if isinstance(a, Var):
            if a.name not in self.env:
                raise InternalError(f"codegen: variable {a.name} is not bound here")
            return self.env[a.name]
        if isinstance(a, Dyn):
            ssa = self.dyn(a.value)
            if ssa not in self.levels:
                self.define(ssa, HERE)
            return ssa if ssa[0] == "%" else int(ssa)
        if not a.is_plain:
            return self._operation(a)
        key = (a, *map(self.env.get, a.free_vars()))
        if key not in self._emitted:
            self._emitted[key] = self._operation(a)
        return self._emitted[key]

    def _operation(self, a: Atom) -> int | str | Linear:
        known = tuple(sorted((n, v) for n in a.free_vars() if isinstance(v := self.env.get(n), int)))
        if known:
            key = (a, known)
            if key not in self._with_constants:
                e = of_atom(a).substitute(dict(known))
                self._with_constants[key] = simplify(e, self.ranges)
            e = self._with_constants[key]
            if e != of_atom(a):
                return self.linear(e)
        if isinstance(a, (FloorDiv, Mod)):
            return self._divide(a, isinstance(a, Mod))
        if isinstance(a, (Min, Max)):
            return self._extremum(a)
        if isinstance(a, Broadcast):
            return self._broadcast(a)
        raise InternalError(f"codegen: unknown kind of index {type(a).__name__}: {a}")

    def _extremum(self, a: Min | Max) -> int | str:
        name = "smin" if isinstance(a, Min) else "smax"
        values = [self.value(x) for x in a.args]
        numbers = [v for v in values if isinstance(v, int)]
        rest = [v for v in values if isinstance(v, str)]
        if numbers:
            best = min(numbers) if name == "smin" else max(numbers)
            if not rest:
                return best
            rest.append(str(best))
        self.code.module.declare(f"llvm.{name}.i64", "i64", ("i64", "i64"))
        acc = rest[0]
        for r in rest[1:]:
            acc = self.pure(self.level_of(acc, r), f"call i64 @llvm.{name}.i64(i64 {acc}, i64 {r})")
        return acc

    def _broadcast(self, a: Broadcast) -> int | str:
        """The first argument that is not 1."""
        acc = self.value(a.args[-1])
        for x in reversed(a.args[:-1]):
            v = self.value(x)
            if isinstance(v, int):
                acc = acc if v == 1 else v
                continue
            is_one = self.pure(self.level_of(v), f"icmp eq i64 {v}, 1")
            acc = self.pure(self.level_of(is_one, str(acc)), f"select i1 {is_one}, i64 {acc}, i64 {v}")
        return acc

    def _divide(self, a: FloorDiv | Mod, remainder: bool) -> int | str:
        if (carried := self._carried(a, remainder)) is not None:
            return carried
        num, den = (self.value(x) for x in a.args)
        if isinstance(num, int) and isinstance(den, int):
            if den == 0:
                raise InternalError(f"codegen: division by zero in {a}")
            return num % den if remainder else num // den
        n, d = str(num), str(den)
        level = self.level_of(n, d)
        if isinstance(den, int) and den > 0 and den & (den - 1) == 0:
            if remainder:
                return self.pure(level, f"and i64 {n}, {den - 1}")
            shift = "lshr" if self.nonneg(a.args[0]) else "ashr"
            return self.pure(level, f"{shift} i64 {n}, {den.bit_length() - 1}")
        if not isinstance(den, int):  # a loop over an empty dimension still computes its invariant parts
            d = self._at_least_one(d)
        if self.nonneg(a.args[0]):
            return self.pure(level, f"{'urem' if remainder else 'udiv'} i64 {n}, {d}")
        r = self.pure(level, f"srem i64 {n}, {d}")
        sign = self.pure(level, f"ashr i64 {r}, 63")
        if remainder:
            return self.pure(level, f"add i64 {r}, {self.pure(level, f'and i64 {sign}, {d}')}")
        return self.pure(level, f"add i64 {self.pure(level, f'sdiv i64 {n}, {d}')}, {sign}")

    def _at_least_one(self, divisor: str) -> str:
        self.code.module.declare("llvm.smax.i64", "i64", ("i64", "i64"))
        return self.pure(self.level_of(divisor), f"call i64 @llvm.smax.i64(i64 {divisor}, i64 1)")

    def _carried(self, a: FloorDiv | Mod, remainder: bool) -> str | None:
        """A division by a symbolic number whose result follows from another's: the last step's, or that of one less."""
        num, den = a.args
        if den.is_const or not self.nonneg(num):
            return None
        divisor = self.value(den)
        if isinstance(divisor, int):
            return None
        if 0 < num.const <= _NEAR and not (num - num.const).is_const and self.nonneg(num - num.const):
            return self._one_more(num, den, self._at_least_one(divisor), remainder)
        digit = self._digit(num, den)
        if digit is None:
            return None
        return digit.remainder if remainder else digit.quotient.value

    def _one_more(self, num: IntExpr, den: IntExpr, divisor: str, remainder: bool) -> str:
        """From quotient and remainder of ``num - 1`` to those of ``num``."""
        below = [self.operand((num - 1) % den), self.operand((num - 1) // den)]
        level = self.level_of(divisor, *below)
        grown = self.pure(level, f"add nuw nsw i64 {below[0]}, 1")
        again = self.pure(level, f"icmp eq i64 {grown}, {divisor}")
        if remainder:
            return self.pure(level, f"select i1 {again}, i64 0, i64 {grown}")
        return self.pure(level, f"add nuw nsw i64 {below[1]}, {self.pure(level, f'zext i1 {again} to i64')}")

    def _counter(self, e: IntExpr) -> Counter | None:
        """The counter that ``e`` is: the variable of a loop, or a quotient of one."""
        a = as_atom(e)
        if isinstance(a, Var):
            value = self.env.get(a.name)
            return self.digits.counter(value) if isinstance(value, str) else None
        digit = self._digit(*a.args) if isinstance(a, FloorDiv) else None
        return None if digit is None else digit.quotient

    def _digit(self, num: IntExpr, den: IntExpr) -> Digit | None:
        """Quotient and remainder of a counter by a number that is known before its loop; None if they are not that."""
        counter = self._counter(num)
        if counter is None:
            return None
        divisor = self.value(den)
        if isinstance(divisor, int):
            if divisor <= 0:
                return None
            divisor = str(divisor)
        elif self.level_of(divisor) >= counter.loop.level:
            return None
        else:
            divisor = self._at_least_one(divisor)
        digit = self.digits.divide(counter, divisor)
        for value in (digit.quotient.value, digit.remainder):
            self.define(value, counter.loop.level)
        return digit
