"""reverse_compute_at: compute a consumer inside a loop of the stage that it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, is_nonneg, loop_range, simplify
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod, as_var, of_atom, var
from tilewright.schedule.base import Primitive, find_buffer, find_loop, refuse, replace_stmt, require_no_threads
from tilewright.schedule.compact_buffer import Region, bound_axes, clipped, local_buffer, offset_axes, rebase
from tilewright.schedule.stage_motion import (
    alloc_of,
    block_and_path,
    drop_alloc,
    fork,
    insert_at,
    map_statements,
    new_loops,
    plain_axes,
    require_no_guard,
    require_only_writer,
    sites,
)
from tilewright.tensor_ir.analysis.scopes import block_environment, loads_of, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.analysis.sweeps import Bounds, bounds, covers_once, same
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Seq, Stmt, walk
from tilewright.tensor_ir.names import names_of


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(Primitive):
    """Move a stage into a loop around the stage that it reads, computing in each iteration what has just become ready.

    If nothing else reads the input and an iteration's part of it has a constant size up to 256 KiB, it becomes a local
    buffer of the loop. New loops are named as in ``compute_at``.

    Rewrite:
        for i_0 in N//4: for i_1 in 4: B[i_0*4 + i_1] = f(A[i_0*4 + i_1])
        for j in N: C[j] = g(B[j])
        --> reverse_compute_at("C", loop="i_0")
        for i_0 in N//4:
            alloc B[4] local:
                for i_1 in 4: B[i_1] = f(A[i_0*4 + i_1])
                for j in 4: C[i_0*4 + j] = g(B[j])

    Keeps: every value, bit for bit; each element of the result is computed once.
    Refuses:
        - the block or the loop is not there
        - the block is already inside the loop
        - the loop does not come before the block
        - the loop is vectorized or inside a vectorized loop
        - a parallel loop stands inside the loop
        - the block or its producer stands under a guard
        - an axis of the block is ordered
        - another statement writes the block's buffer
        - the store indices are not axes of the block
        - the block's nest does not run over each of its points once
        - the block does not read exactly one buffer that the loop's nest writes
        - the input has another writer, or its writer is not inside the loop
        - a reduction of the producer is not complete in the loop
        - the producer does not write each element of the input once
        - the block reads the input at several places, or not at affine ones
        - a read is not proved to lie inside the input
        - a reduce axis would be incomplete in the loop
        - another input, or the result, is used between the loop and the block
        - a buffer of the block is not allocated at the loop
    Cost: none; saves memory traffic when the part fits a near cache or registers.
    """

    name: ClassVar[str] = "reverse_compute_at"
    block: str
    loop: str

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return new_loops(func, result, self.block)

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        loop = find_loop(func, self.loop, self)
        target = loop_path(func, self.loop)
        shared = fork(path, target)
        self._require_place(func, block, loop, path, target, shared)
        axes = self._require_block(func, block, path, shared)
        producer = self._producer(func, block, loop, target[shared])
        self._require_untouched(func, block, producer.buffer, target[shared], path[shared])
        producer_path = block_and_path(self, func, producer.name)[1]
        source = find_buffer(func, producer.buffer, self)
        written = self._written(producer, producer_path, shared, target, source.shape)
        ranges = loop_ranges(loops_in(target))
        wanted = self._wanted(block, producer.buffer, written, source.shape, ranges)

        regions = [None if a is None else wanted[a] for a in axes]
        reduce_axes = {a.name: wanted[a.name] for a in block.axes if a.kind == "reduce" and a.name in wanted}
        for name, r in reduce_axes.items():
            whole = next(a.extent for a in block.axes if a.name == name)
            if r.low != 0 or not same(r.extent, whole, ranges):
                raise refuse(self, f"reduce axis {name} would be incomplete in loop {loop.var}")

        taken = names_of(replace_stmt(func, block, None))
        moved, nest_loops = bound_axes(block, axes, regions, block_environment(block), taken)
        inside = [clipped(low, high, d, ranges) for (low, high), d in zip(written, source.shape, strict=True)]
        alone = all(not s.reads(source.name) or s.stmt in (block, producer) for s in sites(func.body))
        local = local_buffer(source, inside, ranges) if alone and alloc_of(func, source.name) is not None else None
        new_producer = producer
        if local is not None:
            offsets = offset_axes(source.name, inside, source.shape, taken, ranges)
            moved = rebase(moved, source.name, inside, offsets)
            new_producer = rebase(producer, source.name, inside, offsets)
        nest: Stmt = moved
        for name, extent in reversed(nest_loops):
            nest = Loop(name, extent, nest)
        changes: dict[int, Stmt] = {id(producer): new_producer}
        body = map_statements(loop.body, changes)
        body = insert_at(body, nest, lambda s: any(x is new_producer for x in walk(s)), after=True)
        if local is not None:
            func, body = drop_alloc(func, source.name), Alloc(local, body)
        new_loop: Stmt = dataclasses.replace(loop, body=body)
        func = dataclasses.replace(func, body=map_statements(func.body, {id(loop): new_loop}))
        return replace_stmt(func, block, None)

    def _require_place(
        self, func: Func, block: Block, loop: Loop, path: tuple[Stmt, ...], target: tuple[Stmt, ...], shared: int
    ) -> None:
        if any(s is loop for s in path):
            raise refuse(self, f"the block is already inside loop {loop.var}")
        parent = path[shared - 1]
        order = [id(s) for s in parent.stmts] if isinstance(parent, Seq) else []
        if not order or order.index(id(path[shared])) < order.index(id(target[shared])):
            raise refuse(self, f"expected loop {loop.var} before the block, it comes after")
        for s in target:
            if isinstance(s, Loop) and s.kind == "vectorized":
                raise refuse(self, f"loop {s.var} is vectorized, lanes cannot hold a nest")
        require_no_threads(self, loop)
        for name in sorted({x.buffer for x in loads_of(block)} | {block.buffer}):
            alloc = alloc_of(func, name)
            if alloc is not None and not any(alloc is s for s in target):
                raise refuse(self, f"{name} is not allocated at loop {loop.var}")

    def _require_block(self, func: Func, block: Block, path: tuple[Stmt, ...], shared: int) -> list[str | None]:
        require_no_guard(self, path[shared:])
        for a in block.axes:
            if a.kind == "ordered":
                raise refuse(self, f"axis {a.name} is ordered, a part of it cannot be computed alone")
        require_only_writer(self, func, block, block.buffer)
        axes = plain_axes(block)
        spatial = {a.name for a in block.axes if a.kind == "spatial"}
        if axes is None or spatial != set(axes) - {None}:
            shown = ", ".join(map(str, block.indices))
            raise refuse(self, f"expected store indices that are the spatial axes, each once, got [{shown}]")
        mine = loops_in(path[shared:])
        ranges = loop_ranges(loops_in(path))
        used: set[str] = set()
        for a, b in zip(block.axes, block.bindings, strict=True):
            names = b.free_vars() & {x.var for x in mine}
            if used & names or not covers_once(b, mine, a.extent, ranges):
                raise refuse(self, f"the block's nest is not proved to run over axis {a.name} = {b} once")
            used |= names
        return axes

    def _producer(self, func: Func, block: Block, loop: Loop, nest: Stmt) -> Block:
        inputs = {x.buffer for x in loads_of(block)} - {block.buffer}
        made = sorted({s.written for s in sites(nest) if s.written is not None} & inputs)
        if len(made) != 1:
            raise refuse(self, f"expected to read one buffer that the nest of {loop.var} writes, got {made or 'none'}")
        writers = [s.stmt for s in sites(func.body) if s.written == made[0]]
        if len(writers) != 1 or not isinstance(writers[0], Block) or not any(s is writers[0] for s in walk(loop)):
            raise refuse(self, f"expected one block inside loop {loop.var} that writes {made[0]}, and no other writer")
        return writers[0]

    def _require_untouched(self, func: Func, block: Block, source: str, target: Stmt, branch: Stmt) -> None:
        """``branch``: what stands behind the loop and has the block: other statements in it run between its steps."""
        inputs = {x.buffer for x in loads_of(block)} - {source, block.buffer}
        begin, own = {id(s) for s in walk(target)}, {id(s) for s in walk(branch)}
        started = passed = False
        for s in sites(func.body):
            started = started or id(s.stmt) in begin
            passed = passed or s.stmt is block
            if passed and id(s.stmt) not in own:
                return
            if started and s.written in inputs:
                what = f"{s.label} writes {s.written}, which the block reads"
                raise refuse(self, f"{what}, between the loop and the block")
            if started and not passed and s.reads(block.buffer):
                raise refuse(self, f"{s.label} reads {block.buffer} between the loop and the block")

    def _written(
        self, producer: Block, path: tuple[Stmt, ...], shared: int, target: tuple[Stmt, ...], shape: Sequence[IntExpr]
    ) -> list[Bounds]:
        """The box that the producer writes in one iteration of the loop; proved to be whole and to be visited once."""
        require_no_guard(self, path[shared:])
        lead = loops_in(target[shared:])
        mine = loops_in(path[shared:])
        inner = mine[len(lead) :]
        ranges = loop_ranges(loops_in(path))
        for a, b in zip(producer.axes, producer.bindings, strict=True):
            around = b.free_vars() & {x.var for x in lead}
            if a.kind != "spatial" and around:
                first = sorted(around)[0]
                raise refuse(self, f"reduction loop {first} of {producer.name} is not inside loop {self.loop}")
        env = block_environment(producer)
        out: list[Bounds] = []
        used: set[str] = set()
        for i, extent in zip(producer.indices, shape, strict=True):
            e = simplify(i.substitute(env), ranges)
            box = bounds(e, [x.var for x in inner], ranges)
            names = e.free_vars() & {x.var for x in mine}
            whole = box is not None and covers_once(e, mine, extent, ranges)
            part = box is not None and covers_once(e - box[0], inner, simplify(box[1] - box[0] + 1, ranges), ranges)
            if box is None or not whole or not part or used & names:
                raise refuse(self, f"{producer.name} is not proved to write each element of {producer.buffer} once")
            used |= names
            out.append(box)
        if {x.var for x in lead} - used:
            raise refuse(self, f"{producer.name} is not proved to write each element of {producer.buffer} once")
        return out

    def _wanted(
        self, block: Block, source: str, written: Sequence[Bounds], shape: Sequence[IntExpr], ranges: Ranges
    ) -> dict[str, Region]:
        """For each axis of the block, the interval whose reads lie in the written box."""
        reads = {x.indices for x in loads_of(block) if x.buffer == source}
        if len(reads) != 1:
            raise refuse(self, f"expected to read {source} at one place, got {len(reads)}")
        (indices,) = reads
        extents = {a.name: a.extent for a in block.axes}
        points: Ranges = {a.name: loop_range(a.extent) for a in block.axes}
        for i, d in zip(indices, shape, strict=True):
            box = bounds(i, list(extents), points)
            if box is None or not is_nonneg(box[0], {}) or not is_nonneg(d - 1 - box[1], {}):
                raise refuse(self, f"{source}[{', '.join(map(str, indices))}] is not proved to lie inside {source}")
        lead = {n for low, high in written for n in low.free_vars() | high.free_vars()} & ranges.keys()
        ends = _solve(indices, extents, written, lead, ranges)
        if ends is None:
            raise refuse(self, f"cannot tell which reads of {source}[{', '.join(map(str, indices))}] are ready")
        return {a: clipped(*ends.get(a, (extent * 0, extent - 1)), extent, ranges) for a, extent in extents.items()}


def _solve(
    indices: Sequence[IntExpr],
    extents: Mapping[str, IntExpr],
    box: Sequence[Bounds],
    lead: set[str],
    ranges: Ranges,
) -> dict[str, Bounds] | None:
    """The intervals of the axes for which ``indices`` lie in ``box``: for ``a + c``, and ``a // d`` with ``a % d``."""
    ends: dict[str, Bounds] = {}
    parts: dict[tuple[str, IntExpr], dict[type, Bounds]] = {}
    for i, (low, high) in zip(indices, box, strict=True):
        used = i.free_vars() & extents.keys()
        if not used:
            if (low.free_vars() | high.free_vars()) & lead:
                return None
            continue
        atom = next(iter(i.atoms()))
        axis = next(iter(used))
        if len(used) == 1 and not (i - var(axis)).free_vars() & extents.keys() and axis not in ends:
            rest = i - var(axis)
            ends[axis] = low - rest, high - rest
        elif isinstance(atom, (FloorDiv, Mod)) and i == of_atom(atom) and as_var(atom.args[0]) == axis:
            parts.setdefault((axis, atom.args[1]), {})[type(atom)] = low, high
        else:
            return None
    for (axis, d), found in parts.items():
        if axis in ends or FloorDiv not in found:
            return None
        low, high = found[FloorDiv]
        first, last = found.get(Mod, (d * 0, d - 1))
        whole = first == 0 and same(last, d - 1, ranges)
        if not whole and not same(low, high, ranges):
            return None
        ends[axis] = low * d + first, high * d + last
    return ends
