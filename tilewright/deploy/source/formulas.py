"""C functions with integer expressions in them, each sub-expression once, in a local variable of its own.

The arithmetic is that of ``native/internal.h``: what divides by zero or leaves 62 bits becomes ``TW_NO_SIZE``, which
every check of a size refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tilewright.core.arith.broadcast import Broadcast
from tilewright.core.arith.expr import Atom, FloorDiv, IntExpr, Mod, Operation, Var
from tilewright.core.arith.minmax import Max, Min
from tilewright.core.arith.named import Named, definitions
from tilewright.core.errors import InternalError

_FUNCTIONS: dict[type[Operation], str] = {
    FloorDiv: "tw_quotient", Mod: "tw_remainder", Min: "tw_least", Max: "tw_most", Broadcast: "tw_broadcast",
}  # fmt: skip
_LEAST = -(1 << 63)


def literal(value: int) -> str:
    """An integer of 64 bits as C. Larger ones are no sizes."""
    if not _LEAST < value < 1 << 63:
        return "TW_NO_SIZE"
    return str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"


class Code:
    """The body of a C function. ``symbols``: the C text of each variable of a formula."""

    def __init__(self, symbols: Mapping[str, str]) -> None:
        self._symbols = symbols
        self._names: dict[object, str] = {}
        self._lines: list[str] = []
        self._depth = 1
        self._count = 0

    def add(self, *lines: str) -> None:
        self._lines += ["  " * self._depth + line for line in lines]

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Lines in braces; what is declared there is known there alone."""
        outside = dict(self._names)
        self.add(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")
        self._names = outside

    @property
    def lines(self) -> list[str]:
        return self._lines

    def embed(self, other: Code) -> None:
        """Another's lines as a block."""
        with self.block():
            self._lines += ["  " * (self._depth - 1) + line for line in other.lines]

    def function(self, head: str) -> str:
        """The text of the function."""
        return "\n".join([f"{head} {{", *self._lines, "}"])

    def fresh(self, letter: str) -> str:
        """A name for a local variable."""
        self._count += 1
        return f"{letter}{self._count}"

    def local(self, text: str) -> str:
        """The name of an integer with the value of ``text``."""
        if text not in self._names:
            self._names[text] = self.fresh("e")
            self.add(f"const int64_t {self._names[text]} = {text};")
        return self._names[text]

    def of(self, e: IntExpr) -> str:
        """The C text, a name or a literal, of a value."""
        for named in definitions((e,)):
            if named not in self._names:
                self._names[named] = self._sum(named.formula)
        return self._sum(e)

    def product(self, bytes_each: int, dims: Sequence[IntExpr]) -> str:
        """The same of a number of bytes: ``bytes_each`` times all of ``dims``, none of them negative."""
        out = literal(bytes_each)
        for d in dims:
            out = f"tw_room({out}, {self.of(d)})"
        return self.local(out)

    def sizes(self, dims: Sequence[IntExpr]) -> str:
        """The name of an array of values."""
        name = self.fresh("t")
        values = ", ".join(self.of(d) for d in dims) or "0"
        static = "static " if all(d.is_const for d in dims) else ""
        self.add(f"{static}const int64_t {name}[] = {{{values}}};")
        return name

    def array(self, kind: str, items: Sequence[object]) -> str:
        """The name of an array of other things."""
        name = self.fresh("t")
        self.add(f"{kind} {name}[] = {{{', '.join(map(str, items)) or '0'}}};")
        return name

    def _sum(self, e: IntExpr) -> str:
        if e.is_const:
            return literal(e.const)
        if (known := self._names.get(e)) is not None:
            return known
        parts = []
        for monomial, c in e.terms:
            text = self._atom(monomial[0])
            for a in monomial[1:]:
                text = f"tw_times({text}, {self._atom(a)})"
            parts.append(text if c == 1 else f"tw_times({literal(c)}, {text})")
        out = parts[0]
        for p in (*parts[1:], *([literal(e.const)] if e.const else [])):
            out = f"tw_sum({out}, {p})"
        self._names[e] = out = self.local(out) if "(" in out else out
        return out

    def _atom(self, a: Atom) -> str:
        if isinstance(a, Var):
            return self._symbols[a.name]
        if isinstance(a, Operation) and type(a) in _FUNCTIONS:
            out = self._sum(a.args[0])
            for other in a.args[1:]:
                out = f"{_FUNCTIONS[type(a)]}({out}, {self._sum(other)})"
            return out
        if isinstance(a, Named):
            return self._names[a]
        raise InternalError(f"formula: no C for {type(a).__name__}")
