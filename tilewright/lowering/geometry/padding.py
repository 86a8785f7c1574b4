"""Padding that a node asks for by rule, as expressions over the sizes of its image."""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.minmax import maximum


def halves(total: IntExpr, more_behind: bool) -> tuple[IntExpr, IntExpr]:
    """What is padded before and behind an axis for ``total`` in all, nothing where that is negative. An odd element is
    ``more_behind`` or before."""
    total = maximum(total, 0)
    small, large = total // 2, total - total // 2
    return (small, large) if more_behind else (large, small)
