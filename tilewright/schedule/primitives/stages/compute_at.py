"""compute_at: compute a stage inside a loop of its readers, just the part that each iteration needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, is_nonneg, simplify, upper_bound
from tilewright.core.arith.expr import ZERO, FloorDiv, IntExpr, Mod, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt, require_no_threads
from tilewright.schedule.compact_buffer import Region, bound_axes, clipped, local_buffer, offset_axes, rebase
from tilewright.schedule.stage_motion import (
    Site,
    block_and_path,
    drop_alloc,
    fork,
    has_reduction,
    insert_at,
    map_statements,
    new_loops,
    plain_axes,
    reduction_update,
    require_inputs_reach,
    require_intermediate,
    require_no_guard,
    sites,
)
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import block_environment, loads_of, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.analysis.sweeps import Bounds, bounds, covers_once
from tilewright.tensor_ir.ir import Alloc, Block, Func, Load, Loop, Seq, Stmt, walk, walk_index
from tilewright.tensor_ir.names import names_of

FULL_LANES = 64
"""A constant innermost dimension up to this many elements is computed whole when at least half of it is needed, else a
power of two of it, which are the lanes of a register."""


@dataclass(frozen=True, slots=True)
class ComputeAt(Primitive):
    """Move a stage into a loop around its readers, computing in each iteration the region that they need there.

    A region of constant size up to 256 KiB, or of a size that symbolic dims give, becomes a local buffer allocated in
    the loop, and indices are counted from the region's start; a larger one stays in the whole buffer. The old loops of
    the stage go. In their place comes one loop for each reduce axis and for each axis whose region is not a single
    point, in the order of the axes, named as the axis' only loop was, else as the axis without its final underscore.

    ``whole``: a region that is smaller in some iterations has its full size in all of them, wherever the buffer has the
    room, so that the loops over it need no test. What is computed beyond the region is never read.

    ``multiple``: with ``whole`` and above 1, the region's first dimension is a multiple of so many elements and its
    last one is that of the buffer, wherever that has the room: blocks that an instruction computes.

    Rewrite:
        alloc B[N] global:
            for i in N: B[i] = f(A[i])
            for j_0 in N//4: for j_1 in 4: C[j_0*4 + j_1] = g(B[j_0*4 + j_1])
        --> compute_at("B", loop="j_0")
        for j_0 in N//4:
            alloc B[4] local:
                for i in 4: B[i] = f(A[j_0*4 + i])
                for j_1 in 4: C[j_0*4 + j_1] = g(B[j_1])

    Keeps: every value that is read, bit for bit. A dimension of the buffer that a ragged tile uses only in part is
        computed whole where it has no more elements than a full tile (padding of packed operands); of one that is used
        to less than a half, the next power of two is.
    Refuses:
        - the block or the loop is not there
        - the multiple is less than 1
        - the block writes a parameter
        - another statement writes the buffer
        - the block is already inside the loop
        - the loop does not come after the block
        - the loop is vectorized or inside a vectorized loop
        - a parallel loop stands inside the loop
        - the block stands under a guard
        - an axis is ordered
        - the value reads the block's own buffer, other than to update a reduction with an initial value
        - the store indices are not axes of the block
        - a reduce axis is not complete in the block's nest
        - the nest is not rectangular
        - a reader is outside the loop, is not a block, or reads the buffer in a binding
        - nothing reads the buffer
        - an input is written again between the block and the loop
        - an input is not allocated at the loop
        - iterations of a parallel loop would write the same elements of a shared buffer
    Cost: overlapping regions are computed again; saves memory traffic when the region fits a near cache or registers.
    """

    name: ClassVar[str] = "compute_at"
    block: str
    loop: str
    whole: bool = False
    multiple: int = 1

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return new_loops(func, result, self.block)

    def apply(self, func: Func) -> Func:
        if self.multiple < 1:
            raise refuse(self, f"expected a multiple of at least 1, got {self.multiple}")
        block, path = block_and_path(self, func, self.block)
        loop = find_loop(func, self.loop, self)
        target = loop_path(func, self.loop)
        alloc = require_intermediate(self, func, block.buffer, block)
        shared = fork(path, target)
        self._require_place(loop, path, target, shared)
        axes = self._require_block(block, path, shared)
        readers = self._readers(func, block, target)
        require_inputs_reach(self, func, block, path, target)

        outer = loops_in(target)
        ranges = loop_ranges(outer)
        extents = [ZERO + 1 if a is None else next(x.extent for x in block.axes if x.name == a) for a in axes]
        least = [self._least(d, extents) for d in range(len(axes))]
        regions = [
            None if a is None else _region(d, block.buffer, readers, len(outer), extents, ranges, least[d])
            for d, a in enumerate(axes)
        ]
        local = local_buffer(alloc.buffer, regions, ranges)
        taken = names_of(replace_stmt(func, block, None))
        offsets = {} if local is None else offset_axes(block.buffer, regions, extents, taken, ranges)
        kept = {x.name: b for x, b in zip(block.axes, block.bindings, strict=True)}
        moved, nest_loops = bound_axes(block, axes, regions, kept, taken)

        def rebased(b: Block) -> Block:
            return b if local is None else rebase(b, block.buffer, regions, offsets)

        nest: Stmt = rebased(moved)
        for name, extent in reversed(nest_loops):
            nest = Loop(name, extent, nest)
        changes: dict[int, Stmt] = {id(r.stmt): rebased(r.stmt) for r in readers if isinstance(r.stmt, Block)}
        names = {r.stmt.name for r in readers if isinstance(r.stmt, Block)}
        body = map_statements(loop.body, changes)
        body = insert_at(body, nest, lambda s: any(isinstance(x, Block) and x.name in names for x in walk(s)))
        if local is not None:
            func, body = drop_alloc(func, block.buffer), Alloc(local, body)
        new_loop: Stmt = dataclasses.replace(loop, body=body)
        func = dataclasses.replace(func, body=map_statements(func.body, {id(loop): new_loop}))
        func = replace_stmt(func, block, None)
        if local is None:
            self._require_disjoint(func, block.buffer)
        return func

    def _least(self, dimension: int, extents: Sequence[IntExpr]) -> int:
        """What the size of a region is a multiple of; 0 if its size may differ from one iteration to another."""
        if self.multiple > 1 and 0 < dimension == len(extents) - 1:
            return (extents[dimension].value() or 1) if self.whole else 0
        return (self.multiple if dimension == 0 else 1) if self.whole else 0

    def _require_place(self, loop: Loop, path: tuple[Stmt, ...], target: tuple[Stmt, ...], shared: int) -> None:
        if any(s is loop for s in path):
            raise refuse(self, f"the block is already inside loop {loop.var}")
        parent = path[shared - 1]
        order = [id(s) for s in parent.stmts] if isinstance(parent, Seq) else []
        if not order or order.index(id(path[shared])) > order.index(id(target[shared])):
            raise refuse(self, f"expected loop {loop.var} after the block, it comes before")
        for s in target:
            if isinstance(s, Loop) and s.kind == "vectorized":
                raise refuse(self, f"loop {s.var} is vectorized, lanes cannot hold a nest")
        require_no_threads(self, loop)

    def _require_block(self, block: Block, path: tuple[Stmt, ...], shared: int) -> list[str | None]:
        require_no_guard(self, path[shared:])
        for a in block.axes:
            if a.kind == "ordered":
                raise refuse(self, f"axis {a.name} is ordered, a part of it cannot be computed alone")
        reads_itself = any(x.buffer == block.buffer for x in loads_of(block))
        if has_reduction(block):
            if reduction_update(block) is None or block.init is None:
                raise refuse(self, "expected a reduction that updates its own element and has an initial value")
        elif reads_itself:
            raise refuse(self, f"the block reads its own buffer {block.buffer}")
        axes = plain_axes(block)
        reduce_axes = {a.name for a in block.axes if a.kind == "reduce"}
        if axes is None or reduce_axes & set(axes):
            shown = ", ".join(map(str, block.indices))
            raise refuse(self, f"expected store indices that are spatial axes, each once, got [{shown}]")
        self._require_box(block, axes, path, shared)
        return axes

    def _require_box(self, block: Block, axes: Sequence[str | None], path: tuple[Stmt, ...], shared: int) -> None:
        """The nest must run over a product of intervals, one an axis, and over all of each reduce axis."""
        mine = loops_in(path[shared:])
        ranges = loop_ranges(loops_in(path))
        users = {
            loop.var: {a.name for a, b in zip(block.axes, block.bindings, strict=True) if loop.var in b.free_vars()}
            for loop in mine
        }
        for loop in mine:
            for other in loop.extent.free_vars() & users.keys():
                if users[other] != users[loop.var]:
                    raise refuse(self, f"the nest is not rectangular: the extent of {loop.var} depends on {other}")
        for a, b in zip(block.axes, block.bindings, strict=True):
            if a.kind == "reduce" and not covers_once(b, mine, a.extent, ranges):
                raise refuse(self, f"reduce axis {a.name} = {b} is not proved complete in the block's nest")
            if a.kind == "spatial" and a.name not in axes and b.free_vars() & users.keys():
                raise refuse(self, f"expected store indices that are spatial axes, but axis {a.name} is in none")

    def _readers(self, func: Func, block: Block, target: tuple[Stmt, ...]) -> list[Site]:
        loop = target[-1]
        out: list[Site] = []
        for s in sites(func.body):
            if s.stmt is block or not s.reads(block.buffer):
                continue
            if not any(x is loop for x in s.loops):
                raise refuse(self, f"{s.label} reads {block.buffer} outside loop {self.loop}")
            if not isinstance(s.stmt, Block):
                raise refuse(self, f"expected every reader of {block.buffer} to be a block, but {s.label} reads it")
            for b in s.stmt.bindings:
                if any(isinstance(x, Load) and x.buffer == block.buffer for x in walk_index(b)):
                    raise refuse(self, f"a binding of {s.label} reads {block.buffer}")
            out.append(s)
        if not out:
            raise refuse(self, f"nothing reads {block.buffer}")
        return out

    def _require_disjoint(self, func: Func, buffer: str) -> None:
        outer: list[Loop] = []
        for s in loop_path(func, self.loop):
            if isinstance(s, Loop) and s.kind == "parallel":
                for c in carried_dependences(s, [s.var], loop_ranges(outer)):
                    if c.buffer == buffer:
                        raise refuse(self, f"iterations of parallel loop {s.var} would share elements of {buffer}")
            if isinstance(s, Loop):
                outer.append(s)


# -- regions -----------------------------------------------------------------------------------------------------
def _region(
    d: int, buffer: str, readers: Sequence[Site], depth: int, extents: Sequence[IntExpr], ranges: Ranges,
    multiple: int,
) -> Region:  # fmt: skip
    """What the readers need of dimension ``d``, in terms of the ``depth`` outermost loops around them."""
    extent, last = extents[d], d == len(extents) - 1
    box: Bounds | None = None
    for site in readers:
        block = site.stmt
        assert isinstance(block, Block)  # the readers were checked
        env = block_environment(block)
        inside = {**ranges, **loop_ranges(site.loops[depth:])}
        names = [loop.var for loop in site.loops[depth:]]
        for index in dict.fromkeys(x.indices[d] for x in site.loads if x.buffer == buffer):
            part = bounds(index.substitute(env), names, inside)
            if part is None or any(_reads_memory(e) for e in part):
                return clipped(ZERO, extent - 1, extent, ranges)
            box = part if box is None else (minimum(box[0], part[0]), maximum(box[1], part[1]))
    if box is None:
        return clipped(ZERO, extent - 1, extent, ranges)
    low, high = (simplify(e, ranges) for e in box)
    whole = extent.value()
    if whole is not None and any(_divides_by_unknown(e) for e in (low, high)):
        return clipped(ZERO, extent - 1, extent, ranges)
    top = upper_bound(high, ranges)
    if low == 0 and whole is not None and top is not None:
        needed = min(top + 1, whole)
        if last and whole <= FULL_LANES and needed > 1:
            needed = whole if 2 * needed >= whole else 1 << top.bit_length()
        if needed == whole or needed > top + 1:
            high = const(needed - 1)
    size = upper_bound(simplify(high - low + 1, ranges), ranges)
    if multiple and size is not None:
        rounded = -(-size // multiple) * multiple
        if is_nonneg(extent - low - rounded, ranges):
            high = low + rounded - 1
    return clipped(low, high, extent, ranges)


def _divides_by_unknown(e: IntExpr) -> bool:
    """True for a division that stood inside a loop, and would be by zero where that loop has no steps."""
    return any(isinstance(a, (FloorDiv, Mod)) and not a.args[1].is_const for a in e.atoms())


def _reads_memory(e: IntExpr) -> bool:
    return any(True for _ in walk_index(e))
