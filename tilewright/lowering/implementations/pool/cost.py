"""What the implementations of pooling are estimated to cost, in multiply-adds that fill a vector."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.windows import Windows
from tilewright.lowering.implementations.base import assumed

_IMAGE = 224
"""What a symbolic size counts as."""

_KEPT = 3.5
"""What an element costs that one pass writes and the next one reads, as a ratio to a step of a window."""

_APART = 3.0
"""How much longer a step takes whose neighbours do not lie side by side, as along an innermost axis with strides."""


def cost_of_sweep(facts: NodeFacts) -> float:
    """The time of an operation on each element of the operand."""
    costs = facts.target.costs
    return assumed(facts.input_shape(0), _IMAGE) * costs.multiply_add_rate / costs.operation_rate


def cost_of_passes(facts: NodeFacts, w: Windows, passes: Sequence[Sequence[int]]) -> float:
    """The time of reducing over some of the spatial dimensions after others."""
    sizes, out, steps = list(facts.input_shape(0)), facts.output().shape, 0.0
    for n, which in enumerate(passes):
        for k in which:
            sizes[w.spatial[k]] = out[w.spatial[k]]
        one = w.along(which)
        apart = any(d == len(out) - 1 and s > 1 for d, s in zip(one.spatial, one.strides, strict=True))
        each = math.prod(one.kernel) * (_APART if apart else 1.0) + (_KEPT if n + 1 < len(passes) else 0.0)
        steps += assumed(sizes, _IMAGE) * each
    return steps * facts.target.costs.multiply_add_rate / facts.target.costs.operation_rate
