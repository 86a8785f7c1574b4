"""unroll: mark a loop to be written out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import upper_bound
from tilewright.schedule.base import Primitive, find_nested_loop, refuse, replace_stmt, require_no_threads
from tilewright.tensor_ir.analysis.scopes import loop_ranges
from tilewright.tensor_ir.ir import Func

MAX_COPIES = 1024


@dataclass(frozen=True, slots=True)
class Unroll(Primitive):
    """Mark a loop as unrolled: code generation writes its body once for each iteration.

    Rewrite:
        for i in N: S[i]
        --> unroll("i")
        unrolled for i in N: S[i]

    Keeps: everything; a ragged extent becomes a guard for each copy.
    Refuses:
        - the loop is not there
        - the loop is not serial
        - a parallel loop stands inside
        - the extent has no constant upper bound
        - more than 1024 copies
    Cost: code size grows by the extent; loop overhead goes, and values can stay in registers.
    """

    name: ClassVar[str] = "unroll"
    loop: str

    def apply(self, func: Func) -> Func:
        loop, outer = find_nested_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        require_no_threads(self, loop)
        bound = upper_bound(loop.extent, loop_ranges(outer))
        if bound is None:
            raise refuse(self, f"expected an extent with a constant upper bound, got {loop.extent}")
        if bound > MAX_COPIES:
            raise refuse(self, f"expected at most {MAX_COPIES} copies, got {bound}")
        return replace_stmt(func, loop, dataclasses.replace(loop, kind="unrolled"))
