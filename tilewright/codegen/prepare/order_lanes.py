"""Vectorized loops whose lanes cannot run at once: they run in order; one inside of lanes is written out."""

from __future__ import annotations

import dataclasses

from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.intrinsic_match import intrinsic_of
from tilewright.tensor_ir.analysis.scopes import block_environment
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Stmt, Store, map_children, walk, with_body


def order_lanes(func: Func, target: Target) -> Func:
    """``func`` with vectorized loops only where all lanes may run at once, and none inside another."""
    return dataclasses.replace(func, body=_ordered(func.body, False))


def _ordered(s: Stmt, inside: bool) -> Stmt:
    if not isinstance(s, Loop):
        return map_children(s, lambda c: _ordered(c, inside))
    if intrinsic_of(s) is not None:
        return s
    if s.kind == "vectorized" and inside:
        s = dataclasses.replace(s, kind="unrolled")
    elif s.kind == "vectorized" and not goes_in_lanes(s):
        s = dataclasses.replace(s, kind="serial")
    inside = inside or (s.kind == "vectorized" and s.extent != 1)
    return with_body(s, _ordered(s.body, inside))


def goes_in_lanes(s: Loop) -> bool:
    """False where lanes cannot run at once: a reduction or an ordered axis over the loop, an inner extent that depends
    on it, a local buffer outside the stack, a store to one place by all lanes."""
    private = {a.buffer.name for a in walk(s.body) if isinstance(a, Alloc)}
    for inner in walk(s.body):
        if isinstance(inner, Loop) and s.var in inner.extent.free_vars():
            return False
        if isinstance(inner, Alloc) and inner.buffer.scope == "workspace":
            return False
        if isinstance(inner, Block):
            env = block_environment(inner)
            if any(a.kind != "spatial" and s.var in env[a.name].free_vars() for a in inner.axes):
                return False
            indices = tuple(i.substitute(env) for i in inner.indices)
        elif isinstance(inner, Store):
            indices = inner.indices
        else:
            continue
        if inner.buffer not in private and not any(s.var in i.free_vars() for i in indices):
            return False
    return True
