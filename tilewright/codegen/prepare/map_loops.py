"""Rewriting the loops of a function, outermost first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tilewright.core.arith.bounds import Ranges, loop_range
from tilewright.tensor_ir.analysis.intrinsic_match import intrinsic_of
from tilewright.tensor_ir.hints import Interleaved, Joined, find_hint
from tilewright.tensor_ir.ir import Func, Loop, Stmt, map_children, with_body


def map_loops(func: Func, f: Callable[[Loop, Ranges, bool], Loop]) -> Func:
    """``func`` with ``f(loop, ranges, lanes)`` in place of each loop. ``ranges``: of the variables of the loops around;
    ``lanes``: it is inside a vectorized loop. Nests of intrinsics, joined and interleaved ones are units."""

    def visit(s: Stmt, ranges: Ranges, lanes: bool) -> Stmt:
        if not isinstance(s, Loop):
            return map_children(s, lambda c: visit(c, ranges, lanes))
        if intrinsic_of(s) is not None:
            return s
        s = f(s, ranges, lanes)
        if find_hint(s.hints, Joined) is not None or find_hint(s.hints, Interleaved) is not None:
            return s
        inside = lanes or (s.kind == "vectorized" and s.extent != 1)
        return with_body(s, visit(s.body, {**ranges, s.var: loop_range(s.extent)}, inside))

    body = visit(func.body, {}, False)
    return func if body is func.body else dataclasses.replace(func, body=body)
