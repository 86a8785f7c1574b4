"""Which loops fill the registers with what they update: LLVM must not write more steps of them out, or it spills.

They get the hint ``rolled``. Of two steps both are written out: of a counter of two values LLVM makes a flag, and reads
a whole operand before it overwrites that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.codegen.prepare.map_loops import map_loops
from tilewright.core.arith.bounds import Ranges, loop_range, simplify, upper_bound
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.prefetching import prefetches
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.hints import Rolled, with_hint
from tilewright.tensor_ir.ir import Block, Buffer, Func, Loop, Seq, Stmt


def limit_unrolling(func: Func, target: Target) -> Func:
    """``func`` with the full loops that run in order kept as they are, or written out if they have two steps."""
    on_stack = {b.name: b for b in buffers(func) if b.scope == "stack"}
    fetching = prefetches(func)

    def limited(s: Loop, ranges: Ranges, lanes: bool) -> Loop:
        if s.kind not in ("serial", "opaque") or not fills_registers(s, on_stack, ranges, target):
            return s
        steps = simplify(s.extent, ranges).value()
        if steps == 2 and s.var not in fetching:
            return dataclasses.replace(s, kind="unrolled")
        return s if steps == 1 else dataclasses.replace(s, hints=with_hint(s.hints, Rolled()))

    return map_loops(func, limited)


def fills_registers(loop: Loop, locals_: Mapping[str, Buffer], ranges: Ranges, target: Target) -> bool:
    """True if a step of ``loop`` updates so many vectors of local buffers that no register is left for another step.

    False where there are other loops inside, of more than one step. ``ranges``: of the loops around.
    """
    count = _vectors(loop.body, locals_, {**ranges, loop.var: loop_range(loop.extent)}, target, 1, 1)
    return count is not None and count >= target.full_registers


def _vectors(
    s: Stmt, locals_: Mapping[str, Buffer], ranges: Ranges, target: Target, copies: int, lanes: int
) -> int | None:
    """Vectors of ``locals_`` that ``s`` stores, ``copies`` times in ``lanes``; None if it has a loop of its own."""
    if isinstance(s, Loop):
        extent = upper_bound(s.extent, ranges)
        if extent is None or (extent > 1 and s.kind not in ("unrolled", "vectorized")):
            return None
        wider = (copies, lanes * extent) if s.kind == "vectorized" else (copies * extent, lanes)
        return _vectors(s.body, locals_, {**ranges, s.var: loop_range(s.extent)}, target, *wider)
    if isinstance(s, Seq):
        parts = [_vectors(c, locals_, ranges, target, copies, lanes) for c in s.stmts]
        return None if None in parts else sum(p for p in parts if p is not None)
    if isinstance(s, Block) and s.buffer in locals_:
        return copies * -(-lanes // target.lanes(locals_[s.buffer].dtype.itemsize))
    return 0 if isinstance(s, Block) else None
