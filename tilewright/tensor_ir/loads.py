"""Edits of the loads in a value or an index: replaced by other values, or pointed at another buffer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from tilewright.core.arith.expr import Atom, IntExpr, of_atom, with_atoms
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Dyn,
    Expr,
    Guard,
    Index,
    Load,
    Stmt,
    Store,
    map_children,
    map_expr,
    walk_index,
)


def map_loads(e: Expr, f: Callable[[Load], Expr]) -> Expr:
    """``e`` with every load replaced by ``f`` of it, innermost first, inside indices too."""
    out = map_expr(e, lambda x: map_loads(x, f), lambda i: map_index_loads(i, f))
    return f(out) if isinstance(out, Load) else out


def map_index_loads(i: IntExpr, f: Callable[[Load], Expr]) -> IntExpr:
    """``i`` with every load inside it replaced by ``f`` of it; the same object if it reads nothing."""
    if next(walk_index(i), None) is None:
        return i
    return with_atoms(i, lambda a: _map_atom(a, f))


def _map_atom(a: Atom, f: Callable[[Load], Expr]) -> IntExpr:
    if isinstance(a, Dyn):
        value = map_loads(a.value, f)
        return value.expr if isinstance(value, Index) else of_atom(Dyn(value))
    return a.rebuilt(*[map_index_loads(x, f) for x in a.children()])


def map_block_loads(block: Block, f: Callable[[Load], Expr]) -> Block:
    """``block`` with the loads of its indices and values replaced; bindings stay."""
    return dataclasses.replace(
        block,
        indices=tuple(map_index_loads(i, f) for i in block.indices),
        value=map_loads(block.value, f),
        init=None if block.init is None else map_loads(block.init, f),
    )


def rename_in_expr(e: Expr, names: Mapping[str, str]) -> Expr:
    """``e`` with the buffers of its loads renamed."""
    return map_loads(e, _renaming(names))


def rename_in_index(i: IntExpr, names: Mapping[str, str]) -> IntExpr:
    """``i`` with the buffers of the values it reads renamed."""
    return map_index_loads(i, _renaming(names))


def _renaming(names: Mapping[str, str]) -> Callable[[Load], Expr]:
    return lambda x: dataclasses.replace(x, buffer=names[x.buffer]) if x.buffer in names else x


def rename_buffers(s: Stmt, names: Mapping[str, str]) -> Stmt:
    """``s`` with buffers renamed wherever they are declared, loaded or stored; the same object for no names."""
    if not names:
        return s
    renamed = _renaming(names)

    def many(indices: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        return tuple(map_index_loads(i, renamed) for i in indices)

    def visit(x: Stmt) -> Stmt:
        x = map_children(x, visit)
        if isinstance(x, Alloc):
            return Alloc(dataclasses.replace(x.buffer, name=names.get(x.buffer.name, x.buffer.name)), x.body)
        if isinstance(x, Block):
            x = map_block_loads(x, renamed)
            return dataclasses.replace(x, buffer=names.get(x.buffer, x.buffer), bindings=many(x.bindings))
        if isinstance(x, Store):
            return Store(names.get(x.buffer, x.buffer), many(x.indices), map_loads(x.value, renamed))
        if isinstance(x, Guard):
            return Guard(map_loads(x.condition, renamed), x.body)
        return x

    return visit(s)
