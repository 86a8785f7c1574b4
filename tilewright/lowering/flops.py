"""Arithmetic and compulsory memory traffic of a function, as expressions over its dims: what the roofline needs."""

from __future__ import annotations

from tilewright.core.intexpr import IntExpr, const, product
from tilewright.tensor_ir.ir import Block, Func, Op, walk, walk_expr
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS


def func_flops(func: Func) -> IntExpr:
    """Scalar operations on floats and integers, counted as in the table of scalar operations, of the naive nest."""
    total = const(0)
    for s in walk(func.body):
        if isinstance(s, Block):
            ops = sum(SCALAR_OPS[e.name].flops for e in walk_expr(s.value) if isinstance(e, Op))
            total = total + product(a.extent for a in s.axes) * ops
    return total


def func_bytes(func: Func) -> IntExpr:
    """Bytes of all parameters: each is read or written at least once."""
    total = const(0)
    for b in func.params:
        total = total + product(b.shape) * b.dtype.itemsize
    return total
