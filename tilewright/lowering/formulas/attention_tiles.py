"""FusedAttention of bfloat16 in matrix tiles: both products in blocks of rows, with the softmax of float32 between.

The keys are packed as columns of the first product, words of neighbours along the head's elements; the values as rows
of the second, words of neighbouring keys. Weights are rounded to bfloat16 for the second product, their sum is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.arith.minmax import minimum
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.elementwise import axis_names, broadcast_load
from tilewright.lowering.geometry.tile_sums import BLOCK, whole_steps
from tilewright.lowering.geometry.words import PAIRS
from tilewright.machine.vectors import has_matrix_tiles, share_of_tiles
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, constant, index_value, op, select, sum_over
from tilewright.tensor_ir.intrinsics import SIDE

_OPERANDS = 3

Element = Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]
"""The element of a matrix at ``(batch, row, column)``."""


def suits_tiles(facts: NodeFacts) -> bool:
    """True if the products of a FusedAttention of bfloat16 fill matrix tiles that the target has."""
    values = facts.input_values[:_OPERANDS]
    if not has_matrix_tiles(facts.target, PAIRS.product) or any(v is None for v in values):
        return False
    if any(v is not None and v.dtype != dtypes.bfloat16 for v in values):
        return False
    (rows, depth), keys, width = facts.input_shape(0)[-2:], facts.input_shape(1)[-2], facts.input_shape(2)[-1]
    least = ((rows, BLOCK), (depth, SIDE), (keys, SIDE), (width, BLOCK))
    return all((n := d.value()) is not None and n >= size for d, size in least)


def pays_in_tiles(facts: NodeFacts) -> bool:
    """True if it also takes less time so than on float32, by estimate: rows and keys are made up to whole blocks."""
    if not suits_tiles(facts):
        return False
    (rows, depth), keys, width = (
        [int(d) for d in facts.input_shape(0)[-2:]], int(facts.input_shape(1)[-2]), int(facts.input_shape(2)[-1])
    )  # fmt: skip
    costs, each = facts.target.costs, depth + width
    padded = prod(-(-n // BLOCK) * BLOCK for n in (rows, keys))
    in_tiles = padded * (each * share_of_tiles(facts.target, PAIRS.product) + costs.softmax_in_tiles)
    return in_tiles + (rows + keys) * each * costs.tile_operand < rows * keys * (each + costs.softmax_element)


def products_of_tiles(
    c: LowerContext, batch: Sequence[IntExpr], scored: Callable[[Tensor, Sequence[IntExpr]], Val],
    softmax: Callable[[Tensor], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sums of weights times values, ``[batch..., row, panel, column]``, and the sums of the weights.

    ``scored(raw, i)``: the score at ``i`` of the sums ``raw``, in panels of ``BLOCK`` keys. ``softmax(scores)``: the
    weights and their sums.
    """
    q, k, v = (c.input(i) for i in range(_OPERANDS))
    names = axis_names(len(batch) + 2)
    rows, depth, keys, width = q.shape[-2], q.shape[-1], k.shape[-2], v.shape[-1]
    full, panels = ceildiv(rows, BLOCK) * BLOCK, ceildiv(keys, BLOCK)

    def element(t: Tensor) -> Element:
        return lambda b, row, column: op("bits", broadcast_load(t, (*b, row, column), (*batch, *t.shape[-2:])))

    words = whole_steps(PAIRS.count(depth))

    def word_of(t: Tensor, b: Sequence[IntExpr], row: IntExpr, w: IntExpr) -> Val:
        return PAIRS.join(lambda d: element(t)(b, row, d), w, depth, words)

    queries = _blocks(c, batch, full, words, lambda b, m, w: word_of(q, b, minimum(m, rows - 1), w))
    by_key = _panels(c, batch, keys, words, lambda b, n, w: word_of(k, b, n, w))
    raw = _sums(c, batch, full, panels, words, queries, by_key)
    shape = (*batch, full, panels * BLOCK)
    scores = c.stage(compute(c.name("masked"), shape, lambda *i: scored(raw, i), axis_names=names))
    weights, total = softmax(scores)
    narrow = c.stage(compute(c.name("narrow"), shape, lambda *i: op("narrow", weights[i]), axis_names=names))
    steps = whole_steps(PAIRS.count(panels * BLOCK))

    def weight(b: Sequence[IntExpr], m: IntExpr, w: IntExpr) -> Val:
        return PAIRS.of([op("bits", narrow[(*b, m, w * 2 + j)]) for j in range(2)])

    def value(b: Sequence[IntExpr], n: IntExpr, w: IntExpr) -> Val:
        read = element(v)
        word = PAIRS.of([read(b, minimum(w * 2 + j, keys - 1), n) for j in range(2)])
        return word if (keys % BLOCK).value() == 0 else op("bit_and", word, _those_before(keys, w))

    of_weights = _blocks(c, batch, full, steps, weight)
    by_value = _panels(c, batch, width, steps, value)
    return _sums(c, batch, full, ceildiv(width, BLOCK), steps, of_weights, by_value), total


def _those_before(end: IntExpr, word: IntExpr) -> Val:
    """The bits of those elements of a word that are before ``end``."""
    bits = [
        select(index_value(word * 2 + j) < index_value(end), constant(part, dtypes.int32), constant(0, dtypes.int32))
        for j, part in enumerate((0xFFFF, -0x10000))
    ]
    return op("bit_or", *bits)


def _blocks(
    c: LowerContext, batch: Sequence[IntExpr], rows: IntExpr, words: IntExpr,
    word: Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val],
) -> Tensor:  # fmt: skip
    """The left operand of a product, ``[batch..., block, step, row, word]``."""
    rank = len(batch)

    def formula(*i: IntExpr) -> Val:
        mo, s, mi, w = i[rank:]
        return word(i[:rank], mo * BLOCK + mi, s * SIDE + w)

    names = [*axis_names(rank + 2)[:rank], "mo", "s", "mi", "q"]
    full = (*batch, rows // BLOCK, words // SIDE, const(BLOCK), const(SIDE))
    return c.stage(compute(c.name("tiles"), full, formula, axis_names=names))


def _panels(
    c: LowerContext, batch: Sequence[IntExpr], columns: IntExpr, words: IntExpr,
    word: Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val],
) -> Tensor:  # fmt: skip
    """The right operand, ``[batch..., panel, word, column]``, 0 past the last column."""
    rank = len(batch)
    names = [*axis_names(rank + 2)[:rank], "no", "w", "ni"]

    def formula(*i: IntExpr) -> Val:
        no, w, ni = i[rank:]
        value = word(i[:rank], no * BLOCK + ni, w)
        if (columns % BLOCK).value() == 0:
            return value
        return select(index_value(no * BLOCK + ni) < index_value(columns), value, constant(0, dtypes.int32))

    full = (*batch, ceildiv(columns, BLOCK), words, const(BLOCK))
    return c.stage(compute(c.name("pack"), full, formula, axis_names=names))


def _sums(
    c: LowerContext, batch: Sequence[IntExpr], rows: IntExpr, panels: IntExpr, words: IntExpr, left: Tensor,
    right: Tensor,
) -> Tensor:  # fmt: skip
    """``[batch..., row, panel, column]``."""
    rank = len(batch)
    s, q = c.axis(words // SIDE, "s"), c.axis(SIDE, "q")

    def formula(*i: IntExpr) -> Reduction:
        b, (m, no, ni) = i[:rank], i[rank:]
        a = left[(*b, m // BLOCK, s.index, m % BLOCK, q.index)]
        return sum_over(PAIRS.times(a, right[(*b, no, s.index * SIDE + q.index, ni)]), s, q)

    names = [*axis_names(rank + 2)[:rank], "m", "no", "ni"]
    return c.stage(compute(c.name("acc"), (*batch, rows, panels, const(BLOCK)), formula, axis_names=names))
