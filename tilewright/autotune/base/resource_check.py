"""What a scheduled function takes of registers, code and caches, read off its loops: for refusals before compiling."""

from __future__ import annotations

import sys
from math import prod

from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.scopes import block_environment
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Func, Loop, Stmt, loads, stmt_children

_SYMBOLIC = 8
"""What an extent counts that is not a constant."""


def written_out(s: Stmt, copies: int = 1) -> int:
    """Blocks in the code of ``s`` after unrolling."""
    if isinstance(s, Block):
        return copies
    if isinstance(s, Loop) and s.kind == "unrolled":
        copies *= max(1, _extent(s))
    return sum(written_out(c, copies) for c in stmt_children(s))


def tile_vectors(func: Func, target: Target) -> int:
    """Vectors of results that the largest reduction keeps at once: those of its written-out loops."""
    sizes = {b.name: b.dtype.itemsize for b in func.params}

    def visit(s: Stmt, inner: tuple[Loop, ...]) -> int:
        if isinstance(s, Alloc):
            sizes[s.buffer.name] = s.buffer.dtype.itemsize
        if isinstance(s, Loop):
            inner = (*inner, s) if s.kind in ("vectorized", "unrolled") else ()
        if isinstance(s, Block):
            if all(a.kind != "reduce" for a in s.axes):
                return 0
            env = block_environment(s)
            used = {v for i in s.indices for v in i.substitute(env).free_vars()}
            lanes = target.lanes(sizes[s.buffer])
            vectors = 1
            for x in inner:
                if x.var in used:
                    vectors *= -(-_extent(x) // lanes) if x.kind == "vectorized" else max(1, _extent(x))
            return vectors
        return max((visit(c, inner) for c in stmt_children(s)), default=0)

    return visit(func.body, ())


def local_bytes(s: Stmt) -> int:
    """Bytes of local buffers that are alive at once, at most."""
    inside = max((local_bytes(c) for c in stmt_children(s)), default=0)
    if isinstance(s, Alloc) and s.buffer.scope == "local":
        shape = [d.value() or 1 for d in s.buffer.shape]
        return inside + prod(shape) * s.buffer.dtype.itemsize
    return inside


def tile_bytes(func: Func) -> int:
    """Bytes that one tile of a reduction reads while it stays in its local buffer, at most over the reductions."""
    sizes = {b.name: _bytes(b) for b in func.params}

    def visit(s: Stmt, loops: tuple[Loop, ...], since: dict[str, int]) -> int:
        if isinstance(s, Alloc):
            sizes[s.buffer.name] = _bytes(s.buffer)
            if s.buffer.scope == "local":
                since = {**since, s.buffer.name: len(loops)}
        if isinstance(s, Loop):
            loops = (*loops, s)
        if isinstance(s, Block):
            if s.buffer not in since or all(a.kind != "reduce" for a in s.axes):
                return 0
            env, inside = block_environment(s), loops[since[s.buffer] :]
            total = 0
            for x in {x for x in loads(s.value) if x.buffer not in since}:
                used = {v for i in x.indices for v in i.substitute(env).free_vars()}
                touched = x.dtype.itemsize * prod(max(1, _extent(loop)) for loop in inside if loop.var in used)
                total += min(touched, sizes[x.buffer])
            return total
        return max((visit(c, loops, since) for c in stmt_children(s)), default=0)

    return visit(func.body, (), {})


def _bytes(b: Buffer) -> int:
    shape = [d.value() for d in b.shape]
    return sys.maxsize if None in shape else b.dtype.itemsize * prod(d or 1 for d in shape)


def _extent(loop: Loop) -> int:
    extent = loop.extent.value()
    return _SYMBOLIC if extent is None else extent
