"""Where every local buffer lies: on the stack of its phase, or in memory that the caller gives the kernel.

A buffer of constant size is on the stack (``stack``; LLVM keeps what it can of it in registers) as long as the frame
has room. Others, those whose size depends on symbolic dims too, are in workspaces (``workspace``), of which each chunk
of a parallel loop has a copy (:mod:`tilewright.codegen.emit.privatize`). At the root nothing is copied: what outlives a
frame, or does not fit, is as ``global`` there as what all threads see.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from math import prod

from tilewright.codegen.prepare.phases import is_parallel_loop, ordered_phases, phases_in, root_nests, uses
from tilewright.core.arith.bounds import Ranges, loop_range, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Alloc, Buffer, Func, Loop, Scope, Stmt, Storage, map_children, stmt_children, walk

STACK_LIMIT = 512 * 1024
"""Bytes of the local buffers of a phase."""


def assign_storage(func: Func, target: Target) -> Func:
    """``func`` with ``stack``, ``workspace`` or ``global`` as the scope of each buffer that was ``local``."""
    scopes: dict[str, Scope | Storage] = {}
    pad = vector_pad(func.body)
    phases = phases_in(ordered_phases(func))
    at_root = [b for b in root_nests(func)[1] if b.scope == "local"]
    used = [(p, s, frozenset().union(*uses(s))) for p in phases for s in p.nests] if at_root else []
    homes = {b.name: [(p, s) for p, s, names in used if b.name in names] for b in at_root}
    for b in at_root:
        outlives = len({p.index for p, _ in homes[b.name]}) > 1 or any(p.around for p, _ in homes[b.name])
        if outlives or any(is_parallel_loop(s) for _, s in homes[b.name]):
            scopes[b.name] = "global"
    for p in phases:
        frame = _Frame(pad, scopes)
        for b in at_root:
            if b.name not in scopes and any(p is home for home, _ in homes[b.name]):
                frame.place(b, 1, "global")
        for s in p.nests:
            frame.visit(s, {}, 1)
    return dataclasses.replace(func, body=_placed(func.body, scopes))


class _Frame:
    """The stack of a phase while its buffers are placed; ``scopes`` is filled in."""

    def __init__(self, pad: int, scopes: dict[str, Scope | Storage]) -> None:
        self._pad = pad
        self._scopes = scopes
        self._left = STACK_LIMIT

    def visit(self, s: Stmt, ranges: Ranges, lanes: int) -> None:
        """Place what ``s`` allocates, ``lanes`` times if that is inside a vectorized loop."""
        if isinstance(s, Loop):
            ranges = {**ranges, s.var: loop_range(s.extent)}
            if s.kind == "vectorized" and lanes == 1:
                lanes = upper_bound(simplify(s.extent, ranges), ranges) or 1
        elif isinstance(s, Alloc) and s.buffer.scope == "local":
            self.place(s.buffer, lanes, "workspace")
        for c in stmt_children(s):
            self.visit(c, ranges, lanes)

    def place(self, b: Buffer, lanes: int, otherwise: Scope | Storage) -> None:
        """``b`` on the stack if its size is constant and there is room; else ``otherwise``."""
        shape = stack_shape(b)
        size = None if shape is None else (lanes * prod(shape) + self._pad) * b.dtype.itemsize
        if size is None or size > self._left:
            self._scopes[b.name] = otherwise
        else:
            self._scopes[b.name] = "stack"
            self._left -= size


def stack_shape(b: Buffer) -> tuple[int, ...] | None:
    """The shape in which a buffer lies on the stack, with constant bounds as its sizes; None if there are none."""
    sizes = [upper_bound(simplify(d, {}), {}) for d in b.shape]
    known = tuple(max(n, 0) for n in sizes if n is not None)
    return known if len(known) == len(sizes) else None


def vector_pad(body: Stmt) -> int:
    """How far an access with all lanes may reach beyond a valid element: the lanes of the widest vectorized loop."""
    ranges: dict[str, tuple[IntExpr, IntExpr]] = {}
    widest = 0
    for s in walk(body):
        if isinstance(s, Loop):
            ranges[s.var] = loop_range(s.extent)
            if s.kind == "vectorized":
                widest = max(widest, upper_bound(simplify(s.extent, ranges), ranges) or 0)
    return widest


def _placed(s: Stmt, scopes: Mapping[str, Scope | Storage]) -> Stmt:
    s = map_children(s, lambda c: _placed(c, scopes))
    if isinstance(s, Alloc) and s.buffer.name in scopes:
        return Alloc(dataclasses.replace(s.buffer, scope=scopes[s.buffer.name]), s.body)
    return s
