"""pad_einsum: pad a contraction to multiples of tile sizes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core import dtypes
from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.arith.expr import ZERO, IntExpr, as_expr, as_var, ceildiv, var
from tilewright.core.dtypes import DType
from tilewright.schedule.base import Primitive, find_buffer, refuse, replace_stmt
from tilewright.schedule.stage_motion import block_and_path, has_reduction, neutral_value, plain_axes, reduction_update
from tilewright.tensor_ir.analysis.scopes import blocks_in, loops_in
from tilewright.tensor_ir.analysis.sweeps import same
from tilewright.tensor_ir.ir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    Func,
    Index,
    Load,
    Loop,
    Op,
    Select,
    Seq,
    Stmt,
    seq,
)
from tilewright.tensor_ir.loads import map_loads
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class PadEinsum(Primitive):
    """Round the extents of a contraction up to multiples, one factor for each axis of its block.

    Operands are read from padded copies, made in front of the nest by blocks called ``<operand>_pad``; what lies beyond
    their ends is neutral. Where a spatial axis grows, the result goes to ``<result>_pad``, and a block
    ``<block>_write`` copies out what was asked for.

    Rewrite:
        for i in 5: for k in K: C[i] = (init 0) C[i] + A[i, k] * B[k]
        --> pad_einsum("C", padding=(4, 1))
        alloc A_pad[8, K], C_pad[8] global:
            for A_pad_i0 in 8: for A_pad_i1 in K: A_pad[A_pad_i0, A_pad_i1] = A_pad_i0 < 5 ? A[A_pad_i0, A_pad_i1] : 0
            for i in 8: for k in K: C_pad[i] = (init 0) C_pad[i] + A_pad[i, k] * B[k]
            for C_write_i0 in 5: C[C_write_i0] = C_pad[C_write_i0]

    Keeps: every value, bit for bit; what padded steps add is the neutral element.
    Refuses:
        - the block is not there
        - not one factor of at least 1 for each axis
        - the block is not a reduction of spatial and reduce axes with a neutral initial value
        - the reduction is neither a sum of products of loads, nor of a single load
        - a store index is neither an axis nor a constant
        - an index of an operand is neither an axis nor a constant, or an axis occurs in it twice
        - an operand is not proved to have all the elements that the axes reach
        - the nest is not at the root, or is not one serial loop for each axis
        - a padded step of the reduction is not proved to be neutral
    Cost: copies of the operands and of the result, and the padded steps; the nest has no ragged tile left.
    """

    name: ClassVar[str] = "pad_einsum"
    block: str
    padding: tuple[int, ...]

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        before = {b.name for b in blocks_in(func.body)}
        return tuple(b.name for b in blocks_in(result.body) if b.name not in before)

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        extents = self._padded(block)
        factors, neutral = self._require_contraction(block)
        places = self._require_indices(func, block, factors)
        nest = self._require_nest(block, path)
        grown = {a.name for a in block.axes if extents[a.name] != a.extent}
        if not grown:
            return func
        self._require_neutral(block, factors, grown)
        taken = names_of(func)
        buffers: list[Buffer] = []
        copies: list[Stmt] = []
        copied: dict[tuple[str, tuple[IntExpr, ...]], Load] = {}
        for x in factors:
            if not isinstance(x, Load) or not _used(x.indices) & grown or (x.buffer, x.indices) in copied:
                continue
            buffer, copy = _padded_copy(x, block, extents, neutral, taken)
            buffers.append(buffer)
            copies.append(copy)
            copied[x.buffer, x.indices] = Load(buffer.name, _rows(x.indices), x.dtype)
        target, crop = block.buffer, None
        indices = block.indices
        if any(a.name in grown and a.kind == "spatial" for a in block.axes):
            target, indices = fresh_in(taken, f"{block.buffer}_pad"), _rows(block.indices)
            result = find_buffer(func, block.buffer, self)
            shape = tuple(as_expr(1) if a is None else extents[a] for a in places)
            buffers.append(Buffer(target, result.dtype, shape))
            crop = _crop(block, places, Load(target, indices, result.dtype), taken)

        def redirect(x: Load) -> Load:
            own = Load(target, indices, x.dtype)
            return own if x.buffer == block.buffer else copied.get((x.buffer, x.indices), x)

        padded: Stmt = dataclasses.replace(
            block,
            axes=tuple(dataclasses.replace(a, extent=extents[a.name]) for a in block.axes),
            buffer=target,
            indices=indices,
            value=map_loads(block.value, redirect),
        )
        by_loop = {as_var(b): extents[a.name] for a, b in zip(block.axes, block.bindings, strict=True)}
        for loop in reversed(nest):
            padded = dataclasses.replace(loop, extent=by_loop[loop.var], body=padded)
        func = replace_stmt(func, nest[0], seq(*copies, padded, *([] if crop is None else [crop])))
        body = func.body
        for buffer in reversed(buffers):
            body = Alloc(buffer, body)
        return dataclasses.replace(func, body=body)

    def _padded(self, block: Block) -> dict[str, IntExpr]:
        """The new extents of the block's axes."""
        if len(self.padding) != len(block.axes) or min(self.padding, default=1) < 1:
            names = ", ".join(a.name for a in block.axes)
            raise refuse(self, f"expected a factor >= 1 for each of the axes {names}, got {self.padding}")
        return {a.name: ceildiv(a.extent, f) * f for a, f in zip(block.axes, self.padding, strict=True)}

    def _require_contraction(self, block: Block) -> tuple[list[Expr], Const]:
        """The factors of the update, and what is neutral in their place."""
        update, neutral = reduction_update(block), neutral_value(block)
        ordered = any(a.kind == "ordered" for a in block.axes)
        if ordered or not has_reduction(block) or update is None or not isinstance(neutral, Const):
            raise refuse(self, "expected a reduction of spatial and reduce axes with a neutral initial value")
        if isinstance(update, Load):
            return [update], neutral
        factors = _factors(update)
        is_sum = isinstance(block.value, Op) and block.value.name == "add"
        if not is_sum or not all(isinstance(x, Load) or _is_finite(x) for x in factors):
            raise refuse(self, "expected a sum of products of loads, or a reduction of a single load")
        return factors, neutral

    def _require_indices(self, func: Func, block: Block, factors: Sequence[Expr]) -> list[str | None]:
        """The axis, or None for a constant, of each store index; every index of the operands has this form too."""
        places = plain_axes(block)
        spatial = {a.name for a in block.axes if a.kind == "spatial"}
        if places is None or spatial != set(places) - {None}:
            shown = ", ".join(map(str, block.indices))
            raise refuse(self, f"expected store indices that are the spatial axes, each once, got [{shown}]")
        ends = {a.name: a.extent for a in block.axes}
        for x in factors:
            if not isinstance(x, Load):
                continue
            names = [as_var(i) for i in x.indices if not i.is_const]
            text = f"{x.buffer}[{', '.join(map(str, x.indices))}]"
            if not ends.keys() >= {n or "" for n in names} or len(set(names)) != len(names):
                raise refuse(self, f"expected indices that are axes, each once, or constants, got {text}")
            for i, d in zip(x.indices, find_buffer(func, x.buffer, self).shape, strict=True):
                if not is_nonneg(d - ends.get(as_var(i) or "", i + 1), {}) or not is_nonneg(i, {}):
                    raise refuse(self, f"{text} is not proved to lie inside {x.buffer} for all {i}")
        return places

    def _require_nest(self, block: Block, path: tuple[Stmt, ...]) -> list[Loop]:
        nest = loops_in(path)
        if not all(isinstance(s, (Alloc, Seq)) for s in path[: -1 - len(nest)]):
            raise refuse(self, "expected a nest of loops alone, at the root")
        if sorted(str(b) for b in block.bindings) != sorted(x.var for x in nest):
            raise refuse(self, f"expected one loop for each axis, got {', '.join(x.var for x in nest) or 'none'}")
        extents = {as_var(b): a.extent for a, b in zip(block.axes, block.bindings, strict=True)}
        for x in nest:
            if x.kind != "serial" or not same(x.extent, extents[x.var], {}):
                raise refuse(self, f"expected serial loops that run over the axes, got {x.kind} {x.var} of {x.extent}")
        return nest

    def _require_neutral(self, block: Block, factors: Sequence[Expr], grown: set[str]) -> None:
        """Each padded step must have a zero among its factors and, for floats, no factor that may be infinite."""
        loads = [x for x in factors if isinstance(x, Load)]
        needs_all = block.value.dtype.kind == "f"
        for a in block.axes:
            if a.kind != "reduce" or a.name not in grown:
                continue
            along = [a.name in _used(x.indices) for x in loads]
            if not (all(along) if needs_all else any(along)) or not loads:
                what = next((x.buffer for x, y in zip(loads, along, strict=True) if not y), "nothing")
                raise refuse(self, f"{what} does not run along padded reduce axis {a.name}, whose steps may add to it")


def _factors(e: Expr) -> list[Expr]:
    """The loads and constants that ``e`` multiplies, without the casts around them."""
    if isinstance(e, Op) and e.name == "mul":
        return [*_factors(e.args[0]), *_factors(e.args[1])]
    while isinstance(e, Cast):
        e = e.value
    return [e]


def _is_finite(e: Expr) -> bool:
    return isinstance(e, Const) and math.isfinite(e.value)


def _zero(dtype: DType) -> Const:
    return Const({"f": 0.0, "b": False}.get(dtype.kind, 0), dtype)


def _used(indices: Sequence[IntExpr]) -> frozenset[str]:
    return frozenset().union(*(i.free_vars() for i in indices))


def _rows(indices: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """The indices in a copy, which has one element where the original is read at a constant."""
    return tuple(ZERO if i.is_const else i for i in indices)


def _padded_copy(
    x: Load, block: Block, extents: Mapping[str, IntExpr], neutral: Const, taken: set[str]
) -> tuple[Buffer, Stmt]:
    """A buffer for the elements that a load reads as the axes run over ``extents``, and the nest that fills it."""
    name = fresh_in(taken, f"{x.buffer}_pad")
    old = {a.name: a.extent for a in block.axes}
    fill: Expr = neutral if neutral.dtype == x.dtype else _zero(x.dtype)
    shape, loops, axes, source = [], [], [], []
    inside: Expr | None = None
    for d, i in enumerate(x.indices):
        along = as_var(i)
        if along is None:
            shape.append(as_expr(1))
            source.append(i)
            continue
        extent = extents[along]
        loop = fresh_in(taken, f"{name}_i{d}")
        axis = Axis(fresh_in(taken, f"{loop}_"), extent)
        shape.append(extent)
        loops.append((loop, extent))
        axes.append(axis)
        source.append(var(axis.name))
        if extent != old[along]:
            sides = (Index(var(axis.name), dtypes.int64), Index(old[along], dtypes.int64))
            test = Op("less", sides, dtypes.bool_)
            inside = test if inside is None else Op("logical_and", (inside, test), dtypes.bool_)
    value: Expr = Load(x.buffer, tuple(source), x.dtype)
    if inside is not None:
        value = Select(inside, value, fill)
    bindings = tuple(var(v) for v, _ in loops)
    nest: Stmt = Block(name, tuple(axes), bindings, name, _rows(source), value)
    for v, extent in reversed(loops):
        nest = Loop(v, extent, nest)
    return Buffer(name, x.dtype, tuple(shape)), nest


def _crop(block: Block, places: Sequence[str | None], padded: Load, taken: set[str]) -> Stmt:
    """The nest that copies what was asked for out of the padded result."""
    name = fresh_in(taken, f"{block.name}_write")
    old = {a.name: a.extent for a in block.axes}
    env: dict[str, IntExpr] = {}
    axes, loops = [], []
    for d, a in enumerate(places):
        if a is not None:
            loop = fresh_in(taken, f"{name}_i{d}")
            axis = Axis(fresh_in(taken, f"{loop}_"), old[a])
            env[a] = var(axis.name)
            axes.append(axis)
            loops.append((loop, old[a]))
    indices = tuple(i.substitute(env) for i in block.indices)
    load = Load(padded.buffer, tuple(i.substitute(env) for i in padded.indices), padded.dtype)
    nest: Stmt = Block(name, tuple(axes), tuple(var(v) for v, _ in loops), block.buffer, indices, load)
    for v, extent in reversed(loops):
        nest = Loop(v, extent, nest)
    return nest
