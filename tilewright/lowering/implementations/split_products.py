"""Products of float32 in matrix tiles of bfloat16, both operands sums of two such numbers: three products of them.

They are 2^-17 or so off, where float32 is 2^-24: only nodes that have the attribute :data:`ATTRIBUTE` are computed so
(``precision="bf16x3"``). A stage splits the left operand where it puts it into blocks or copies the image, the weight
is split when it is packed (:mod:`tilewright.lowering.geometry.split_pairs`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.io.stored import cast_elements
from tilewright.graph_ir.fused.fuse_pointwise_depthwise import HALO
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import conv_shape, transposed_shape, with_bias
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.geometry.split_pairs import SPLIT
from tilewright.lowering.geometry.word_sums import tile_word_sums
from tilewright.lowering.implementations import tiles
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.pairs import Operands, pair_sums
from tilewright.lowering.implementations.conv.subpixel import lower_pairs, phase_shape, phases_refusal
from tilewright.lowering.implementations.conv.tiles import Count, Fold, in_tiles
from tilewright.lowering.implementations.gemm.by_rows import open_rows_refusal
from tilewright.tensor_ir.compute import Tensor

ATTRIBUTE = "split_operands"
"""Of a node whose operands may be rounded to two bfloat16 numbers each: 1."""

FAMILY = "split"
_ERROR = 1e-5
"""Of a channel's root mean square: what was measured is half of it."""


def _same(w: np.ndarray) -> np.ndarray:
    return w


_OPERANDS = Operands(SPLIT, dtypes.float32, lambda v: v, _same)


def _lower_matmul(by_rows: bool, ctx: LowerContext) -> tuple[Tensor, ...]:
    return product_result(ctx, tile_word_sums(ctx, SPLIT, left_operand(ctx), False, _same, "split", by_rows))


def _lower_conv(sums: Sums, ctx: LowerContext, count: Count, fold: Fold) -> tuple[Tensor, ...]:
    shape = conv_shape(ctx)
    return with_bias(ctx, shape, pair_sums(ctx, sums, shape, fold, count, _same, "split", _OPERANDS))


def _transposed_refusal(facts: NodeFacts) -> str | None:
    return _refusal(facts) or phases_refusal(facts)


def _refusal(facts: NodeFacts) -> str | None:
    if not facts.node.attr(ATTRIBUTE):
        return "operands that must not be rounded to two bfloat16 numbers (precision bf16x3)"
    kinds = [v.dtype for v in facts.input_values[:2] if v is not None]
    if kinds != [dtypes.float32, dtypes.float32]:
        return f"operands of type {' and '.join(map(str, kinds))}, expected float32"
    if facts.constants[1] is None:
        return "the weight is not constant"
    if any(d == 0 for d in facts.input_shape(1)):
        return "an empty weight"
    return "a border of results" if facts.attr_ints(HALO) is not None else None


def _error(facts: NodeFacts) -> float:
    """Of weights that are finite also where they are rounded."""
    weight = facts.constants[1]
    if weight is None:
        return math.inf
    most = np.max(np.abs(weight.array), keepdims=True)
    return _ERROR if np.isfinite(cast_elements(most, dtypes.bfloat16.numpy).astype(np.float32)).all() else math.inf


def _matmul_refusal(facts: NodeFacts) -> str | None:
    if (reason := _refusal(facts)) is not None:
        return reason
    if not product_sizes(facts).constant_b:
        return "the second operand is no constant matrix"
    return tiles.product_refusal(SPLIT, facts)


def _named(i: Implementation) -> Implementation:
    """A convolution's, as of this module."""
    name = i.name.replace(i.family, FAMILY)
    return dataclasses.replace(i, name=name, family=FAMILY, error=_error, spreads=True)


def _few_too(facts: NodeFacts) -> str | None:
    return _matmul_refusal(facts) or open_rows_refusal(facts)


def _matmul(name: str, by_rows: bool, applies: Callable[[NodeFacts], str | None]) -> Implementation:
    lower, cost = partial(_lower_matmul, by_rows), partial(tiles.product_cost, SPLIT)
    return Implementation("MatMul", name, lower, cost, applies, _error, FAMILY, spreads=True)


MATMUL = (
    _matmul(f"{FAMILY}_tiles_by_rows", True, _few_too),
    _matmul(f"{FAMILY}_tiles", False, _matmul_refusal),
)
CONV = tuple(map(_named, in_tiles("Conv", SPLIT, _lower_conv, _refusal)))
CONV_TRANSPOSE = tuple(
    map(
        _named,
        in_tiles(
            "ConvTranspose", SPLIT, partial(lower_pairs, _OPERANDS, "split"), _transposed_refusal,
            lambda facts: phase_shape(transposed_shape(facts)),
        ),
    )
)  # fmt: skip
