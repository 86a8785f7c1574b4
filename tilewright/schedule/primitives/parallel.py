"""parallel: spread the iterations of an outermost loop over threads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import blocks_in, loop_path
from tilewright.tensor_ir.ir import Alloc, Func, Seq


@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Mark an outermost loop as parallel: its iterations are spread over the threads of the team.

    Rewrite:
        for i in N: S[i]
        --> parallel("i")
        parallel for i in N: S[i]

    Keeps: every value; no two iterations touch one element of which one stores it.
    Refuses:
        - the loop is not there
        - the loop is not serial
        - the loop is not at the root
        - a local buffer is allocated around the loop
        - the loop is a reduce axis or an ordered axis
        - the loop carries a dependence
    Cost: handing the loop to the team, a microsecond; worth it above some ten microseconds of work.
    """

    name: ClassVar[str] = "parallel"
    loop: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        around = loop_path(func, self.loop)[:-1]
        for s in around:
            if not isinstance(s, (Seq, Alloc)):
                raise refuse(self, f"expected a loop at the root, got one inside {getattr(s, 'var', 'a guard')}")
            if isinstance(s, Alloc) and s.buffer.scope == "local":
                raise refuse(self, f"local buffer {s.buffer.name}, private to one thread, is allocated around the loop")
        for b in blocks_in(loop.body):
            driven = [a for a, e in zip(b.axes, b.bindings, strict=True) if self.loop in e.free_vars()]
            if driven and all(a.kind != "spatial" for a in driven):
                raise refuse(self, f"{driven[0].kind} axis {driven[0].name} of block {b.name} runs with this loop")
        for d in carried_dependences(loop, (self.loop,), {}):
            raise refuse(self, f"the loop carries a dependence: {d}")
        return replace_stmt(func, loop, dataclasses.replace(loop, kind="parallel"))
