"""When threads share a parallel loop: how much there is to do may be known only when the sizes are.

A parallel loop with the hint ``if_=E``, an expression in the function's dimensions, is shared where ``E > 0``;
elsewhere the thread that runs the function runs the loop alone, because to hand it out would cost more. Without the
hint a parallel loop is always shared. The results are the same.
"""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr
from tilewright.tensor_ir.hints import ParallelIf, find_hint
from tilewright.tensor_ir.ir import Func, Loop


def parallel_condition(func: Func, loop: Loop) -> IntExpr | None:
    """The expression that decides whether threads share ``loop``; None if they always do."""
    hint = find_hint(loop.hints, ParallelIf)
    return hint.condition if hint is not None and hint.condition.free_vars() <= set(func.dims) else None
