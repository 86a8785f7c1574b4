"""What schedule primitives are made of: the base class, look-ups by name, tree edits that share what is unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.errors import ScheduleError
from tilewright.core.intbounds import Ranges, loop_range, simplify
from tilewright.core.intexpr import IntExpr, IntLike, as_expr
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
    map_children,
    map_expr,
    seq,
    stmt_children,
    substitute_expr,
    walk,
)


@dataclass(frozen=True, slots=True)
class Primitive:
    """One schedule step as a value: its fields are its arguments, its trace entry and its JSON.

    Fields are ``str``, ``int``, ``None`` or tuples of these. ``apply`` checks first and raises ScheduleError before
    anything is built.
    """

    name: ClassVar[str] = ""

    def apply(self, func: Func) -> Func:
        """``func`` transformed. Raises ScheduleError when the step is refused."""
        raise NotImplementedError

    def produces(self, func: Func) -> tuple[str, ...]:
        """Names of the loops, blocks or buffers that applying this step to ``func`` creates, outermost first."""
        return ()


def refuse(primitive: Primitive, message: str) -> ScheduleError:
    """The error of a refused step: ``split(i): factor must be >= 1, got 0``. For ``raise refuse(self, ...)``."""
    fields = dataclasses.fields(primitive)
    subject = getattr(primitive, fields[0].name) if fields else ""
    shown = ", ".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)
    return ScheduleError(f"{primitive.name}({shown}): {message}")


# -- look-ups ----------------------------------------------------------------------------------------------------
def path_to(func: Func, wanted: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """The statements from the root of ``func`` down to the first that is ``wanted``, inclusive; empty if none is."""
    return path_in(func.body, wanted)


def path_in(root: Stmt, wanted: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """As :func:`path_to`, below a statement."""
    trail: list[Stmt] = []

    def search(s: Stmt) -> bool:
        trail.append(s)
        if wanted(s) or any(search(c) for c in stmt_children(s)):
            return True
        trail.pop()
        return False

    search(root)
    return tuple(trail)


def loop_path(func: Func, var: str) -> tuple[Stmt, ...]:
    """The statements from the root down to the loop named ``var``, inclusive; empty if there is none."""
    return path_to(func, lambda s: isinstance(s, Loop) and s.var == var)


def block_path(func: Func, block: str) -> tuple[Stmt, ...]:
    """The statements from the root down to the block named ``block``, inclusive; empty if there is none."""
    return path_to(func, lambda s: isinstance(s, Block) and s.name == block)


def find_loop(func: Func, var: str, who: Primitive | None = None) -> Loop:
    """The loop named ``var``. Raises ScheduleError, in the name of ``who``, when there is none."""
    for s in walk(func.body):
        if isinstance(s, Loop) and s.var == var:
            return s
    raise _missing(who, func, "loop", var, (s.var for s in walk(func.body) if isinstance(s, Loop)))


def find_block(func: Func, name: str, who: Primitive | None = None) -> Block:
    """The block named ``name``. Raises ScheduleError, in the name of ``who``, when there is none."""
    for s in walk(func.body):
        if isinstance(s, Block) and s.name == name:
            return s
    raise _missing(who, func, "block", name, (s.name for s in walk(func.body) if isinstance(s, Block)))


def find_buffer(func: Func, name: str, who: Primitive | None = None) -> Buffer:
    """The parameter or allocated buffer named ``name``. Raises ScheduleError when there is none."""
    known = all_buffers(func)
    if name in known:
        return known[name]
    raise _missing(who, func, "buffer", name, known)


def _missing(who: Primitive | None, func: Func, kind: str, name: str, known: Iterable[str]) -> ScheduleError:
    names = ", ".join(sorted(known)) or "none"
    message = f"expected the name of a {kind} of {func.name}, got {name!r}; it has: {names}"
    return refuse(who, message) if who is not None else ScheduleError(message)


def all_buffers(func: Func) -> dict[str, Buffer]:
    """Every buffer of the function by name: parameters, then allocations in program order."""
    out = {b.name: b for b in func.params}
    for s in walk(func.body):
        if isinstance(s, Alloc):
            out[s.buffer.name] = s.buffer
    return out


def loops_in(path: Iterable[Stmt]) -> list[Loop]:
    """The loops among the statements of a path, outermost first."""
    return [s for s in path if isinstance(s, Loop)]


def loops_around(func: Func, block: str) -> list[Loop]:
    """The loops around a block, outermost first. Raises ScheduleError for an unknown block."""
    find_block(func, block)
    return loops_in(block_path(func, block))


def loop_ranges(loops: Iterable[Loop]) -> dict[str, tuple[IntExpr, IntExpr]]:
    """The ranges of the variables of ``loops`` (outermost first), for :mod:`tilewright.core.intbounds`."""
    return {loop.var: loop_range(loop.extent) for loop in loops}


def blocks_in(s: Stmt) -> list[Block]:
    """The blocks in a statement, in program order."""
    return [b for b in walk(s) if isinstance(b, Block)]


# -- names -------------------------------------------------------------------------------------------------------
def names_of(func: Func) -> set[str]:
    """Every name in use: dims, buffers, loops, blocks and block axes."""
    names = set(func.dims)
    names.update(b.name for b in func.params)
    for s in walk(func.body):
        if isinstance(s, Loop):
            names.add(s.var)
        elif isinstance(s, Alloc):
            names.add(s.buffer.name)
        elif isinstance(s, Block):
            names.add(s.name)
            names.update(a.name for a in s.axes)
    return names


def fresh_name(func: Func, base: str) -> str:
    """``base``, or ``base_2``, ``base_3``, ... : the first that ``func`` does not use yet."""
    return fresh_in(names_of(func), base)


def fresh_in(taken: set[str], base: str) -> str:
    """The first of ``base``, ``base_2``, ... not in ``taken``, which then contains it (for several names at once)."""
    name, n = base, 2
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    taken.add(name)
    return name


# -- edits -------------------------------------------------------------------------------------------------------
def replace_stmt(func: Func, old: Stmt, new: Stmt | None) -> Func:
    """``func`` with the statement object ``old`` (by identity) replaced; ``None`` removes it.

    Only the path to ``old`` is rebuilt; everything else is shared. A loop, guard or allocation left empty goes too.
    """
    body = replace_in(func.body, old, new)
    if body is None:
        body = Seq(())
    return func if body is func.body else dataclasses.replace(func, body=body)


def replace_in(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """As :func:`replace_stmt`, below a statement; None when nothing is left."""
    if root is old:
        return new
    if isinstance(root, Seq):
        for i, c in enumerate(root.stmts):
            r = replace_in(c, old, new)
            if r is not c:
                rest = (*root.stmts[:i], *(() if r is None else (r,)), *root.stmts[i + 1 :])
                return seq(*rest) if rest else None
        return root
    if isinstance(root, (Loop, Alloc, Guard)):
        body = replace_in(root.body, old, new)
        if body is root.body:
            return root
        return None if body is None else dataclasses.replace(root, body=body)
    return root


def replace_loop(func: Func, var: str, new: Stmt | Callable[[Loop], Stmt]) -> Func:
    """``func`` with the loop named ``var`` replaced by a statement, or by a function of it."""
    loop = find_loop(func, var)
    return replace_stmt(func, loop, new(loop) if callable(new) else new)


def substitute_stmt(s: Stmt, env: Mapping[str, IntLike]) -> Stmt:
    """``s`` with free loop variables replaced in extents, bindings, conditions, stores and local shapes.

    The bodies of blocks mention only their own axes and dims, so they are not touched.
    """
    exprs = {k: as_expr(v) for k, v in env.items()}
    names = frozenset(exprs)

    def one(e: IntExpr) -> IntExpr:
        return e.substitute(exprs)

    def many(es: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        new = tuple(map(one, es))
        return es if all(a is b for a, b in zip(new, es, strict=True)) else new

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            bindings = many(s.bindings)
            return s if bindings is s.bindings else dataclasses.replace(s, bindings=bindings)
        if isinstance(s, Store):
            return Store(s.buffer, many(s.indices), substitute_expr(s.value, exprs))
        s = map_children(s, visit)
        if isinstance(s, Loop) and s.extent.free_vars() & names:
            return dataclasses.replace(s, extent=one(s.extent))
        if isinstance(s, Alloc):
            shape = many(s.buffer.shape)
            return s if shape is s.buffer.shape else Alloc(dataclasses.replace(s.buffer, shape=shape), s.body)
        if isinstance(s, Guard):
            return Guard(substitute_expr(s.condition, exprs), s.body)
        return s

    return visit(s)


def simplify_stmt(s: Stmt, ranges: Ranges) -> Stmt:
    """``s`` with extents, bindings, guards and stores simplified, given the ranges of the variables around it.

    Identity-preserving: what the ranges do not decide stays the same object. Extents stay ``>= 0`` where they were.
    """
    if isinstance(s, Loop):
        extent = _simplified(s.extent, ranges)
        body = simplify_stmt(s.body, {**ranges, s.var: loop_range(extent)})
        if extent is s.extent and body is s.body:
            return s
        return dataclasses.replace(s, extent=extent, body=body)
    if isinstance(s, Block):
        bindings = tuple(_simplified(b, ranges) for b in s.bindings)
        same = all(a is b for a, b in zip(bindings, s.bindings, strict=True))
        return s if same else dataclasses.replace(s, bindings=bindings)
    if isinstance(s, Store):
        indices = tuple(_simplified(i, ranges) for i in s.indices)
        return Store(s.buffer, indices, simplify_expr(s.value, ranges))
    if isinstance(s, Guard):
        return Guard(simplify_expr(s.condition, ranges), simplify_stmt(s.body, ranges))
    return map_children(s, lambda c: simplify_stmt(c, ranges))


def simplify_expr(e: Expr, ranges: Ranges) -> Expr:
    """``e`` with its index expressions simplified."""
    return map_expr(e, lambda x: simplify_expr(x, ranges), lambda i: _simplified(i, ranges))


def _simplified(e: IntExpr, ranges: Ranges) -> IntExpr:
    if e.is_const:
        return e
    new = simplify(e, ranges)
    return e if new == e else new


def simplify_func(func: Func) -> Func:
    """``func`` with its whole body simplified; the same object where nothing changed."""
    body = simplify_stmt(func.body, {})
    return func if body is func.body else dataclasses.replace(func, body=body)
