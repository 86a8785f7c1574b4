"""fuse: perfectly nested loops become one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from tilewright.core.arith.bounds import loop_range, upper_bound
from tilewright.core.arith.expr import ZERO, IntExpr, product, var
from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt, simplify_stmt, substitute_stmt
from tilewright.tensor_ir.analysis.scopes import blocks_in, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.empty_reductions import may_be_empty, reduce_vars
from tilewright.tensor_ir.ir import Block, Func, Loop
from tilewright.tensor_ir.names import fresh_name


@dataclass(frozen=True, slots=True)
class Fuse(Primitive):
    """Join loops, listed outermost first, into one that runs over all their points.

    Rewrite:
        for i in N: for j in M: S[i, j]
        --> fuse(("i", "j"))
        for i_j_f in N*M: S[i_j_f // M, i_j_f % M]

    Keeps: every iteration, once, in the same order. Annotations of the outermost loop stay.
    Refuses:
        - a loop is not there
        - fewer than two loops
        - the loops are not perfectly nested in the order listed
        - the extent of one uses the variable of another
        - a loop is not serial
        - a spatial loop would join a loop of a reduction that may be empty
        - a loop runs once or not at all, as loops around it say (its variable is what keeps indices in range)
    Cost: a division and a remainder for each use of the old variables, unless a later split undoes them.
    """

    name: ClassVar[str] = "fuse"
    loops: tuple[str, ...]

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        return (self._name(func),)

    def apply(self, func: Func) -> Func:
        if len(self.loops) < 2:
            raise refuse(self, f"expected at least two loops, got {len(self.loops)}")
        nest = [find_loop(func, v, self) for v in self.loops]
        for outer, inner in pairwise(nest):
            if outer.body is not inner:
                not_all = f"{inner.var} is not all of the body of {outer.var}"
                raise refuse(self, f"expected perfectly nested loops, but {not_all}")
        listed = set(self.loops)
        for loop in nest:
            if used := sorted(loop.extent.free_vars() & listed):
                raise refuse(self, f"expected rectangular loops, but the extent of {loop.var} uses {', '.join(used)}")
            if loop.kind != "serial":
                raise refuse(self, f"expected serial loops, but {loop.var} is {loop.kind}")
        for block in blocks_in(nest[-1].body):
            if block.init is not None and may_be_empty(block) and reduce_vars(block) & listed:
                others = sorted(_other_vars(block) & listed)
                if others:
                    raise refuse(self, f"reduction {block.name} may be empty, and {others[0]} is not one of its steps")
        ranges = loop_ranges(loops_in(loop_path(func, nest[0].var))[:-1])
        for loop in nest:
            if not loop.extent.free_vars().isdisjoint(ranges) and upper_bound(loop.extent, ranges) == 1:
                raise refuse(self, f"expected loops of several steps, but {loop.var} has one or none: {loop.extent}")
        name = self._name(func)
        env: dict[str, IntExpr] = {loop.var: ZERO for loop in nest if loop.extent == 1}
        counting = [loop for loop in nest if loop.extent != 1]
        rest = var(name)
        for loop in reversed(counting[1:]):
            env[loop.var] = rest % loop.extent if loop.extent != 0 else rest
            rest = rest // loop.extent if loop.extent != 0 else rest
        if counting:
            env[counting[0].var] = rest
        extent = product(loop.extent for loop in nest)
        if extent == 0:  # nothing runs: any index below an extent of 0 will do
            env = {loop.var: var(name) for loop in nest}
        ranges[name] = loop_range(extent)
        body = simplify_stmt(substitute_stmt(nest[-1].body, env), ranges)
        return replace_stmt(func, nest[0], Loop(name, extent, body, "serial", nest[0].hints))

    def _name(self, func: Func) -> str:
        return fresh_name(func, "_".join((*self.loops, "f")))


def _other_vars(block: Block) -> frozenset[str]:
    """The loops that axes other than reduce axes are bound to."""
    pairs = zip(block.axes, block.bindings, strict=True)
    return frozenset().union(*(b.free_vars() for a, b in pairs if a.kind != "reduce"))
