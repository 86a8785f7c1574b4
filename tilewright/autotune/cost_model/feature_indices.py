"""Integer expressions as numbers, for features: strides over loops and typical extents, with every dim bound.

Features describe, they prove nothing: a division becomes a fractional stride, a remainder keeps the strides that move
inside it, a minimum stands for its first iteration. That makes one pass over a function cheap.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.expr import Atom, FloorDiv, IntExpr, Mod, Var
from tilewright.core.arith.minmax import Max, Min
from tilewright.core.errors import InputError
from tilewright.tensor_ir.ir import Dyn

Strides = dict[str, float]
"""Variable -> elements that one step of it moves; nan where the address depends on memory."""

_DYNAMIC_EXTENT = 8
"""Iterations assumed of a loop whose extent is read from memory."""


class IndexNumbers:
    """Strides and extents under one assignment of dims. ``extents`` grows as a walk enters loops."""

    __slots__ = ("_last", "_zeros", "dims", "extents")

    def __init__(self, dims: Mapping[str, int]) -> None:
        self.dims = dims
        self.extents: dict[str, float] = {}
        self._zeros: dict[str, int] = dict(dims)
        self._last: dict[str, int] = dict(dims)

    def enter(self, var: str, extent: IntExpr) -> tuple[float, float]:
        """Record a loop: its full extent (in the first iteration of the loops around it) and its mean extent."""
        if not extent.terms:
            full = mean = float(extent.const)
        else:
            full = float(max(0, self._value(extent, self._zeros)))
            mean = self._mean(extent, full)
        self.extents[var] = full
        self._zeros[var] = 0
        self._last[var] = max(0, int(full) - 1)
        return full, mean

    def size(self, extent: IntExpr) -> int:
        """The value of a shape's entry."""
        return extent.const if not extent.terms else max(0, self._value(extent, self._zeros))

    def strides(self, e: IntExpr, axes: Mapping[str, Strides]) -> Strides:
        """Strides of ``e`` over loops; ``axes`` gives the strides of the variables that are not loops."""
        out: Strides = {}
        for mono, c in e.terms:
            if len(mono) == 1:
                self._add(out, mono[0], float(c), axes)
            else:
                self._add_product(out, mono, float(c), axes)
        return out

    def _add(self, out: Strides, a: Atom, c: float, axes: Mapping[str, Strides]) -> None:
        if type(a) is Var:
            name = a.name
            inner = axes.get(name)
            if inner is not None:
                for k, v in inner.items():
                    out[k] = out.get(k, 0.0) + v * c
            elif name in self.extents:
                out[name] = out.get(name, 0.0) + c
            return
        for k, v in self._atom(a, axes).items():
            out[k] = out.get(k, 0.0) + v * c

    def _add_product(self, out: Strides, mono: tuple[Atom, ...], c: float, axes: Mapping[str, Strides]) -> None:
        """A product: the factors without variables scale the one that has them; two such factors are irregular."""
        moving: list[Strides] = []
        for a in mono:
            strides: Strides = {}
            self._add(strides, a, 1.0, axes)
            if strides:
                moving.append(strides)
            else:
                c *= self._factor(a)
        if len(moving) == 1:
            for k, v in moving[0].items():
                out[k] = out.get(k, 0.0) + v * c
        else:
            for part in moving:
                out.update(dict.fromkeys(part, float("nan")))

    def _factor(self, a: Atom) -> float:
        if type(a) is Var:
            return float(self._zeros.get(a.name, 0))
        try:
            return float(a.evaluate(self._zeros))
        except (KeyError, TypeError, ZeroDivisionError):
            return 1.0

    def _atom(self, a: Atom, axes: Mapping[str, Strides]) -> Strides:
        if isinstance(a, (FloorDiv, Mod)):
            inner = self.strides(a.args[0], axes)
            if not inner:
                return inner
            d = float(self.size(a.args[1])) if not self.strides(a.args[1], axes) else float("nan")
            if not d > 0:
                return dict.fromkeys(inner, float("nan"))
            return self._quotient(inner, d) if isinstance(a, FloorDiv) else self._remainder(inner, d)
        if isinstance(a, (Min, Max)):
            return max((self.strides(x, axes) for x in a.args), key=len)
        if isinstance(a, Dyn):
            return dict.fromkeys(self._variables(a, axes), float("nan"))
        return {}

    def _variables(self, a: Atom, axes: Mapping[str, Strides]) -> list[str]:
        found: dict[str, None] = {}
        for name in sorted(a.free_vars()):
            if name in axes:
                found.update(dict.fromkeys(axes[name]))
            elif name in self.extents:
                found[name] = None
        return list(found)

    def _quotient(self, inner: Strides, d: float) -> Strides:
        reach = sum(abs(v) * (self.extents[k] - 1) for k, v in inner.items() if v % d)
        return {k: v / d for k, v in inner.items() if not v % d or not reach < d}

    def _remainder(self, inner: Strides, d: float) -> Strides:
        return {k: v for k, v in inner.items() if v % d}

    def _value(self, e: IntExpr, env: Mapping[str, int]) -> int:
        """What ``e`` is; 0 where it divides by a size of 0: the loop around it has no steps."""
        try:
            return e.evaluate(env)
        except ZeroDivisionError:
            return 0
        except TypeError:
            return _DYNAMIC_EXTENT
        except KeyError as error:
            raise InputError(f"features: expected a value for dim {error.args[0]}, got {sorted(self.dims)}") from error

    def _mean(self, extent: IntExpr, full: float) -> float:
        """The mean over the loops around: all iterations full but the last."""
        around = 1.0
        for name in extent.free_vars():
            around *= max(1.0, self.extents.get(name, 1.0))
        if around == 1.0:
            return full
        last = float(max(0, self._value(extent, self._last)))
        return full + (min(last, full) - full) / around
