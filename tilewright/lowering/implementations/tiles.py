"""The implementations of a product of words, in vectors and in matrix tiles; what they are estimated to cost there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.core.arith.expr import IntExpr, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.product import product_sizes
from tilewright.lowering.geometry.tile_sums import block_of, whole_steps
from tilewright.lowering.geometry.words import Word
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.by_rows import open_rows_refusal
from tilewright.lowering.implementations.gemm.cost import known_rows
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.tensor_ir.compute import Tensor
from tilewright.tensor_ir.intrinsics import SIDE

_WORD_BYTES = 4


def refusal(target: Target, word: Word, rows: IntExpr, columns: IntExpr, depth: IntExpr) -> str | None:
    """Why a product of ``rows`` by ``columns`` that sums over ``depth`` has no place in matrix tiles."""
    if not has_matrix_tiles(target, word.product):
        return "no matrix tiles for such elements on the target"
    if not depth.is_const:
        return f"sums over {depth}, expected a constant"
    if (n := rows.value()) is not None and n < (least := target.costs.tile_rows):
        return f"{n} rows, expected at least {least}"
    return None


def cost(
    target: Target, word: Word, rows: int, columns: int, taps: int, depth: IntExpr, put: int | None = None
) -> float:
    """The time of the sums over ``taps`` times ``depth`` elements: empty parts of tiles take as long as others.
    ``put``: how many times ``depth`` elements are put into tiles, if not once for each row and tap: what taps share is
    then still near."""
    costs = target.costs
    steps = whole_steps(word.count(depth)).value() or SIDE
    products = padded(rows) * padded(columns) * taps * steps * word.per * word.products / word.planes
    beside = block_of(const(rows)) * block_of(const(columns)) // SIDE**2
    per_word, per_sum = costs.tile_word, costs.tile_sum
    if word.planes > 1:
        per_word, per_sum = costs.split_word if word.is_whole(depth) else costs.split_ragged_word, costs.split_sum
    return (
        products
        * share_of_tiles(target, word.product)
        * max(1.0, costs.tile_chains / beside)
        * _distance(target, word, rows, columns, taps * steps, put is None)
        + (padded(rows) * taps if put is None else put) * steps * per_word
        + rows * columns * per_sum
        + columns * taps * steps * costs.weight_load
        + costs.tile_start
    )


def _distance(target: Target, word: Word, rows: int, columns: int, steps: int, in_blocks: bool) -> float:
    """How much longer products take because of what they read from afar: blocks of rows that the first-level cache does
    not hold, or, of an image, panels in two parts that do not stay in the second-level cache beside it."""
    if in_blocks:
        is_near = block_of(const(rows)) * steps * _WORD_BYTES <= target.l1_working_bytes
        return 1.0 if is_near else target.costs.tile_far
    share = block_of(const(columns)) * steps * _WORD_BYTES / target.beside_bytes
    return 1.0 if word.planes == 1 or share <= 1 else float(target.costs.tile_far**share)


def padded(n: int) -> int:
    """Rows or columns in whole blocks."""
    block = block_of(const(n))
    return -(-n // block) * block


def product_refusal(word: Word, facts: NodeFacts) -> str | None:
    """:func:`refusal` of a MatMul with a constant second operand."""
    p = product_sizes(facts)
    return refusal(facts.target, word, p.rows, p.n, p.k)


def product_cost(word: Word, facts: NodeFacts) -> float:
    """:func:`cost` of such a MatMul."""
    p = product_sizes(facts)
    return cost(facts.target, word, known_rows(p), p.n.value() or 0, 1, p.k)


def products(
    op: str, word: Word, lower: Callable[[bool, bool, LowerContext], tuple[Tensor, ...]],
    own_cost: Callable[[NodeFacts], float], applies: Callable[[NodeFacts], str | None],
) -> tuple[Implementation, ...]:  # fmt: skip
    """Those of ``op``, a product with a constant second operand: in vectors and in matrix tiles, each also with a nest
    for few rows of a number that only a call tells. ``lower(in tiles, with that nest, ctx)``."""
    name = "dot_product"

    def in_tiles(facts: NodeFacts) -> str | None:
        return applies(facts) or product_refusal(word, facts)

    def few_too(of_all: Callable[[NodeFacts], str | None], facts: NodeFacts) -> str | None:
        return of_all(facts) or open_rows_refusal(facts)

    cost_in_tiles = partial(product_cost, word)
    return (
        Implementation(
            op, f"{name}_by_rows", partial(lower, False, True), own_cost, partial(few_too, applies), family=name
        ),
        Implementation(op, name, partial(lower, False, False), own_cost, applies),
        Implementation(
            op, f"{name}_tiles_by_rows", partial(lower, True, True), cost_in_tiles, partial(few_too, in_tiles),
            family=name,
        ),
        Implementation(op, f"{name}_tiles", partial(lower, True, False), cost_in_tiles, in_tiles, family=name),
    )  # fmt: skip
