"""reorder: interchange perfectly nested loops."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import blocks_in, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.ir import Func, Loop, Stmt


@dataclass(frozen=True, slots=True)
class Reorder(Primitive):
    """Put loops of one nest into the order listed, outermost first; loops not listed keep their places.

    Rewrite:
        for i in N: for k in K: for j in M: S[i, k, j]
        --> reorder(("j", "i"))
        for j in M: for k in K: for i in N: S[i, k, j]

    Keeps: every iteration, once. The steps of an associative reduction may run in another order, which for floats
        rounds differently; its initial value is still stored first. Every other dependence keeps its order.
    Refuses:
        - a loop is not there
        - fewer than two loops, or one of them twice
        - the loops are not on one path of perfectly nested loops
    - another block stands between the loops
        - a loop is parallel
        - a loop would move out of a loop whose variable its extent uses
        - a dependence would be reversed
    Cost: none by itself; strides and reuse change.
    """

    name: ClassVar[str] = "reorder"
    loops: tuple[str, ...]

    def apply(self, func: Func) -> Func:
        if len(set(self.loops)) < 2 or len(set(self.loops)) != len(self.loops):
            raise refuse(self, "expected at least two different loops")
        for v in self.loops:
            find_loop(func, v, self)
        chain, outer = self._chain(func)
        listed = iter(self.loops)
        by_name = {loop.var: loop for loop in chain}
        new = [by_name[next(listed)] if loop.var in self.loops else loop for loop in chain]
        if new == chain:
            return func
        for loop in chain:
            if loop.kind == "parallel":
                raise refuse(self, f"expected no parallel loop, but {loop.var} is; reorder first")
        for n, loop in enumerate(new):
            if used := [x.var for x in new[n + 1 :] if x.var in loop.extent.free_vars()]:
                of = ", ".join(used)
                raise refuse(self, f"{loop.var} would move out of {of}, which its extent {loop.extent} uses")
        old_order = [loop.var for loop in chain]
        new_order = [loop.var for loop in new]
        for d in carried_dependences(chain[0], old_order, loop_ranges(outer)):
            if not d.reassociates and [v for v in old_order if v in d.loops] != [v for v in new_order if v in d.loops]:
                raise refuse(self, f"would reverse a dependence: {d}, carried by {', '.join(sorted(d.loops))}")
        body: Stmt = chain[-1].body
        for loop in reversed(new):
            body = dataclasses.replace(loop, body=body)
        return replace_stmt(func, chain[0], body)

    def _chain(self, func: Func) -> tuple[list[Loop], list[Loop]]:
        """The perfect nest from the first to the last of the listed loops, and the loops around it."""
        path = max((loop_path(func, v) for v in self.loops), key=len)
        loops = loops_in(path)
        places = [n for n, loop in enumerate(loops) if loop.var in self.loops]
        if len(places) < len(self.loops):
            missing = ", ".join(sorted(set(self.loops) - {loop.var for loop in loops}))
            raise refuse(self, f"expected perfectly nested loops, but {missing} is not around {loops[-1].var}")
        chain = loops[places[0] : places[-1] + 1]
        for outer, inner in pairwise(chain):
            if outer.body is not inner:
                others = [b.name for b in blocks_in(outer.body) if b not in blocks_in(inner)]
                beside = f" ({', '.join(others)} stand{'s' * (len(others) == 1)} there, too)" if others else ""
                not_all = f"{inner.var} is not all of the body of {outer.var}{beside}"
                raise refuse(self, f"expected perfectly nested loops, but {not_all}")
        return chain, loops[: places[0]]
