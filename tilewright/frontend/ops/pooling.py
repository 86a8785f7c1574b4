"""Pooling before opset 7."""

from __future__ import annotations

from tilewright.frontend.ops.rule import Family, Rule, rename

RULES: Family = {
    "AveragePool": (Rule(1, 6, rename("AveragePool"), ("AveragePool",)),),  # padding was never counted
}
