"""Which loops fill the registers with what they update: LLVM must not write more steps of them out, or it spills."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.bounds import Ranges, loop_range, upper_bound
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Block, Buffer, Loop, Seq, Stmt


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
