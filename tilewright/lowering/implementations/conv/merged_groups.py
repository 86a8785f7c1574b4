"""Narrow groups computed as one whose weight has zeros between them: as many as fill the vector of one."""

from __future__ import annotations

import dataclasses

from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import ConvShape, computed_type, conv_shape, padded_input, with_bias
from tilewright.lowering.geometry.conv_weight import conv_weight
from tilewright.lowering.geometry.grouped_conv import groups_in_a_vector, side_by_side
from tilewright.lowering.implementations.conv.cost import lanes_of, plain_cost, useful_lanes
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.tensor_ir.compute import Tensor

_SIDE_BY_SIDE = 0.95
"""The share of the time that it takes where the results lie in a vector as the output has them."""


def _beside(facts: NodeFacts) -> int:
    shape = conv_shape(facts)
    narrow = shape.per_group.value()
    return groups_in_a_vector(narrow, shape.groups, lanes_of(facts)) if narrow else 1


def _merged(facts: NodeFacts) -> ConvShape:
    shape = conv_shape(facts)
    return dataclasses.replace(shape, groups=shape.groups // _beside(facts))


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, dtype, w, beside = _merged(ctx), computed_type(ctx), ctx.input(1), _beside(ctx)
    read = padded_input(ctx, shape, dtype)
    weight = conv_weight(
        ctx, shape, dtype, lambda a: side_by_side(a, shape.groups, beside), f"oihw_{beside}",
        lambda oc, ic, k: w[(oc, ic, *k)],
    )  # fmt: skip
    return with_bias(ctx, shape, sums(ctx, shape, dtype, read, weight))


def _applies(facts: NodeFacts) -> str | None:
    if facts.constants[1] is None:
        return "the weight is not constant"
    return None if _beside(facts) > 1 else "no two groups fit in a vector"


def _time(facts: NodeFacts) -> float:
    return _SIDE_BY_SIDE * plain_cost(facts) / useful_lanes(facts)


MERGED_GROUPS = by_pixels_and_rows("Conv", "merged_groups", _lower, _time, _merged, _applies, spreads=True)
