"""What the primitives that move, insert and remove blocks share: who touches a buffer and where, and edits of loads."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.arith.expr import ZERO, IntExpr, as_var, product
from tilewright.core.memo import by_identity
from tilewright.schedule.base import Primitive, find_block, refuse, replace_stmt, require_no_threads
from tilewright.tensor_ir.analysis.dependence import is_injective
from tilewright.tensor_ir.analysis.scopes import block_path, loads_of, loop_ranges, loops_around, path_to
from tilewright.tensor_ir.analysis.sweeps import covers_once
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Guard,
    Load,
    Loop,
    Op,
    Seq,
    Stmt,
    Store,
    loads,
    map_children,
    seq,
    stmt_children,
    walk,
)


# -- who touches what --------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Site:
    """A statement that reads or writes memory itself, and the loops around it, outermost first."""

    stmt: Stmt
    loops: tuple[Loop, ...]
    loads: tuple[Load, ...]

    @property
    def written(self) -> str | None:
        return self.stmt.buffer if isinstance(self.stmt, (Block, Store)) else None

    def reads(self, buffer: str) -> bool:
        return any(x.buffer == buffer for x in self.loads)

    @property
    def label(self) -> str:
        """A name for messages."""
        if isinstance(self.stmt, Block):
            return f"block {self.stmt.name}"
        if isinstance(self.stmt, Loop):
            return f"the extent of loop {self.stmt.var}"
        return f"a {type(self.stmt).__name__.lower()}"


@by_identity(256)
def sites(root: Stmt) -> tuple[Site, ...]:
    """Every statement below ``root`` that touches memory, in program order."""
    out: list[Site] = []

    def visit(s: Stmt, loops: tuple[Loop, ...]) -> None:
        here = loads_of(s)
        if here or isinstance(s, (Block, Store)):
            out.append(Site(s, loops, here))
        if isinstance(s, Loop):
            loops = (*loops, s)
        for c in stmt_children(s):
            visit(c, loops)

    visit(root, ())
    return tuple(out)


def block_loads(block: Block) -> frozenset[str]:
    """The buffers that a block reads, without its own."""
    return frozenset(x.buffer for x in loads_of(block)) - {block.buffer}


def has_reduction(block: Block) -> bool:
    return any(a.kind == "reduce" for a in block.axes)


def reduction_update(block: Block) -> Expr | None:
    """The ``update`` of ``C[i] = op(C[i], update)``; None if the value has another form or the update reads ``C``."""
    v = block.value
    if not isinstance(v, Op) or len(v.args) != 2:
        return None
    old, new = v.args
    if not isinstance(old, Load) or old.buffer != block.buffer or old.indices != block.indices:
        return None
    return None if any(x.buffer == block.buffer for x in loads(new)) else new


_IDEMPOTENT = frozenset(("max", "min", "logical_and", "logical_or", "bit_and", "bit_or"))
_IDENTITY = {"add": 0, "mul": 1, "logical_xor": 0, "bit_xor": 0}


def neutral_value(block: Block) -> Expr | None:
    """What a reduction may take in one more step without another result: its initial value, if that is neutral.

    For ``max`` and its kin any initial value is, since it is part of the result already.
    """
    combiner, init = block.value.name if isinstance(block.value, Op) else "", block.init
    if combiner in _IDEMPOTENT:
        return init
    return init if isinstance(init, Const) and combiner in _IDENTITY and init.value == _IDENTITY[combiner] else None


def plain_axes(block: Block) -> list[str | None] | None:
    """For each store index the axis that it is, or None for a constant; None if one is anything else or repeats."""
    names = {a.name for a in block.axes}
    out: list[str | None] = []
    for i in block.indices:
        name = as_var(i)
        if i.is_const:
            out.append(None)
        elif name in names and name not in out:
            out.append(name)
        else:
            return None
    return out


def alloc_of(func: Func, buffer: str) -> Alloc | None:
    """The allocation of an intermediate buffer; None for a parameter."""
    path = path_to(func.body, lambda s: isinstance(s, Alloc) and s.buffer.name == buffer)
    return path[-1] if path and isinstance(path[-1], Alloc) else None


def require_intermediate(who: Primitive, func: Func, buffer: str, block: Block) -> Alloc:
    """The allocation of ``buffer``; refuses parameters and buffers that several statements write."""
    alloc = alloc_of(func, buffer)
    if alloc is None:
        raise refuse(who, f"expected an intermediate buffer, but {buffer} is a parameter of {func.name}")
    require_only_writer(who, func, block, buffer)
    return alloc


def require_only_writer(who: Primitive, func: Func, block: Block, buffer: str) -> None:
    """Refuses when a statement other than ``block`` writes ``buffer``."""
    others = [s.label for s in sites(func.body) if s.written == buffer and s.stmt is not block]
    if others:
        raise refuse(who, f"expected {block.name} to be the only writer of {buffer}, but {others[0]} writes it too")


def is_written_whole(func: Func, buffer: Buffer) -> bool:
    """True if one block is proved to write every element of ``buffer``; padding of a layout is written by none."""
    return any(
        isinstance(s.stmt, Block) and s.written == buffer.name and _fills(func, s.stmt, s.loops, buffer)
        for s in sites(func.body)
    )


def _fills(func: Func, block: Block, loops: tuple[Loop, ...], buffer: Buffer) -> bool:
    """The nest runs over all of the axes once, and these hit as many different elements as there are."""
    guarded = any(isinstance(s, Guard) for s in block_path(func, block.name))
    if guarded or (has_reduction(block) and block.init is None):
        return False
    ranges = loop_ranges(loops)
    placing = frozenset().union(*(i.free_vars() for i in block.indices))
    axes = {a.name: a.extent for a in block.axes if a.name in placing}
    idle = {x.var for x in loops}
    for a, b in zip(block.axes, block.bindings, strict=True):
        if a.name not in axes:
            idle -= b.free_vars() if a.kind == "reduce" else set()
            continue
        if b.free_vars() & ranges.keys() - idle or not covers_once(b, loops, a.extent, ranges):
            return False
        idle -= b.free_vars()
    runs = all(is_nonneg(x.extent - 1, {}) for x in loops if x.var in idle)
    return runs and product(axes.values()) == product(buffer.shape) and is_injective(block.indices, axes)


def require_no_guard(who: Primitive, path: Iterable[Stmt]) -> None:
    """Refuses a block that runs only under a condition."""
    if any(isinstance(s, Guard) for s in path):
        raise refuse(who, "the block stands under a guard")


def require_first_step(who: Primitive, block: Block, loops: Iterable[Loop]) -> None:
    """Refuses unless the first iteration of ``loops`` is the first step of the reduction, which stores its init."""
    start = {x.var: ZERO for x in loops}
    for a, b in zip(block.axes, block.bindings, strict=True):
        if a.kind == "reduce" and b.substitute(start) != 0:
            raise refuse(who, f"reduce axis {a.name} = {b} does not start at 0 in the nest")


def require_local(who: Primitive, shape: Sequence[IntExpr], path: tuple[Stmt, ...]) -> None:
    """Refuses a local buffer at the root for a block at ``path``: of unknown size, private to another thread, or around
    threads that stand beside the block."""
    if not all(d.is_const for d in shape):
        raise refuse(who, f"expected a constant shape for local scope, got ({', '.join(map(str, shape))})")
    for s in path:
        if isinstance(s, Loop) and s.kind == "parallel":
            raise refuse(who, f"the block is inside parallel loop {s.var}, whose threads do not share local buffers")
    nest = root_statement(path)
    if isinstance(nest, Loop):
        require_no_threads(who, nest)


def root_statement(path: tuple[Stmt, ...]) -> Stmt:
    """The statement of a path that stands directly in the function's top-level sequence."""
    return next(s for s in path if not isinstance(s, (Alloc, Seq)))


def block_and_path(who: Primitive, func: Func, name: str) -> tuple[Block, tuple[Stmt, ...]]:
    """A block by name with the statements around it, outermost first and itself last."""
    block = find_block(func, name, who)
    return block, path_to(func.body, lambda s: s is block)


def new_loops(func: Func, result: Func, block: str) -> tuple[str, ...]:
    """The loops around ``block`` in ``result`` that moving it has made: new ones, or its own that came along."""
    before = {s.var for s in walk(func.body) if isinstance(s, Loop)}
    mine = {x.var for x in loops_around(func, block)}
    return tuple(x.var for x in loops_around(result, block) if x.var not in before or x.var in mine)


def fork(a: tuple[Stmt, ...], b: tuple[Stmt, ...]) -> int:
    """How many leading statements two paths share."""
    n = 0
    while n < min(len(a), len(b)) and a[n] is b[n]:
        n += 1
    return n


def require_inputs_reach(
    who: Primitive, func: Func, block: Block, path: tuple[Stmt, ...], target: tuple[Stmt, ...]
) -> None:
    """Refuses unless everything that ``block`` reads is still there, with the same values, at ``target``.

    ``path`` leads to the block, ``target`` to a later place where its values would be computed instead.
    """
    inputs = block_loads(block)
    around = {s.var for s in target if isinstance(s, Loop)}
    mine = {s.var for s in path if isinstance(s, Loop)}
    seen = False
    for s in sites(func.body):
        seen = seen or s.stmt is block
        if s.written not in inputs:
            continue
        if seen:
            raise refuse(who, f"{s.label} writes {s.written}, which the block reads, after it")
        again = sorted({loop.var for loop in s.loops} & mine - around)
        if again:
            raise refuse(who, f"{s.label} writes {s.written}, which the block reads, again in loop {again[0]}")
    for alloc in path:
        if isinstance(alloc, Alloc) and alloc.buffer.name in inputs and not any(alloc is t for t in target):
            raise refuse(who, f"{alloc.buffer.name}, which the block reads, is not allocated at its new place")


# -- edits -----------------------------------------------------------------------------------------------------------
def insert_at(body: Stmt, new: Stmt, before: Callable[[Stmt], bool], after: bool = False) -> Stmt:
    """``body`` with ``new`` in its sequence before the first (or after the last) statement that qualifies.

    Looks through allocations at the top of ``body``.
    """
    if isinstance(body, Alloc):
        return Alloc(body.buffer, insert_at(body.body, new, before, after))
    stmts = body.stmts if isinstance(body, Seq) else (body,)
    hits = [i for i, s in enumerate(stmts) if before(s)]
    at = hits[-1] + 1 if after else hits[0]
    return seq(*stmts[:at], new, *stmts[at:])


def map_statements(s: Stmt, changes: Mapping[int, Stmt]) -> Stmt:
    """``s`` with statements replaced by identity (``id(old) -> new``), outermost first."""
    if id(s) in changes:
        return changes[id(s)]
    return map_children(s, lambda c: map_statements(c, changes))


def with_buffer(func: Func, old: Stmt, new: Stmt, buffer: Buffer) -> Func:
    """``func`` with ``old`` replaced by ``new`` and ``buffer`` allocated: around ``new`` if local, else at the root."""
    if buffer.scope == "local":
        return replace_stmt(func, old, Alloc(buffer, new))
    func = replace_stmt(func, old, new)
    return dataclasses.replace(func, body=Alloc(buffer, func.body))


def drop_alloc(func: Func, buffer: str) -> Func:
    """``func`` without the allocation of ``buffer``."""
    alloc = alloc_of(func, buffer)
    return func if alloc is None else dataclasses.replace(func, body=_without(func.body, alloc))


def _without(s: Stmt, alloc: Alloc) -> Stmt:
    if s is alloc:
        return alloc.body
    return map_children(s, lambda c: _without(c, alloc))
