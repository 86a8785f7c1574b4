"""The terms and the result of an Lp norm."""

from __future__ import annotations

from tilewright.tensor_ir.compute import Val, op


def power(v: Val, p: int) -> Val:
    """The term of ``v`` in the sum of an Lp norm."""
    if p == 2:
        return v * v
    return op("abs", v) if p == 1 else op("pow", op("abs", v), float(p))


def root(v: Val, p: int) -> Val:
    """The Lp norm from its sum."""
    if p == 2:
        return op("sqrt", v)
    return v if p == 1 else op("pow", v, 1.0 / p)
