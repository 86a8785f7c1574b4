"""What lowers every operator: the literal merge of the families of rules, and of the operators with several
implementations. One that is not here has no native code."""

from __future__ import annotations

from tilewright.lowering.context import Rule
from tilewright.lowering.formulas import (
    attention,
    broadcast,
    einsum,
    elementwise,
    gather,
    generate,
    normalize,
    pad,
    pool,
    quantize,
    recurrent,
    reduce,
    scatter,
    shape,
    softmax,
)
from tilewright.lowering.formulas.images import deform_conv, grid_sample, resize, vision
from tilewright.lowering.formulas.signals import spectral, windows
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.table import IMPLEMENTATIONS

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **broadcast.RULES,
    **shape.RULES,
    **pad.RULES,
    **gather.RULES,
    **generate.RULES,
    **scatter.RULES,
    **reduce.RULES,
    **softmax.RULES,
    **normalize.RULES,
    **pool.RULES,
    **resize.RULES,
    **attention.RULES,
    **vision.RULES,
    **windows.RULES,
    **grid_sample.RULES,
    **quantize.RULES,
    **einsum.RULES,
    **spectral.RULES,
    **deform_conv.RULES,
    **recurrent.RULES,
}


def only(op: str, rule: Rule) -> tuple[Implementation, ...]:
    """The implementations of an operator that is computed in one way."""
    return (Implementation(op, "only", rule, lambda facts: 0.0),)


TABLE: dict[str, tuple[Implementation, ...]] = {**{op: only(op, r) for op, r in RULES.items()}, **IMPLEMENTATIONS}
"""What can compute a node, by operator."""
