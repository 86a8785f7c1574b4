"""vectorize: run the iterations of a loop at once, in the lanes of vector registers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import upper_bound
from tilewright.schedule.base import Primitive, find_nested_loop, refuse, replace_stmt, require_no_threads
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import loop_ranges
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, walk

MAX_LANES = 1024


@dataclass(frozen=True, slots=True)
class Vectorize(Primitive):
    """Mark a loop as vectorized: each statement inside runs for all iterations at once, one a lane.

    Loops inside stay loops, around vector statements.

    Rewrite:
        for i in 8: S[i]
        --> vectorize("i")
        vectorized for i in 8: S[i]

    Keeps: every value; lanes at or above a ragged extent are masked off.
    Refuses:
        - the loop is not there
        - the loop is not serial
        - the extent has no constant upper bound
        - more than 1024 lanes
        - the loop is a reduce axis or an ordered axis
        - the extent of a loop inside uses the variable
        - a loop inside or outside is vectorized already
        - an opaque loop stands inside
        - a parallel loop stands inside
        - a buffer is allocated inside
        - the loop carries a dependence
    Cost: vector registers; loads and stores are contiguous only for stride 1.
    """

    name: ClassVar[str] = "vectorize"
    loop: str

    def apply(self, func: Func) -> Func:
        loop, outer = find_nested_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        require_no_threads(self, loop)
        ranges = loop_ranges(outer)
        bound = upper_bound(loop.extent, ranges)
        if bound is None:
            raise refuse(self, f"expected an extent with a constant upper bound, got {loop.extent}")
        if bound > MAX_LANES:
            raise refuse(self, f"expected at most {MAX_LANES} lanes, got {bound}")
        for x in outer:
            if x.kind == "vectorized":
                raise refuse(self, f"loop {x.var} outside is vectorized already")
        for s in walk(loop.body):
            if isinstance(s, Block):
                for a, b in zip(s.axes, s.bindings, strict=True):
                    if a.kind != "spatial" and self.loop in b.free_vars():
                        raise refuse(self, f"{a.kind} axis {a.name} of block {s.name} runs with this loop")
            elif isinstance(s, Loop):
                if self.loop in s.extent.free_vars():
                    raise refuse(self, f"the extent {s.extent} of loop {s.var} inside uses the variable")
                if s.kind == "opaque":
                    raise refuse(self, f"loop {s.var} inside is opaque; it has no lanes")
                if s.kind == "vectorized":
                    raise refuse(self, f"loop {s.var} inside is vectorized already")
            elif isinstance(s, Alloc):
                raise refuse(self, f"buffer {s.buffer.name} is allocated inside; its lanes would share it")
        for d in carried_dependences(loop, (self.loop,), ranges):
            raise refuse(self, f"the loop carries a dependence: {d}")
        return replace_stmt(func, loop, dataclasses.replace(loop, kind="vectorized"))
