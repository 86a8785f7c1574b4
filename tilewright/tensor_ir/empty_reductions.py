"""Reductions without a step: the nests that store their initial values, written out.

A reduction block stores its ``init`` at its first step; a reduction whose extent is 0 at run time has none, and still
its elements are the init. :func:`store_empty_inits` makes that explicit for the two that run functions, the interpreter
and codegen: in front of the outermost loop that drives a reduce axis, or of the opaque one around it, comes a nest that
runs if and only if a reduce axis is empty::

    for k in K: for i in N: B[i] = (init 0) B[i] + A[k, i]
    -->
    for empty in min(1, max(0, 1 - K)): for i_e in N: B[i_e] = 0
    for k in K: for i in N: B[i] = (init 0) B[i] + A[k, i]

Functions under schedule are not in this form: there an empty reduction is part of what a block with ``init`` means.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.core.arith.bounds import is_nonneg, simplify
from tilewright.core.arith.expr import ZERO, IntExpr, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.tensor_ir.analysis.scopes import block_path
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Func,
    Guard,
    Loop,
    Stmt,
    expr_free_vars,
    map_children,
    seq,
    substitute_expr,
    walk,
)
from tilewright.tensor_ir.names import fresh_in, names_of


def may_be_empty(block: Block) -> bool:
    """True unless every reduce axis of ``block`` provably has a step."""
    return any(a.kind == "reduce" and not is_nonneg(a.extent - 1, {}) for a in block.axes)


def reduce_vars(block: Block) -> frozenset[str]:
    """The loop variables that the reduce axes of ``block`` are bound to."""
    pairs = zip(block.axes, block.bindings, strict=True)
    return frozenset().union(*(b.free_vars() for a, b in pairs if a.kind == "reduce"))


def store_empty_inits(func: Func) -> Func:
    """``func`` with a nest for the initial values of each reduction that may be empty; itself if there is none."""
    blocks = [s for s in walk(func.body) if isinstance(s, Block) and s.init is not None and may_be_empty(s)]
    if not blocks:
        return func
    taken = names_of(func)
    before: dict[str, list[Stmt]] = {}
    for block in blocks:
        path = block_path(func, block.name)
        steps = reduce_vars(block)
        top = next(
            (n for n, s in enumerate(path) if isinstance(s, Loop) and (s.kind == "opaque" or s.var in steps)), None
        )
        if top is None or any(isinstance(s, Alloc) and s.buffer.name == block.buffer for s in path[top:]):
            continue
        loop = path[top]
        if isinstance(loop, Loop):
            before.setdefault(loop.var, []).append(_init_nest(block, path[top:-1], steps, taken))

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        if isinstance(s, Loop) and s.var in before:
            return seq(*before[s.var], s)
        return s

    return dataclasses.replace(func, body=visit(func.body))


def _init_nest(block: Block, around: Sequence[Stmt], steps: frozenset[str], taken: set[str]) -> Stmt:
    """The initial values of ``block`` under the loops of ``around`` that are not steps, where a reduce axis is
    empty."""
    if block.init is None:
        return block
    env: dict[str, IntExpr] = dict.fromkeys(steps, ZERO)
    levels: list[Loop | Guard] = []
    for s in around:
        if isinstance(s, Loop) and s.var not in steps:
            name = fresh_in(taken, f"{s.var}_e")
            kind, hints = ("serial", ()) if s.kind == "opaque" else (s.kind, s.hints)
            kind = "serial" if kind == "parallel" else kind
            extent = s.extent.substitute(env)
            levels.append(dataclasses.replace(s, var=name, extent=extent, kind=kind, hints=hints))
            env[s.var] = var(name)
        elif isinstance(s, Guard):
            levels.append(Guard(substitute_expr(s.condition, env), s.body))
    used = expr_free_vars(block.init).union(*(i.free_vars() for i in block.indices))
    axes = [(a, b.substitute(env)) for a, b in zip(block.axes, block.bindings, strict=True) if a.name in used]
    body: Stmt = Block(
        fresh_in(taken, f"{block.name}_empty"),
        tuple(a for a, _ in axes),
        tuple(b for _, b in axes),
        block.buffer,
        block.indices,
        block.init,
    )
    for level in reversed(levels):
        body = dataclasses.replace(level, body=body)
    empty = maximum(0, *(1 - a.extent for a in block.axes if a.kind == "reduce"))
    return Loop(fresh_in(taken, f"{block.name}_none"), simplify(minimum(1, empty), {}), body)
