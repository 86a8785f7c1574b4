"""The converter table: (domain, operator) -> rules by version."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.frontend.ops import (
    arithmetic,
    contrib,
    normalization,
    packed_weights,
    pooling,
    qlinear,
    qlstm,
    qproducts,
    reduction,
    resize,
    shapes,
    signal,
)
from tilewright.frontend.ops.rule import Rule
from tilewright.frontend.ops.transformers import bert, group_query, multi_head, norms, rotary

CONVERTERS: Mapping[tuple[str, str], tuple[Rule, ...]] = {
    **{("", op): rules for op, rules in arithmetic.RULES.items()},
    **{("", op): rules for op, rules in normalization.RULES.items()},
    **{("", op): rules for op, rules in pooling.RULES.items()},
    **{("", op): rules for op, rules in reduction.RULES.items()},
    **{("", op): rules for op, rules in resize.RULES.items()},
    **{("", op): rules for op, rules in shapes.RULES.items()},
    **{("", op): rules for op, rules in signal.RULES.items()},
    **{("", op): rules for op, rules in norms.STANDARD.items()},
    **{("", op): rules for op, rules in rotary.STANDARD.items()},
    **{("com.microsoft", op): rules for op, rules in bert.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in contrib.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in group_query.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in multi_head.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in norms.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in rotary.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in packed_weights.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in qlinear.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in qlstm.RULES.items()},
    **{("com.microsoft", op): rules for op, rules in qproducts.RULES.items()},
}


def find_rule(op: str, domain: str, version: int) -> Rule | None:
    """The rule for an operator at an opset version, or None if its form there is the newest."""
    for rule in CONVERTERS.get((domain, op), ()):
        if rule.since <= version and (rule.until is None or version <= rule.until):
            return rule
    return None
