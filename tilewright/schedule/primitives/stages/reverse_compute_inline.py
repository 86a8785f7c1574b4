"""reverse_compute_inline: apply an elementwise consumer where its input is produced."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, loop_range
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod, as_var, of_atom
from tilewright.schedule.base import Primitive, refuse, replace_stmt, simplify_expr
from tilewright.schedule.stage_motion import (
    alloc_of,
    block_and_path,
    drop_alloc,
    map_statements,
    plain_axes,
    require_no_guard,
    require_only_writer,
    sites,
)
from tilewright.tensor_ir.analysis.scopes import loads_of
from tilewright.tensor_ir.analysis.sweeps import same
from tilewright.tensor_ir.ir import Alloc, Block, Expr, Func, Load, Stmt, substitute_expr, walk_index
from tilewright.tensor_ir.loads import map_index_loads, map_loads


@dataclass(frozen=True, slots=True)
class ReverseComputeInline(Primitive):
    """Apply an elementwise stage to its input where that is produced; the stage's nest and its input's buffer go.

    Rewrite:
        for i in N: B[i] = f(A[i])
        for i in N: C[i] = g(B[i])
        --> reverse_compute_inline("C")
        for i in N: C[i] = g(f(A[i]))

    Keeps: every value, bit for bit; the producer's loops and its name.
    Refuses:
        - the block is not there
        - an axis of the block is a reduction or ordered
        - the block reads no intermediate buffer, or several
        - the block reads its own buffer, or another statement writes that
        - the block or its producer stands under a guard
        - another statement reads the input
        - the producer is not the only writer of the input
        - the producer is a reduction or ordered, or its store indices are not its axes
        - the block reads the input at several places, or not at each element once
        - another input is not complete before the producer
        - the result is used between the producer and the block
        - a buffer of the block is not allocated at the producer
    Cost: none; saves the input's memory traffic.
    """

    name: ClassVar[str] = "reverse_compute_inline"
    block: str

    def apply(self, func: Func) -> Func:
        block, path = block_and_path(self, func, self.block)
        self._require_elementwise(func, block)
        source = self._source(func, block)
        producer = self._producer(func, source)
        _, producer_path = block_and_path(self, func, producer.name)
        require_no_guard(self, (*path, *producer_path))
        self._require_order(func, block, producer, source, producer_path)
        env = self._inverse(block, producer, source)
        ranges: Ranges = {a.name: loop_range(a.extent) for a in producer.axes}

        def value_at(x: Load) -> Expr:
            return producer.value if x.buffer == source else x

        # loads of the input all stand for the one element that the producer computes
        value = map_loads(substitute_expr(block.value, env), value_at)
        new = dataclasses.replace(
            producer,
            buffer=block.buffer,
            indices=tuple(map_index_loads(i.substitute(env), value_at) for i in block.indices),
            value=simplify_expr(value, ranges),
        )
        changes: dict[int, Stmt] = {id(producer): new}
        func = replace_stmt(func, block, None)
        return drop_alloc(dataclasses.replace(func, body=map_statements(func.body, changes)), source)

    def _require_elementwise(self, func: Func, block: Block) -> None:
        for a in block.axes:
            if a.kind != "spatial":
                raise refuse(self, f"expected spatial axes only, got the {a.kind} axis {a.name}")
        if any(x.buffer == block.buffer for x in loads_of(block)):
            raise refuse(self, f"the block reads its own buffer {block.buffer}")
        require_only_writer(self, func, block, block.buffer)

    def _source(self, func: Func, block: Block) -> str:
        inputs = sorted({x.buffer for x in loads_of(block)})
        found = [b for b in inputs if alloc_of(func, b) is not None]
        if len(found) != 1:
            raise refuse(self, f"expected to read one intermediate buffer, got {', '.join(found) or 'none'}")
        return found[0]

    def _producer(self, func: Func, source: str) -> Block:
        readers = [s for s in sites(func.body) if s.reads(source)]
        writers = [s for s in sites(func.body) if s.written == source]
        if len(writers) != 1 or not isinstance(writers[0].stmt, Block):
            found = ", ".join(w.label for w in writers) or "none"
            raise refuse(self, f"expected one block that writes {source}, got {found}")
        producer = writers[0].stmt
        for a in producer.axes:
            if a.kind != "spatial":
                raise refuse(self, f"expected spatial axes only in {producer.name}, got the {a.kind} axis {a.name}")
        for r in readers:
            if not (isinstance(r.stmt, Block) and r.stmt.name == self.block):
                raise refuse(self, f"expected no other reader of {source}, but {r.label} reads it")
        return producer

    def _require_order(
        self, func: Func, block: Block, producer: Block, source: str, producer_path: tuple[Stmt, ...]
    ) -> None:
        inputs = {x.buffer for x in loads_of(block)} - {source}
        after = False
        before_block = True
        for s in sites(func.body):
            if s.stmt is block:
                before_block = False
                continue
            if after and s.written in inputs:
                raise refuse(self, f"{s.label} writes {s.written}, which the block reads, after {producer.name}")
            if after and before_block and s.reads(block.buffer):
                raise refuse(self, f"{s.label} reads {block.buffer} between {producer.name} and the block")
            after = after or s.stmt is producer
        if not after or before_block:
            raise refuse(self, f"expected {producer.name} before the block")
        for name in sorted(inputs | {block.buffer}):
            alloc = alloc_of(func, name)
            if isinstance(alloc, Alloc) and not any(alloc is s for s in producer_path):
                raise refuse(self, f"{name} is not allocated at {producer.name}")

    def _inverse(self, block: Block, producer: Block, source: str) -> dict[str, IntExpr]:
        """The block's axes as expressions of the producer's, when the read element runs over all elements once."""
        reads = {x.indices for x in loads_of(block) if x.buffer == source}
        if len(reads) > 1:
            raise refuse(self, f"expected to read {source} at one place, got {len(reads)}")
        if any(isinstance(x, Load) and x.buffer == source for i in block.bindings for x in walk_index(i)):
            raise refuse(self, f"a binding reads {source}")
        axes = plain_axes(producer)
        if axes is None or {a.name for a in producer.axes} != set(axes) - {None}:
            raise refuse(self, f"expected store indices of {producer.name} that are its axes, each once")
        env = _invert(next(iter(reads)), block, producer)
        if env is None or set(env) != {a.name for a in block.axes}:
            shown = ", ".join(map(str, next(iter(reads))))
            raise refuse(self, f"expected to read each element of {source} once, got {source}[{shown}]")
        return env


def _invert(indices: tuple[IntExpr, ...], block: Block, producer: Block) -> dict[str, IntExpr] | None:
    """Solve ``indices == producer.indices`` for the block's axes over equal domains; None if that is not proved."""
    extents = {a.name: a.extent for a in block.axes}
    made = {a.name: a.extent for a in producer.axes}
    env: dict[str, IntExpr] = {}
    quotients: dict[str, tuple[IntExpr, IntExpr, IntExpr]] = {}
    remainders: dict[str, tuple[IntExpr, IntExpr, IntExpr]] = {}
    for read, written in zip(indices, producer.indices, strict=True):
        target = as_var(written)
        size = made[target] if target is not None else None
        axis = as_var(read)
        if read.is_const or axis is None or axis not in extents:
            if read == written or (read == 0 and size == 1):
                continue
            atom = next(iter(read.atoms()), None)
            if size is None or not isinstance(atom, (FloorDiv, Mod)) or read != of_atom(atom):
                return None
            name, found = as_var(atom.args[0]), (quotients if isinstance(atom, FloorDiv) else remainders)
            if name is None or name in found:
                return None
            found[name] = (atom.args[1], written, size)
            continue
        if axis in env or not same(extents[axis], size if size is not None else extents[axis] * 0 + 1, {}):
            return None
        env[axis] = written
    if quotients.keys() != remainders.keys():
        return None
    for name, (d, high, size) in quotients.items():
        d2, low, low_size = remainders[name]
        if d != d2 or low_size != d or name in env or not same(extents[name], size * d, {}):
            return None
        env[name] = high * d + low
    return env
