"""Functions whose operands and results are parts of larger arrays, and the one that fills such an array's border."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.ir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Load,
    Loop,
    Stmt,
    map_children,
    seq,
    walk,
)
from tilewright.tensor_ir.loads import map_block_loads, rename_buffers
from tilewright.tensor_ir.names import fresh_in, names_of

Places: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""Where parameters, by position, begin in the arrays that they are parts of: an index per dimension."""


def within(func: Func, param: str, shape: Sequence[IntExpr]) -> Func:
    """``func`` with parameter ``param`` being a part of an array of ``shape``: the call passes where it begins, so that
    parts of equal arrays at other places are computed by equal functions.

    A result that a reduction computes, or that is read again, is computed aside and copied into its place.
    """
    place = next(i for i, b in enumerate(func.params) if b.name == param)
    own = func.params[place]
    if place >= len(func.params) - func.outputs and not _is_written_once(func, param):
        func = _copied_out(func, own)
    if place >= len(func.params) - func.outputs:
        func = dataclasses.replace(func, partial=tuple(sorted({*func.partial, param})))
    params = tuple(dataclasses.replace(b, shape=tuple(shape)) if b.name == param else b for b in func.params)
    more = sorted({v for d in shape for v in d.free_vars()}.difference(func.dims))
    return dataclasses.replace(func, params=params, dims=(*func.dims, *more))


def moved(func: Func, places: Places) -> Func:
    """``func`` with every index into its parameters at ``places`` moved by where they begin: the function on the whole
    arrays, which is how records before November 2026 have it."""
    starts = {func.params[k].name: offsets for k, offsets in places}

    def into(buffer: str, indices: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        return tuple(i + o for i, o in zip(indices, starts[buffer], strict=True)) if buffer in starts else indices

    def load(x: Load) -> Expr:
        return dataclasses.replace(x, indices=into(x.buffer, x.indices))

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        if isinstance(s, Block):
            s = map_block_loads(s, load)
            s = dataclasses.replace(s, indices=into(s.buffer, s.indices))
        return s

    return dataclasses.replace(func, body=visit(func.body))


def _is_written_once(func: Func, buffer: str) -> bool:
    """True if one block without a reduction writes ``buffer`` and none reads it."""
    blocks = [s for s in walk(func.body) if isinstance(s, Block)]
    writers = [b for b in blocks if b.buffer == buffer]
    read = any(x.buffer == buffer for b in blocks for x in _loads(b))
    return len(writers) == 1 and not read and all(a.kind == "spatial" for a in writers[0].axes)


def _loads(block: Block) -> list[Load]:
    found: list[Load] = []

    def note(x: Load) -> Expr:
        found.append(x)
        return x

    map_block_loads(block, note)
    return found


def _copied_out(func: Func, out: Buffer) -> Func:
    """``func`` with ``out`` computed in a buffer of its own and copied at the end."""
    taken = names_of(func)
    stage = fresh_in(taken, f"{out.name}_whole")
    body = rename_buffers(func.body, {out.name: stage})
    taken.add(stage)
    name = fresh_in(taken, f"{out.name}_copy")
    axes = tuple(Axis(f"{name}_i{d}_", n) for d, n in enumerate(out.shape))
    index = tuple(var(a.name) for a in axes)
    loops = [f"{name}_i{d}" for d in range(len(out.shape))]
    copy: Stmt = Block(name, axes, tuple(map(var, loops)), out.name, index, Load(stage, index, out.dtype))
    for loop, n in reversed(list(zip(loops, out.shape, strict=True))):
        copy = Loop(loop, n, copy)
    buffer = Buffer(stage, out.dtype, out.shape)
    return dataclasses.replace(func, body=Alloc(buffer, seq(body, copy)))


def border_func(dtype: DType, shape: Sequence[IntExpr], offsets: Sequence[int], inner: Sequence[IntExpr]) -> Func:
    """A function that writes zeros around the part of ``shape`` that begins at ``offsets`` and has extents ``inner``.

    The slabs before and after the part, dimension by dimension, each as wide as the part in the dimensions before.
    """
    zero = Const(0.0 if dtype.is_float else 0, dtype)
    dims = tuple(sorted({v for d in shape for v in d.free_vars()}))
    starts, extents = [const(0)] * len(shape), list(shape)
    nests: list[Stmt] = []
    for d, (offset, size) in enumerate(zip(offsets, inner, strict=True)):
        for start, extent in ((const(0), const(offset)), (size + offset, shape[d] - size - offset)):
            if extent != 0:
                at = [*starts[:d], start, *starts[d + 1 :]]
                full = [*extents[:d], extent, *extents[d + 1 :]]
                nests.append(_zeros(f"border{len(nests)}", at, full, zero))
        starts[d], extents[d] = const(offset), size
    return Func("border", (Buffer("o0", dtype, tuple(shape)),), 1, dims, seq(*nests), ("o0",))


def _zeros(name: str, starts: Sequence[IntExpr], extents: Sequence[IntExpr], zero: Const) -> Stmt:
    axes = tuple(Axis(f"{name}_i{d}_", n) for d, n in enumerate(extents))
    loops = [f"{name}_i{d}" for d in range(len(extents))]
    indices = tuple(var(a.name) + s for a, s in zip(axes, starts, strict=True))
    nest: Stmt = Block(name, axes, tuple(map(var, loops)), "o0", indices, zero)
    for loop, n in reversed(list(zip(loops, extents, strict=True))):
        nest = Loop(loop, n, nest)
    return nest
