"""parallel: spread the iterations of an outermost loop, or of one in each step of a recurrence, over threads."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import (
    blocks_in,
    loop_path,
    loop_ranges,
    loops_in,
    parallel_loops_in,
    runs_in_order,
)
from tilewright.tensor_ir.ir import Alloc, Func, Loop, Seq, Stmt


@dataclass(frozen=True, slots=True)
class Parallel(Primitive):
    """Mark a loop as parallel: its iterations are spread over the threads of the pool.

    The loop is outermost, or the loops around it are those of a recurrence, which run in order: then the threads meet
    in each of their iterations.

    Rewrite:
        for i in N: S[i]
        --> parallel("i")
        parallel for i in N: S[i]

    Keeps: every value; no two iterations touch one element of which one stores it.
    Refuses:
        - the loop is not there
        - the loop is not serial
        - the loop is inside one that is neither a step of a recurrence nor of one iteration
        - the loop is inside a parallel loop or around one
        - a local buffer is allocated around the loop
        - the loop is a reduce axis or an ordered axis
        - the loop carries a dependence
    Cost: handing the loop to the pool, a microsecond; worth it above some ten microseconds of work.
    """

    name: ClassVar[str] = "parallel"
    loop: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        around = loop_path(func, self.loop)[:-1]
        nested = [*(x for x in loops_in(around) if x.kind == "parallel"), *parallel_loops_in(loop.body)]
        if nested:
            raise refuse(self, f"loop {nested[0].var} is parallel already, and one of them is inside the other")
        for s in around:
            if not isinstance(s, (Seq, Alloc)) and not _is_step(s):
                inside = getattr(s, "var", "a guard")
                raise refuse(self, f"expected a loop at the root or in a step of a recurrence, got one inside {inside}")
            if isinstance(s, Alloc) and s.buffer.scope == "local":
                raise refuse(self, f"local buffer {s.buffer.name}, private to one thread, is allocated around the loop")
        for b in blocks_in(loop.body):
            driven = [a for a, e in zip(b.axes, b.bindings, strict=True) if self.loop in e.free_vars()]
            if driven and all(a.kind != "spatial" for a in driven):
                raise refuse(self, f"{driven[0].kind} axis {driven[0].name} of block {b.name} runs with this loop")
        for d in carried_dependences(loop, (self.loop,), loop_ranges(loops_in(around))):
            raise refuse(self, f"the loop carries a dependence: {d}")
        return replace_stmt(func, loop, dataclasses.replace(loop, kind="parallel"))


def _is_step(s: Stmt) -> bool:
    """True for a serial loop that must run in order, or only once."""
    return isinstance(s, Loop) and s.kind == "serial" and (s.extent == 1 or runs_in_order(s))
