"""What a tuning record is about: a function without its names.

The canonical form renames everything in order of appearance (dims ``n0``, inputs ``x0``, outputs ``y0``, other buffers
``t0``, loops ``i0``, blocks ``b0``, axes ``a0``), so that equal computations of different models, layers and exporters
are one workload. A record's trace refers to the names of the canonical form; a build schedules that form.

The ``structure`` of a workload is its text without numbers: two sizes of the same layer have the same structure.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.core.arith.expr import IntExpr, var
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    Func,
    Guard,
    Loop,
    Seq,
    Stmt,
    Store,
    substitute_expr,
    walk,
)
from tilewright.tensor_ir.loads import rename_in_expr, rename_in_index

_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
NAME = "f"
"""The name of every canonical function."""


@dataclass(frozen=True, slots=True)
class Workload:
    """``text``: the canonical function; ``hash`` and ``structure``: SHA-256 of it, with and without its numbers.
    ``former``: what it was when older versions wrote logs; what they have of that is about this one, too."""

    hash: str
    structure: str
    text: str
    former: tuple[Workload, ...] = field(default=(), compare=False)

    def hashes(self) -> frozenset[str]:
        """Its hash and those that it had."""
        return frozenset((self.hash, *(f.hash for f in self.former)))

    def as_in(self, other: Workload) -> Workload:
        """This workload as it was when one of the structure of ``other`` was measured."""
        return next((w for w in (self, *self.former) if w.structure == other.structure), self)


def workload_of(func: Func) -> Workload:
    """The workload that ``func`` (not scheduled) is."""
    return described(canonical(func))


def described(func: Func) -> Workload:
    """The workload of a function that has canonical names."""
    text = str(func)
    found = digests_of(text)
    return Workload(found["hash"], found["structure"], text)


def digests_of(text: str) -> dict[str, str]:
    """``hash`` and ``structure`` of a workload with this text."""
    return {"hash": _digest(text), "structure": _digest(_NUMBER.sub("#", text))}


def differences(old: str, new: str, limit: int = 4) -> tuple[str, ...]:
    """The numbers that differ between two texts of one structure, in order, as ``56 -> 64``; no repetitions."""
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=False)
    changed = list(dict.fromkeys(f"{a} -> {b}" for a, b in pairs if a != b))
    return (*changed[:limit], *(["..."] if len(changed) > limit else []))


def canonical(func: Func) -> Func:
    """``func`` under canonical names. ``canonical(canonical(f)) == canonical(f)``."""
    names = _Names(func)
    params = tuple(names.buffer(b) for b in func.params)
    dims = tuple(str(names.vars[d]) for d in func.dims)
    partial = tuple(names.buffers[n] for n in func.partial)
    return Func(NAME, params, func.outputs, dims, names.stmt(func.body), partial)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class _Names:
    """The renaming of one function."""

    def __init__(self, func: Func) -> None:
        inputs = len(func.params) - func.outputs
        self.buffers = {b.name: f"x{i}" if i < inputs else f"y{i - inputs}" for i, b in enumerate(func.params)}
        self.vars: dict[str, IntExpr] = {d: var(f"n{i}") for i, d in enumerate(func.dims)}
        self.blocks: dict[str, str] = {}
        allocated = loops = 0
        for s in walk(func.body):
            match s:
                case Alloc(buffer=b):
                    self.buffers[b.name] = f"t{allocated}"
                    allocated += 1
                case Loop(var=name):
                    self.vars[name] = var(f"i{loops}")
                    loops += 1
                case Block(name=name):
                    self.blocks[name] = f"b{len(self.blocks)}"

    def index(self, e: IntExpr, scope: Mapping[str, IntExpr] | None = None) -> IntExpr:
        return rename_in_index(e, self.buffers).substitute(self.vars if scope is None else scope)

    def indices(self, es: tuple[IntExpr, ...], scope: Mapping[str, IntExpr] | None = None) -> tuple[IntExpr, ...]:
        return tuple(self.index(e, scope) for e in es)

    def expr(self, e: Expr, scope: Mapping[str, IntExpr] | None = None) -> Expr:
        return substitute_expr(rename_in_expr(e, self.buffers), self.vars if scope is None else scope)

    def buffer(self, b: Buffer) -> Buffer:
        return dataclasses.replace(b, name=self.buffers[b.name], shape=self.indices(b.shape))

    def stmt(self, s: Stmt) -> Stmt:
        match s:
            case Seq(stmts):
                return Seq(tuple(self.stmt(c) for c in stmts))
            case Loop():
                name = str(self.vars[s.var])
                return dataclasses.replace(s, var=name, extent=self.index(s.extent), body=self.stmt(s.body))
            case Alloc(buffer, body):
                return Alloc(self.buffer(buffer), self.stmt(body))
            case Guard(condition, body):
                return Guard(self.expr(condition), self.stmt(body))
            case Store():
                return Store(self.buffers[s.buffer], self.indices(s.indices), self.expr(s.value))
            case Block():
                return self._block(s)

    def _block(self, s: Block) -> Block:
        """Axes are names of their block alone, numbered in each."""
        axes = {a.name: var(f"a{i}") for i, a in enumerate(s.axes)}
        scope = {**self.vars, **axes}
        return Block(
            self.blocks[s.name],
            tuple(dataclasses.replace(a, name=str(axes[a.name]), extent=self.index(a.extent)) for a in s.axes),
            self.indices(s.bindings),
            self.buffers[s.buffer],
            self.indices(s.indices, scope),
            self.expr(s.value, scope),
            None if s.init is None else self.expr(s.init, scope),
        )


def distance(old: str, new: str) -> float:
    """How far apart the sizes in two texts of one structure are: the sum of the ratios' logarithms."""
    total = 0.0
    for a, b in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=False):
        if a != b:
            total += abs(math.log((float(a) + 1.0) / (float(b) + 1.0)))
    return total
