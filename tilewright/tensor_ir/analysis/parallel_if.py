"""When threads share a parallel loop: how much there is to do may be known only when the sizes are.

A parallel loop annotated ``worth: E``, an expression in the function's dimensions, is shared where ``E > 0``; elsewhere
the thread that runs the function runs the loop alone, because to hand it out would cost more. Without the annotation a
parallel loop is always shared. The results are the same.
"""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.parse import parse
from tilewright.tensor_ir.ir import Func, Loop

KEY = "worth"
"""What tuning logs have called the annotation since version 1."""


def parallel_condition(func: Func, loop: Loop) -> IntExpr | None:
    """The expression that decides whether threads share ``loop``; None if they always do."""
    text = dict(loop.annotations).get(KEY)
    if text is None:
        return None
    condition = parse(text)
    return condition if condition.free_vars() <= set(func.dims) else None
