"""Where things stand in a function: the loops around a block, the ranges of loop variables, who reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from tilewright.core.arith.bounds import loop_range
from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import ScheduleError
from tilewright.core.memo import by_identity
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Func,
    Guard,
    Load,
    Loop,
    Seq,
    Stmt,
    Store,
    loads,
    stmt_children,
    walk,
    walk_index,
)


@dataclass(frozen=True, slots=True)
class Places:
    """What has a name in a statement. ``loops`` and ``blocks``: the statements down to each, itself included;
    ``buffers``: the allocated ones in program order; ``axes``: names of block axes."""

    loops: dict[str, tuple[Stmt, ...]] = field(default_factory=dict)
    blocks: dict[str, tuple[Stmt, ...]] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    axes: set[str] = field(default_factory=set)


@by_identity(256)
def places(root: Stmt) -> Places:
    """Where everything in ``root`` is. Of things of one name the first in program order counts."""
    out = Places()
    todo: list[tuple[Stmt, tuple[Stmt, ...]]] = [(root, ())]
    while todo:
        s, trail = todo.pop()
        trail = (*trail, s)
        if isinstance(s, Loop):
            out.loops.setdefault(s.var, trail)
            todo.append((s.body, trail))
        elif isinstance(s, Block):
            out.blocks.setdefault(s.name, trail)
            out.axes.update([a.name for a in s.axes])
        elif isinstance(s, Seq):
            todo += [(c, trail) for c in reversed(s.stmts)]
        elif isinstance(s, (Alloc, Guard)):
            if isinstance(s, Alloc):
                out.buffers.append(s.buffer)
            todo.append((s.body, trail))
    return out


# -- by name -----------------------------------------------------------------------------------------------------
def find_loop(func: Func, name: str) -> Loop:
    """The loop called ``name``. Raises ScheduleError if there is none."""
    known = places(func.body).loops
    loop = known[name][-1] if name in known else None
    if not isinstance(loop, Loop):
        raise _missing(func, "loop", name, known)
    return loop


def find_block(func: Func, name: str) -> Block:
    """The block called ``name``. Raises ScheduleError if there is none."""
    known = places(func.body).blocks
    block = known[name][-1] if name in known else None
    if not isinstance(block, Block):
        raise _missing(func, "block", name, known)
    return block


def find_buffer(func: Func, name: str) -> Buffer:
    """The parameter or allocated buffer called ``name``. Raises ScheduleError if there is none."""
    for b in buffers(func):
        if b.name == name:
            return b
    raise _missing(func, "buffer", name, (b.name for b in buffers(func)))


def _missing(func: Func, kind: str, name: str, known: Iterable[str]) -> ScheduleError:
    names = ", ".join(sorted(known)) or "none"
    return ScheduleError(f"expected the name of a {kind} of {func.name}, got {name!r}; it has: {names}")


# -- by place ----------------------------------------------------------------------------------------------------
def path_to(root: Stmt, wanted: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """The statements from ``root`` down to the first (in program order) that is ``wanted``, inclusive; else empty."""
    trail: list[Stmt] = []

    def search(s: Stmt) -> bool:
        trail.append(s)
        if wanted(s):
            return True
        for c in stmt_children(s):
            if search(c):
                return True
        trail.pop()
        return False

    search(root)
    return tuple(trail)


def loop_path(func: Func, name: str) -> tuple[Stmt, ...]:
    """The statements from the root down to the loop called ``name``, inclusive; empty if there is none."""
    return places(func.body).loops.get(name, ())


def block_path(func: Func, name: str) -> tuple[Stmt, ...]:
    """The statements from the root down to the block called ``name``, inclusive; empty if there is none."""
    return places(func.body).blocks.get(name, ())


def loops_in(path: Iterable[Stmt]) -> list[Loop]:
    """The loops among the statements of a path, outermost first."""
    return [s for s in path if isinstance(s, Loop)]


def loops_around(func: Func, block: str) -> list[Loop]:
    """The loops around a block, outermost first. Raises ScheduleError if there is no such block."""
    path = block_path(func, block)
    if not path:
        find_block(func, block)
    return loops_in(path)


def loop_ranges(loops: Iterable[Loop]) -> dict[str, tuple[IntExpr, IntExpr]]:
    """The intervals of the variables of ``loops`` (outermost first), for :mod:`tilewright.core.arith.bounds`."""
    return {s.var: loop_range(s.extent) for s in loops}


def block_environment(block: Block) -> dict[str, IntExpr]:
    """Axis name -> its binding: substituting it turns the block's expressions into ones of loop variables."""
    return {a.name: b for a, b in zip(block.axes, block.bindings, strict=True)}


# -- what there is -----------------------------------------------------------------------------------------------
def buffers(func: Func) -> Iterator[Buffer]:
    """Parameters, then allocated buffers in program order."""
    yield from func.params
    yield from places(func.body).buffers


def blocks_in(stmt: Stmt) -> list[Block]:
    """Every block of ``stmt``, in program order."""
    return [s for s in walk(stmt) if isinstance(s, Block)]


def runs_in_order(loop: Loop) -> bool:
    """True for a loop that drives an ordered axis, as that over the steps of a recurrence."""
    bound = [(a, e) for b in blocks_in(loop.body) for a, e in zip(b.axes, b.bindings, strict=True)]
    return any(a.kind == "ordered" and loop.var in e.free_vars() for a, e in bound)


def parallel_loops_in(stmt: Stmt) -> list[Loop]:
    """Every parallel loop of ``stmt``, itself included, in program order."""
    return [s for s in walk(stmt) if isinstance(s, Loop) and s.kind == "parallel"]


def loads_of(stmt: Stmt) -> tuple[Load, ...]:
    """The loads that stand directly in one statement, those inside indices, extents and shapes included."""
    if isinstance(stmt, Block):
        init = () if stmt.init is None else loads(stmt.init)
        return (*loads(stmt.value), *init, *_in_indices(stmt.indices), *_in_indices(stmt.bindings))
    if isinstance(stmt, Store):
        return (*loads(stmt.value), *_in_indices(stmt.indices))
    if isinstance(stmt, Guard):
        return loads(stmt.condition)
    if isinstance(stmt, Loop):
        return _in_indices((stmt.extent,))
    return _in_indices(stmt.buffer.shape) if isinstance(stmt, Alloc) else ()


def _in_indices(indices: Iterable[IntExpr]) -> tuple[Load, ...]:
    return tuple(x for i in indices if not i.is_plain for x in walk_index(i) if isinstance(x, Load))


def consumers(func: Func, buffer: str) -> list[Block]:
    """The blocks other than its producers that read ``buffer``, in program order."""
    readers = (b for b in blocks_in(func.body) if b.buffer != buffer)
    return [b for b in readers if any(x.buffer == buffer for x in loads_of(b))]
