"""Phases: runs of nests of a function that may go on at once, each when the one before it is complete.

A new phase begins between two nests of which at least one is parallel if one writes what the other uses (two that only
write a buffer share a phase if they write other parts of it, as a peeled loop and its tail do). A serial loop around
parallel ones has the phases of its body in each iteration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.minmax import maximum
from tilewright.tensor_ir.analysis.parallel_if import parallel_condition
from tilewright.tensor_ir.analysis.regions import Shapes, write_apart
from tilewright.tensor_ir.analysis.scopes import loads_of, parallel_loops_in
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Func, Loop, Seq, Stmt, Store, walk


@dataclass(frozen=True, slots=True)
class Phase:
    """Nests that go on at once, inside the loops ``around``."""

    index: int
    nests: tuple[Stmt, ...]
    around: tuple[Loop, ...]

    def is_shared(self) -> bool:
        return any(is_parallel_loop(s) for s in self.nests)

    def condition(self, func: Func) -> IntExpr | None:
        """Above 0 where threads are to share a parallel loop of the phase; None if they always do."""
        found = [parallel_condition(func, s) for s in self.nests if isinstance(s, Loop) and is_parallel_loop(s)]
        known = [c for c in found if c is not None]
        return maximum(*known) if known and len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class Steps:
    """A serial loop around parallel ones: its iterations, phase after phase."""

    index: int
    loop: Loop
    around: tuple[Loop, ...]
    body: tuple[Phase | Steps, ...]


def root_nests(func: Func) -> tuple[list[Stmt], list[Buffer]]:
    """The statements at the root in order, and the buffers allocated around them."""
    nests: list[Stmt] = []
    allocs: list[Buffer] = []

    def visit(s: Stmt) -> None:
        if isinstance(s, Seq):
            for c in s.stmts:
                visit(c)
        elif isinstance(s, Alloc):
            allocs.append(s.buffer)
            visit(s.body)
        else:
            nests.append(s)

    visit(func.body)
    return nests, allocs


def ordered_phases(func: Func) -> list[Phase | Steps]:
    """The phases in the order in which they run, those inside a serial loop as its steps; indices count up."""
    nests, allocs = root_nests(func)
    shapes = {b.name: b.shape for b in (*func.params, *allocs)}
    count = itertools.count()

    def ordered(stmts: Sequence[Stmt], around: tuple[Loop, ...]) -> list[Phase | Steps]:
        out: list[Phase | Steps] = []
        for run in _runs(stmts, shapes):
            if isinstance(loop := run[0], Loop) and _is_around_threads(loop):
                index = next(count)
                out.append(Steps(index, loop, around, tuple(ordered(_flat(loop.body), (*around, loop)))))
            else:
                out.append(Phase(next(count), tuple(run), around))
        return out

    return ordered(nests, ())


def _flat(s: Stmt) -> list[Stmt]:
    return [x for c in s.stmts for x in _flat(c)] if isinstance(s, Seq) else [s]


def phases_in(order: Iterable[Phase | Steps]) -> list[Phase]:
    return [p for x in order for p in ([x] if isinstance(x, Phase) else phases_in(x.body))]


def steps_in(order: Iterable[Phase | Steps]) -> list[Steps]:
    return [s for x in order if isinstance(x, Steps) for s in (x, *steps_in(x.body))]


def _is_around_threads(s: Stmt) -> bool:
    return not is_parallel_loop(s) and bool(parallel_loops_in(s))


def _runs(nests: Sequence[Stmt], shapes: Shapes) -> list[list[Stmt]]:
    """Nests in runs such that each needs the one before it to be complete; a loop around parallel ones is alone."""
    phases: list[list[Stmt]] = []
    pending: list[_Used] = []
    apart = False
    for s in nests:
        around = _is_around_threads(s)
        used = _Used(s, *uses(s))
        clash = any(_clash(p, used, shapes) for p in pending)
        if clash or around or apart or not phases:
            phases.append([])
            pending = []
        phases[-1].append(s)
        pending.append(used)
        apart = around
    return phases


@dataclass(frozen=True, slots=True)
class _Used:
    """A nest, and the names of the buffers that it reads and writes."""

    nest: Stmt
    reads: set[str]
    writes: set[str]


def _clash(a: _Used, b: _Used, shapes: Shapes) -> bool:
    """True if threads may be at work in one of the nests, and one writes what the other uses."""
    if not (is_parallel_loop(a.nest) or is_parallel_loop(b.nest)):
        return False
    if a.writes & b.reads or b.writes & a.reads:
        return True
    return not all(write_apart(a.nest, b.nest, name, shapes) for name in a.writes & b.writes)


def is_parallel_loop(s: Stmt) -> bool:
    return isinstance(s, Loop) and s.kind == "parallel"


def uses(s: Stmt) -> tuple[set[str], set[str]]:
    """Names of the buffers read and written anywhere in ``s``."""
    statements = list(walk(s))
    writes = {x.buffer for x in statements if isinstance(x, (Block, Store))}
    return {x.buffer for c in statements for x in loads_of(c)}, writes
