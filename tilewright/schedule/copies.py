"""A statement copied under fresh names, so that names stay unique in a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.core.intexpr import (
    Atom,
    FloorDiv,
    IntExpr,
    Max,
    Min,
    Mod,
    const,
    maximum,
    minimum,
    of_atom,
    product,
    var,
)
from tilewright.schedule.base import fresh_in, substitute_stmt
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Dyn,
    Expr,
    Guard,
    Load,
    Loop,
    Stmt,
    Store,
    map_children,
    map_expr,
    walk,
    walk_index,
)


def fresh_copy(s: Stmt, suffix: str, taken: set[str]) -> Stmt:
    """``s`` with every loop, block and buffer that it declares renamed by ``suffix``; ``taken`` gains the new names."""
    loops: dict[str, IntExpr] = {}
    blocks: dict[str, str] = {}
    buffers: dict[str, str] = {}
    for x in walk(s):
        if isinstance(x, Loop):
            loops[x.var] = var(fresh_in(taken, x.var + suffix))
        elif isinstance(x, Block):
            blocks[x.name] = fresh_in(taken, x.name + suffix)
        elif isinstance(x, Alloc):
            buffers[x.buffer.name] = fresh_in(taken, x.buffer.name + suffix)
    s = rename_buffers(s, buffers)
    s = substitute_stmt(s, loops)

    def visit(x: Stmt) -> Stmt:
        x = map_children(x, visit)
        if isinstance(x, Loop):
            return dataclasses.replace(x, var=str(loops[x.var]))
        if isinstance(x, Block):
            return dataclasses.replace(x, name=blocks[x.name])
        return x

    return visit(s)


def rename_buffers(s: Stmt, names: Mapping[str, str]) -> Stmt:
    """``s`` with buffers renamed wherever they are declared, loaded or stored; the same object for no names."""
    if not names:
        return s

    def visit(x: Stmt) -> Stmt:
        x = map_children(x, visit)
        if isinstance(x, Alloc):
            return Alloc(dataclasses.replace(x.buffer, name=names.get(x.buffer.name, x.buffer.name)), x.body)
        if isinstance(x, Block):
            return dataclasses.replace(
                x,
                buffer=names.get(x.buffer, x.buffer),
                bindings=tuple(rename_in_index(i, names) for i in x.bindings),
                indices=tuple(rename_in_index(i, names) for i in x.indices),
                value=rename_in_expr(x.value, names),
                init=None if x.init is None else rename_in_expr(x.init, names),
            )
        if isinstance(x, Store):
            indices = tuple(rename_in_index(i, names) for i in x.indices)
            return Store(names.get(x.buffer, x.buffer), indices, rename_in_expr(x.value, names))
        if isinstance(x, Guard):
            return Guard(rename_in_expr(x.condition, names), x.body)
        return x

    return visit(s)


def rename_in_expr(e: Expr, names: Mapping[str, str]) -> Expr:
    """``e`` with the buffers of its loads renamed."""
    e = map_expr(e, lambda x: rename_in_expr(x, names), lambda i: rename_in_index(i, names))
    return dataclasses.replace(e, buffer=names[e.buffer]) if isinstance(e, Load) and e.buffer in names else e


def rename_in_index(i: IntExpr, names: Mapping[str, str]) -> IntExpr:
    """``i`` with the buffers of the values it reads renamed; the same object if it reads none of them."""
    if not any(isinstance(x, Load) and x.buffer in names for x in walk_index(i)):
        return i
    out = const(i.const)
    for mono, c in i.terms:
        out = out + product(_rename_in_atom(a, names) for a in mono) * c
    return out


def _rename_in_atom(a: Atom, names: Mapping[str, str]) -> IntExpr:
    if isinstance(a, Dyn):
        return of_atom(Dyn(rename_in_expr(a.value, names)))
    args = [rename_in_index(x, names) for x in a.children()]
    if isinstance(a, FloorDiv):
        return args[0] // args[1]
    if isinstance(a, Mod):
        return args[0] % args[1]
    if isinstance(a, (Min, Max)):
        return (minimum if isinstance(a, Min) else maximum)(*args)
    return of_atom(a)
