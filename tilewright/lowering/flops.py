"""Arithmetic and compulsory memory traffic of a function, as expressions over its dims: what the roofline needs."""

from __future__ import annotations

from collections import Counter

from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.tensor_ir.analysis.scopes import loads_of
from tilewright.tensor_ir.ir import Block, Expr, Func, Op, walk, walk_expr
from tilewright.tensor_ir.scalar_ops import DOT_PRODUCTS, SCALAR_OPS


def func_flops(func: Func) -> IntExpr:
    """Scalar operations on floats and integers, counted as in the table of scalar operations, of the naive nest."""
    total = const(0)
    for s in walk(func.body):
        if isinstance(s, Block):
            total = total + product(a.extent for a in s.axes) * _flops(s.value)
    return total


def _flops(e: Expr) -> int:
    """The operations of a value, those that only put elements together not counted."""
    ops = [x for x in walk_expr(e) if isinstance(x, Op)]
    words = sum(_flops(a) for x in ops if x.name in DOT_PRODUCTS for a in x.args)
    return sum(SCALAR_OPS[x.name].flops for x in ops) - words


def func_product(func: Func) -> str:
    """The product of words that a function sums up, "" if it has none."""
    ops = (e.name for s in walk(func.body) if isinstance(s, Block) for e in walk_expr(s.value) if isinstance(e, Op))
    return next((name for name in ops if name in DOT_PRODUCTS), "")


def func_bytes(func: Func) -> IntExpr:
    """Bytes of all parameters."""
    total = const(0)
    for b in func.params:
        total = total + product(b.shape) * b.dtype.itemsize
    return total


def func_traffic(func: Func) -> IntExpr:
    """Bytes of the parameters that are touched: of each no more than it has, and no more than accesses to it. So of a
    table of which a few rows are gathered these rows count."""
    touched: dict[str, IntExpr] = {}
    for s in walk(func.body):
        if isinstance(s, Block):
            points = product(a.extent for a in s.axes)
            times = {s.buffer: 1} | Counter(x.buffer for x in loads_of(s))
            for name, count in times.items():
                touched[name] = touched.get(name, const(0)) + points * count
    total = const(0)
    for b in func.params:
        whole, accesses = product(b.shape), touched.get(b.name, const(0))
        total = total + (whole if is_nonneg(accesses - whole, {}) else minimum(whole, accesses)) * b.dtype.itemsize
    return total
