"""blockize: make a loop nest a unit that later steps leave alone."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt, require_no_threads
from tilewright.tensor_ir.ir import Func, Loop, walk


@dataclass(frozen=True, slots=True)
class Blockize(Primitive):
    """Mark a loop as opaque: with all that it holds it is one step of the loops around it.

    The loops around it are split, reordered, spread over threads and so on as before. No step names a loop or block in
    it, and none changes what is computed in it; ``tensorize`` may replace it as a whole.

    Rewrite:
        for i in N: for j in 8: S[i, j]
        --> blockize("j")
        for i in N: opaque for j in 8: S[i, j]

    Keeps: everything.
    Refuses:
        - the loop is not there
        - the loop is not serial
        - a parallel loop stands inside
        - an opaque loop stands inside
    Cost: none.
    """

    name: ClassVar[str] = "blockize"
    loop: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        if loop.kind != "serial":
            raise refuse(self, f"expected a serial loop, got a {loop.kind} one")
        for s in walk(loop.body):
            if isinstance(s, Loop) and s.kind == "opaque":
                raise refuse(self, f"loop {s.var} inside is opaque already")
        require_no_threads(self, loop)
        return replace_stmt(func, loop, dataclasses.replace(loop, kind="opaque"))
