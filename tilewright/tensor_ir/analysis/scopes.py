"""Where things stand in a function: the loops around a block, the ranges of loop variables, who reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tilewright.core.errors import ScheduleError
from tilewright.core.intbounds import Ranges, loop_range
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


def path_to(root: Stmt, found: Callable[[Stmt], bool]) -> tuple[Stmt, ...] | None:
    """The statements from ``root`` down to the first one (in program order) that ``found`` accepts, both included."""
    if found(root):
        return (root,)
    for c in stmt_children(root):
        rest = path_to(c, found)
        if rest is not None:
            return (root, *rest)
    return None


def find_loop(func: Func, name: str) -> Loop:
    """The loop called ``name``. Raises ScheduleError if there is none."""
    for s in walk(func.body):
        if isinstance(s, Loop) and s.var == name:
            return s
    raise ScheduleError(f"{func.name}: no loop is called {name}")


def find_block(func: Func, name: str) -> Block:
    """The block called ``name``. Raises ScheduleError if there is none."""
    for s in walk(func.body):
        if isinstance(s, Block) and s.name == name:
            return s
    raise ScheduleError(f"{func.name}: no block is called {name}")


def find_buffer(func: Func, name: str) -> Buffer:
    """The parameter or allocated buffer called ``name``. Raises ScheduleError if there is none."""
    for b in buffers(func):
        if b.name == name:
            return b
    raise ScheduleError(f"{func.name}: no buffer is called {name}")


def buffers(func: Func) -> Iterator[Buffer]:
    """Parameters, then allocated buffers in program order."""
    yield from func.params
    for s in walk(func.body):
        if isinstance(s, Alloc):
            yield s.buffer


def loops_around(func: Func, block: str) -> tuple[Loop, ...]:
    """The loops around a block, outermost first. Raises ScheduleError if there is no such block."""
    path = path_to(func.body, lambda s: isinstance(s, Block) and s.name == block)
    if path is None:
        raise ScheduleError(f"{func.name}: no block is called {block}")
    return tuple(s for s in path if isinstance(s, Loop))


def loops_above(func: Func, loop: str) -> tuple[Loop, ...]:
    """The loops around a loop, outermost first, without itself. Raises ScheduleError if there is no such loop."""
    path = path_to(func.body, lambda s: isinstance(s, Loop) and s.var == loop)
    if path is None:
        raise ScheduleError(f"{func.name}: no loop is called {loop}")
    return tuple(s for s in path[:-1] if isinstance(s, Loop))


def loops_between(outer: Stmt, inner: Stmt) -> tuple[Loop, ...]:
    """The loops below ``outer`` (itself excluded) that are around ``inner`` (a statement of that very tree)."""
    path = path_to(outer, lambda s: s is inner)
    if path is None:
        raise ScheduleError("the inner statement is not below the outer one")
    return tuple(s for s in path[1:] if isinstance(s, Loop) and s is not inner)


def loop_ranges(loops: Iterable[Loop]) -> dict[str, tuple[IntExpr, IntExpr]]:
    """The intervals of the loop variables, in the given order (outermost first)."""
    return {s.var: loop_range(s.extent) for s in loops}


def axis_ranges(block: Block) -> dict[str, tuple[IntExpr, IntExpr]]:
    """The intervals of a block's axes."""
    return {a.name: loop_range(a.extent) for a in block.axes}


def blocks_under(stmt: Stmt) -> tuple[Block, ...]:
    """Every block of ``stmt``, in program order."""
    return tuple(s for s in walk(stmt) if isinstance(s, Block))


def stored_buffer(stmt: Stmt) -> str | None:
    """The buffer that a block or store writes; None for other statements."""
    return stmt.buffer if isinstance(stmt, (Block, Store)) else None


def loads_of(stmt: Stmt) -> Iterator[Load]:
    """The loads that stand directly in one statement: values, init, guard conditions, and those inside indices."""
    if isinstance(stmt, (Block, Store)):
        yield from loads(stmt.value)
        if isinstance(stmt, Block) and stmt.init is not None:
            yield from loads(stmt.init)
        for i in stmt.indices:
            yield from loads_in_index(i)
        for i in stmt.bindings if isinstance(stmt, Block) else ():
            yield from loads_in_index(i)
    elif isinstance(stmt, Guard):
        yield from loads(stmt.condition)


def loads_in_index(index: IntExpr) -> Iterator[Load]:
    """The loads inside an index expression."""
    return (x for x in walk_index(index) if isinstance(x, Load))


def read_buffers(stmt: Stmt) -> tuple[str, ...]:
    """Names of the buffers read anywhere below ``stmt``, in order of first use."""
    return tuple(dict.fromkeys(x.buffer for s in walk(stmt) for x in loads_of(s)))


def written_buffers(stmt: Stmt) -> tuple[str, ...]:
    """Names of the buffers written anywhere below ``stmt``, in order of first use."""
    return tuple(dict.fromkeys(s.buffer for s in walk(stmt) if isinstance(s, (Block, Store))))


def producers(func: Func, buffer: str) -> tuple[Block, ...]:
    """The blocks that write ``buffer``, in program order."""
    return tuple(b for b in blocks_under(func.body) if b.buffer == buffer)


def consumers(func: Func, buffer: str) -> tuple[Block, ...]:
    """The blocks other than its producers that read ``buffer``, in program order."""
    readers = (b for b in blocks_under(func.body) if b.buffer != buffer)
    return tuple(b for b in readers if any(x.buffer == buffer for x in loads_of(b)))


def block_environment(block: Block) -> Mapping[str, IntExpr]:
    """Axis name -> its binding: substituting it turns the block's expressions into ones of loop variables."""
    return {a.name: b for a, b in zip(block.axes, block.bindings, strict=True)}


def ranges_at(func: Func, stmt: Stmt) -> Ranges:
    """The ranges of all loop variables around ``stmt`` (a statement of that very function), outermost first."""
    return loop_ranges(loops_around_stmt(func, stmt))


def loops_around_stmt(func: Func, stmt: Stmt) -> tuple[Loop, ...]:
    """The loops around ``stmt`` (a statement of that very function), outermost first."""
    path = path_to(func.body, lambda s: s is stmt)
    if path is None:
        raise ScheduleError(f"{func.name}: the statement is not in the function")
    return tuple(s for s in path[:-1] if isinstance(s, Loop))
