"""Where things stand in a function: the loops around a block, the ranges of loop variables, who reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilewright.core.errors import ScheduleError
from tilewright.core.intbounds import loop_range
from tilewright.core.intexpr import IntExpr
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Func,
    Guard,
    Load,
    Loop,
    Stmt,
    Store,
    loads,
    stmt_children,
    walk,
    walk_index,
)


# -- by name -----------------------------------------------------------------------------------------------------
def find_loop(func: Func, name: str) -> Loop:
    """The loop called ``name``. Raises ScheduleError if there is none."""
    for s in walk(func.body):
        if isinstance(s, Loop) and s.var == name:
            return s
    raise _missing(func, "loop", name, (s.var for s in walk(func.body) if isinstance(s, Loop)))


def find_block(func: Func, name: str) -> Block:
    """The block called ``name``. Raises ScheduleError if there is none."""
    for s in walk(func.body):
        if isinstance(s, Block) and s.name == name:
            return s
    raise _missing(func, "block", name, (s.name for s in walk(func.body) if isinstance(s, Block)))


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
    return path_to(func.body, lambda s: isinstance(s, Loop) and s.var == name)


def block_path(func: Func, name: str) -> tuple[Stmt, ...]:
    """The statements from the root down to the block called ``name``, inclusive; empty if there is none."""
    return path_to(func.body, lambda s: isinstance(s, Block) and s.name == name)


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
    """The intervals of the variables of ``loops`` (outermost first), for :mod:`tilewright.core.intbounds`."""
    return {s.var: loop_range(s.extent) for s in loops}


def block_environment(block: Block) -> dict[str, IntExpr]:
    """Axis name -> its binding: substituting it turns the block's expressions into ones of loop variables."""
    return {a.name: b for a, b in zip(block.axes, block.bindings, strict=True)}


# -- what there is -----------------------------------------------------------------------------------------------
def buffers(func: Func) -> Iterator[Buffer]:
    """Parameters, then allocated buffers in program order."""
    yield from func.params
    for s in walk(func.body):
        if isinstance(s, Alloc):
            yield s.buffer


def blocks_in(stmt: Stmt) -> list[Block]:
    """Every block of ``stmt``, in program order."""
    return [s for s in walk(stmt) if isinstance(s, Block)]


def loads_of(stmt: Stmt) -> Iterator[Load]:
    """The loads that stand directly in one statement, those inside indices, extents and shapes included."""
    if isinstance(stmt, Block):
        yield from loads(stmt.value)
        if stmt.init is not None:
            yield from loads(stmt.init)
        yield from _in_indices((*stmt.indices, *stmt.bindings))
    elif isinstance(stmt, Store):
        yield from loads(stmt.value)
        yield from _in_indices(stmt.indices)
    elif isinstance(stmt, Guard):
        yield from loads(stmt.condition)
    elif isinstance(stmt, Loop):
        yield from _in_indices((stmt.extent,))
    elif isinstance(stmt, Alloc):
        yield from _in_indices(stmt.buffer.shape)


def _in_indices(indices: Iterable[IntExpr]) -> Iterator[Load]:
    return (x for i in indices for x in walk_index(i) if isinstance(x, Load))


def consumers(func: Func, buffer: str) -> list[Block]:
    """The blocks other than its producers that read ``buffer``, in program order."""
    readers = (b for b in blocks_in(func.body) if b.buffer != buffer)
    return [b for b in readers if any(x.buffer == buffer for x in loads_of(b))]
