"""decompose_reduction: store the initial values of a reduction in a nest of their own."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import interval, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.schedule.stage_motion import (
    block_and_path,
    has_reduction,
    map_statements,
    reduction_update,
    require_first_step,
    require_no_guard,
    sites,
)
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import loop_ranges, loops_in
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Stmt, expr_free_vars, seq
from tilewright.tensor_ir.names import fresh_in, names_of


@dataclass(frozen=True, slots=True)
class DecomposeReduction(Primitive):
    """Give the initial value of a reduction a block of its own, in front of a loop; the update loses its test for it.

    The new block is ``<block>_init``, its loops are those of the spatial axes inside ``loop``, with suffix ``_init``
    and, where their extent is ragged in a reduction loop, with the greatest extent.

    Rewrite:
        for k in K: for i in N: B[i] = (init 0) B[i] + A[k, i]
        --> decompose_reduction("B", loop="k")
        for i_init in N: B[i_init] = 0
        for k in K: for i in N: B[i] = B[i] + A[k, i]

    Keeps: every value, bit for bit; an empty reduction now gives the initial value.
    Refuses:
        - the block or the loop is not there
        - the block is not a reduction with an initial value
        - the loop is not around the block
        - the block stands under a guard in the loop
        - a reduction loop is outside the loop
        - the loop does not start at the first step of the reduction
        - the buffer is allocated inside the loop
        - another statement in the loop writes the buffer
        - an element is reduced more than once in the loop
        - the loop is vectorized or inside a vectorized loop
        - the initial elements are ragged without a bound inside the buffer
    Cost: one more pass over the elements; saves the test in the inner loop and lets it be vectorized.
    """

    name: ClassVar[str] = "decompose_reduction"
    block: str
    loop: str

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return (fresh_in(names_of(func), f"{self.block}_init"),)

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        loop = find_loop(func, self.loop, self)
        init = block.init
        if not has_reduction(block) or init is None or reduction_update(block) is None:
            raise refuse(self, "expected a reduction with an initial value")
        at = next((n for n, s in enumerate(path) if s is loop), None)
        if at is None:
            raise refuse(self, f"expected a loop around the block, {loop.var} is not")
        outer, inner = loops_in(path[:at]), loops_in(path[at:])
        self._require_place(block, path, at, outer, inner)
        ranges = loop_ranges(loops_in(path))
        reducing = _loops_of(block, "reduce", inner)
        used = expr_free_vars(init).union(*(i.free_vars() for i in block.indices))
        axes = [(a, b) for a, b in zip(block.axes, block.bindings, strict=True) if a.name in used]
        needed = frozenset().union(*(b.free_vars() for _, b in axes)) if axes else frozenset()
        copied = [x for x in inner if x.var in needed]
        for c in carried_dependences(loop, [x.var for x in inner], loop_ranges(outer)):
            again = sorted(c.loops - reducing)
            if c.buffer == block.buffer and c.source == c.sink == block.name and again:
                raise refuse(self, f"elements of {block.buffer} are reduced more than once in loop {again[0]}")

        taken = names_of(func)
        name = fresh_in(taken, f"{block.name}_init")
        renamed: dict[str, IntExpr] = {}
        nest: list[tuple[str, IntExpr, Loop]] = []
        for x in copied:
            extent = x.extent
            if extent.free_vars() & reducing:
                extent = self._full_extent(block, x, ranges)
            extent = extent.substitute(renamed)
            new = fresh_in(taken, f"{x.var}_init")
            renamed[x.var] = var(new)
            nest.append((new, extent, x))
        bindings = tuple(b.substitute(renamed) for _, b in axes)
        body: Stmt = Block(name, tuple(a for a, _ in axes), bindings, block.buffer, block.indices, init)
        for new, extent, x in reversed(nest):
            body = Loop(new, extent, body, "serial" if x.kind == "parallel" else x.kind)
        changes: dict[int, Stmt] = {id(block): dataclasses.replace(block, init=None)}
        return replace_stmt(func, loop, seq(body, map_statements(loop, changes)))

    def _require_place(
        self, block: Block, path: tuple[Stmt, ...], at: int, outer: list[Loop], inner: list[Loop]
    ) -> None:
        loop = path[at]
        require_no_guard(self, path[at:])
        around = _loops_of(block, "reduce", outer)
        if around:
            raise refuse(self, f"reduction loop {sorted(around)[0]} is outside loop {self.loop}")
        require_first_step(self, block, inner)
        for s in path[at:]:
            if isinstance(s, Alloc) and s.buffer.name == block.buffer:
                raise refuse(self, f"{block.buffer} is allocated inside loop {self.loop}")
        for x in (*outer, inner[0]):
            if x.kind == "vectorized":
                raise refuse(self, f"loop {x.var} is vectorized, lanes cannot hold a nest")
        for site in sites(loop):
            if site.written == block.buffer and site.stmt is not block:
                raise refuse(self, f"{site.label} in loop {self.loop} writes {block.buffer} too")

    def _full_extent(self, block: Block, loop: Loop, ranges: dict[str, tuple[IntExpr, IntExpr]]) -> IntExpr:
        """The greatest extent of a loop that is ragged in a reduction loop, if all of it lies inside the axes."""
        full = upper_bound(loop.extent, ranges)
        if full is None:
            raise refuse(self, f"the extent of {loop.var} is {loop.extent}, which has no constant bound")
        inside = {**ranges, loop.var: (const(0), const(full - 1))}
        for a, b in zip(block.axes, block.bindings, strict=True):
            if a.kind != "reduce" and loop.var in b.free_vars():
                low, high = interval(simplify(b, inside), inside)
                size = a.extent.value()
                if low is None or low < 0 or high is None or size is None or high >= size:
                    raise refuse(self, f"{full} steps of ragged loop {loop.var} may leave axis {a.name} of {a.extent}")
        return const(full)


def _loops_of(block: Block, kind: str, loops: list[Loop]) -> frozenset[str]:
    """The loops that bindings of axes of a kind use."""
    names = frozenset(x.var for x in loops)
    used: frozenset[str] = frozenset()
    for a, b in zip(block.axes, block.bindings, strict=True):
        if a.kind == kind:
            used |= b.free_vars()
    return used & names
