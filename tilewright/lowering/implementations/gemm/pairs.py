"""Products of bfloat16 matrices two steps at a time: ``acc[row, no, ni] += dot2(A2[row, q], B2[no, q, ni])``.

Sums are float32. A is read in pairs where it lies so, else a stage collects them; B is packed at build time.
``dot_product_tiles`` makes the sums in matrix tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.product import left_operand, product_result, product_sizes
from tilewright.lowering.geometry.word_sums import tile_word_sums, word_sums
from tilewright.lowering.geometry.words import PAIRS
from tilewright.lowering.implementations.conv.pairs import refusal
from tilewright.lowering.implementations.gemm.cost import cost_by_row
from tilewright.lowering.implementations.tiles import products
from tilewright.machine.vectors import share_of_pairs
from tilewright.tensor_ir.compute import Tensor, Val, op


def _lower(tiles: bool, by_rows: bool, ctx: LowerContext) -> tuple[Tensor, ...]:
    read = left_operand(ctx)

    def bits(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return op("bits", read(bi, row, depth))

    def elements(w: np.ndarray) -> np.ndarray:
        return w.view(np.uint16)

    sums = tile_word_sums if tiles else word_sums
    return product_result(ctx, sums(ctx, PAIRS, bits, True, elements, "pairs", by_rows))


def _applies(facts: NodeFacts) -> str | None:
    return refusal(facts) or (None if product_sizes(facts).constant_b else "the second operand is no constant matrix")


def _cost(facts: NodeFacts) -> float:
    return cost_by_row(facts, share_of_pairs(facts.target), weight_size=0.5)


DOT_PRODUCTS = products("MatMul", PAIRS, _lower, _cost, _applies)
