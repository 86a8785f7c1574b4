"""Vectorized loops whose lanes cannot run at once: they run in order; one inside of lanes is written out."""

from __future__ import annotations

import dataclasses

from tilewright.codegen.prepare.map_loops import map_loops
from tilewright.core.arith.bounds import Ranges
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.scopes import block_environment
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Store, walk


def order_lanes(func: Func, target: Target) -> Func:
    """``func`` with vectorized loops only where all lanes may run at once, and none inside another."""
    return map_loops(func, _ordered)


def _ordered(s: Loop, ranges: Ranges, lanes: bool) -> Loop:
    if s.kind != "vectorized" or (not lanes and goes_in_lanes(s)):
        return s
    return dataclasses.replace(s, kind="unrolled" if lanes else "serial")


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
