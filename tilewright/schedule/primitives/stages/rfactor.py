"""rfactor: keep a partial result for each iteration of a reduction loop, and combine them afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, as_expr, var
from tilewright.schedule.base import Primitive, find_buffer, find_loop, refuse
from tilewright.schedule.stage_motion import (
    block_and_path,
    map_statements,
    neutral_value,
    reduction_update,
    require_first_step,
    with_buffer,
)
from tilewright.tensor_ir.analysis.dependence import ASSOCIATIVE
from tilewright.tensor_ir.analysis.scopes import blocks_in, loop_ranges, loops_in
from tilewright.tensor_ir.analysis.sweeps import bounds, same
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Expr, Func, Load, Loop, Op, Stmt, seq, substitute_expr
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class RFactor(Primitive):
    """Make a reduction loop a spatial dimension of a block of partial results, ``<block>_rf``; the block then combines.

    The partial results' last dimension is the loop, so that it can be vectorized. Their buffer, named as their block,
    is local when the block's nest is inside a loop and computes one element there, else it has the scope of the
    original. The loops of the nest stay with ``<block>_rf``; those of the combination have suffix ``_r``.

    Rewrite:
        for k_0 in K//8: for k_1 in 8: B[0] = (init 0) B[0] + A[k_0*8 + k_1]
        --> rfactor("k_1")
        for k_0 in K//8: for k_1 in 8: B_rf[0, k_1] = (init 0) B_rf[0, k_1] + A[k_0*8 + k_1]
        for k_1_r in 8: B[0] = (init 0) B[0] + B_rf[0, k_1_r]

    Keeps: every value, with the steps of the reduction in another order (floating-point sums are reassociated).
    Refuses:
        - the loop is not there
        - the loop is not serial
        - the loop is not around exactly one block
        - the block is not a reduction with an initial value
        - the combining operation is not associative, or the initial value not its identity
        - the loop does not run over reduce axes only
        - the nest holds a guard, or a reduction loop is outside it
        - the nest does not start at the first step of the reduction
        - a spatial extent is ragged in a reduction loop
        - a later step has more iterations of the loop than the first
        - an extent of the nest has no bound outside it
        - the partial results would be local and have no constant size
    Cost: memory for the partial results, and the combination; makes the loop free of dependences.
    """

    name: ClassVar[str] = "rfactor"
    loop: str

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        (block,) = blocks_in(find_loop(func, self.loop, self))
        return (fresh_in(names_of(func), f"{block.name}_rf"),)

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        blocks = blocks_in(loop)
        if len(blocks) != 1:
            raise refuse(self, f"expected one block in the loop, got {len(blocks)}")
        block, path = block_and_path(self, func, blocks[0].name)
        update, init = self._require_reduction(block)
        top = _nest_start(path)
        nest = [s for s in path[top:-1] if isinstance(s, Loop)]
        if not any(s is loop for s in nest):
            raise refuse(self, "the nest holds a guard, a store or an allocation")
        spatial, steps = self._split_loops(block, nest, loop, func.dims)
        ranges = loop_ranges(loops_in(path))
        require_first_step(self, block, nest)
        first = self._first_extent(loop, steps, nest, ranges)

        taken = names_of(func) - {a.name for a in block.axes if a.kind == "reduce"}
        name = fresh_in(taken, f"{block.name}_rf")
        over = self._axis_extent(first, ranges)
        bound = upper_bound(first, ranges)
        lanes = over if bound is None else as_expr(bound)  # so that decompose_reduction may fill whole vectors
        source = find_buffer(func, block.buffer, self)
        outer = loops_in(path[:top])
        buffer, alone = self._partials(name, source, lanes, bool(outer), bool(spatial))

        lane = Axis(fresh_in(taken, f"{loop.var}_"), lanes)
        step_axes = [Axis(fresh_in(taken, f"{x.var}_"), self._axis_extent(x.extent, ranges), "reduce") for x in steps]
        env: dict[str, IntExpr] = {loop.var: var(lane.name)}
        env.update({x.var: var(a.name) for x, a in zip(steps, step_axes, strict=True)})
        reduced = {
            a.name: b.substitute(env) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind == "reduce"
        }
        kept = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.kind != "reduce"]
        index = (*(() if alone else block.indices), var(lane.name))
        value = substitute_expr(update, reduced)
        partial = Block(
            name,
            (*(a for a, _ in kept), lane, *step_axes),
            (*(b for _, b in kept), var(loop.var), *(var(x.var) for x in steps)),
            name,
            index,
            Op(_combiner(block), (Load(name, index, source.dtype), value), source.dtype) if steps else value,
            init if steps else None,
        )
        load = Load(name, index, source.dtype)
        final = _combination(block, kept, spatial, loop, first, over, load, lane.name, taken)
        changes: dict[int, Stmt] = {id(block): partial}
        both = seq(map_statements(path[top], changes), final)
        return with_buffer(func, path[top], both, buffer)

    def _require_reduction(self, block: Block) -> tuple[Expr, Expr]:
        update, init = reduction_update(block), block.init
        if update is None or init is None:
            raise refuse(self, f"expected block {block.name} to be a reduction with an initial value")
        combiner = _combiner(block)
        if combiner not in ASSOCIATIVE:
            raise refuse(self, f"expected an associative operation, got {combiner}")
        if neutral_value(block) is None:
            raise refuse(self, f"expected the identity of {combiner} as initial value")
        return update, init

    def _split_loops(
        self, block: Block, nest: Sequence[Loop], loop: Loop, dims: Sequence[str]
    ) -> tuple[list[Loop], list[Loop]]:
        """The spatial loops of the nest, and its other reduction loops."""
        names = {x.var for x in nest}
        by_kind: dict[bool, frozenset[str]] = {True: frozenset(), False: frozenset()}
        for a, b in zip(block.axes, block.bindings, strict=True):
            by_kind[a.kind == "reduce"] |= b.free_vars()
        if loop.var not in by_kind[True] or loop.var in by_kind[False]:
            raise refuse(self, "expected a loop that runs over reduce axes only")
        outside = {x for a, b in zip(block.axes, block.bindings, strict=True) if a.kind == "reduce"
                   for x in b.free_vars()} - names - {*dims}  # fmt: skip
        if outside:
            raise refuse(self, f"reduction loop {sorted(outside)[0]} is outside the nest of the block")
        spatial = [x for x in nest if x.var not in by_kind[True]]
        steps = [x for x in nest if x.var in by_kind[True] and x is not loop]
        reducing = {loop.var, *(x.var for x in steps)}
        for x in spatial:
            if x.extent.free_vars() & reducing:
                raise refuse(self, f"the extent {x.extent} of spatial loop {x.var} is ragged in a reduction loop")
        for x in steps:
            if x.var in by_kind[False]:
                raise refuse(self, f"loop {x.var} runs over spatial and reduce axes")
        return spatial, steps

    def _first_extent(self, loop: Loop, steps: Sequence[Loop], nest: Sequence[Loop], ranges: Ranges) -> IntExpr:
        """The extent of the loop in the first step: what the combination runs over."""
        first = simplify(loop.extent.substitute({x.var: as_expr(0) for x in steps}), ranges)
        box = bounds(loop.extent, [x.var for x in nest if x in steps], ranges)
        if box is None or not same(box[1], first, ranges):
            raise refuse(self, f"a later step may have more than the {first} iterations of the first")
        return first

    def _axis_extent(self, extent: IntExpr, ranges: Ranges) -> IntExpr:
        """A bound of an extent that uses no loop variable."""
        if not extent.free_vars() & ranges.keys():
            return extent
        bound = upper_bound(extent, ranges)
        if bound is None:
            raise refuse(self, f"extent {extent} has no bound outside the nest")
        return as_expr(bound)

    def _partials(self, name: str, source: Buffer, lanes: IntExpr, in_loop: bool, many: bool) -> tuple[Buffer, bool]:
        """The buffer of the partial results, and whether it holds those of one element only."""
        bound = upper_bound(lanes, {})
        alone = in_loop and not many and bound is not None
        if not alone and source.scope == "global":
            return Buffer(name, source.dtype, (*source.shape, lanes)), False
        if bound is None:
            raise refuse(self, f"expected a constant bound of {lanes} for local partial results")
        return Buffer(name, source.dtype, (*(() if alone else source.shape), as_expr(bound)), "local"), alone


def _combiner(block: Block) -> str:
    return block.value.name if isinstance(block.value, Op) else ""


def _nest_start(path: Sequence[Stmt]) -> int:
    """Where the chain of loops right around the block starts in its path."""
    n = len(path) - 1
    while n > 0 and isinstance(path[n - 1], Loop):
        n -= 1
    return n


def _combination(
    block: Block,
    kept: Sequence[tuple[Axis, IntExpr]],
    spatial: Sequence[Loop],
    loop: Loop,
    first: IntExpr,
    bound: IntExpr,
    partial: Load,
    lane: str,
    taken: set[str],
) -> Stmt:
    """The nest that reduces the partial results."""
    renamed: dict[str, IntExpr] = {}
    nest: list[tuple[str, IntExpr, Loop]] = []
    for x in spatial:
        new = fresh_in(taken, f"{x.var}_r")
        nest.append((new, x.extent.substitute(renamed), x))
        renamed[x.var] = var(new)
    over = fresh_in(taken, f"{loop.var}_r")
    axis = Axis(fresh_in(taken, f"{over}_"), bound, "reduce")
    load = substitute_expr(partial, {lane: var(axis.name)})
    out: Stmt = Block(
        block.name,
        (*(a for a, _ in kept), axis),
        (*(b.substitute(renamed) for _, b in kept), var(over)),
        block.buffer,
        block.indices,
        Op(_combiner(block), (Load(block.buffer, block.indices, partial.dtype), load), partial.dtype),
        block.init,
    )
    out = Loop(over, first.substitute(renamed), out)
    for new, extent, x in reversed(nest):
        out = Loop(new, extent, out, x.kind, x.hints)
    return out
