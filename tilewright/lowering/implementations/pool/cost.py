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

_WINDOW_APART = 11.0
"""The same of windows over several dimensions, which go through memory step by step, unless a row has a pair."""

_PAIR_APART = 1.5
"""The same of a pair along one dimension."""

_PAIR = 2

_MAXIMUM = 1.5
"""A step of a maximum there, which keeps NaN, as a ratio to one of a sum."""


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
        each = math.prod(one.kernel) * _longer(facts, one) + (_KEPT if n + 1 < len(passes) else 0.0)
        steps += assumed(sizes, _IMAGE) * each
    return steps * facts.target.costs.multiply_add_rate / facts.target.costs.operation_rate


def _longer(facts: NodeFacts, one: Windows) -> float:
    """How much longer a step of a pass takes than one whose neighbours lie side by side."""
    last = len(facts.output().shape) - 1
    if not any(d == last and s > 1 for d, s in zip(one.spatial, one.strides, strict=True)):
        return 1.0
    alone, pair = sum(n > 1 for n in one.kernel) <= 1, one.kernel[-1] <= _PAIR
    longer = _PAIR_APART if alone and pair else _APART if alone or pair else _WINDOW_APART
    return longer * (_MAXIMUM if facts.node.op == "MaxPool" else 1.0)
