"""Products with a weight that is kept in fewer bytes than it is multiplied in.

For few rows its elements are converted in registers, where they are multiplied. For many rows panels of float32 are
made, each just before its columns are multiplied as any others are. Where only a call tells the number of rows, there
are both, and the sums of one of them are empty. That pays for a weight of float32 as well: few rows are not made up to
a tile of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import panel_columns
from tilewright.lowering.geometry.product import Read, few_or_many, panel_sums, product_result, product_sizes, row_sums
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute

IN_MEMORY = 30.0
"""The time to write an element that was made to memory and read it again, in multiply-adds."""

_LEAST_ELEMENTS = 1 << 12
"""Of a weight: a tile of a smaller one takes less than a microsecond, whatever rows it has."""

Formula: TypeAlias = Callable[[IntExpr, IntExpr, IntExpr], Reduction]
"""The sum of a row, for a panel and a column of it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A weight in panels of ``width`` columns. ``element``: that of a panel, a step and a column in float32. ``few``:
    the sum of a row that converts it in registers. ``many``: that for tiles of rows, of ``depth`` steps; None: panels
    of float32 are made."""

    width: int
    element: Callable[[IntExpr, IntExpr, IntExpr], Val]
    few: Formula
    many: Callable[[IntExpr], Formula] | None = None


def kept(ctx: LowerContext, width: int, element: Callable[[IntExpr, IntExpr, IntExpr], Val]) -> Kept:
    """A weight whose elements are cheap to convert, so that tiles of rows do it too."""

    def many(depth: IntExpr) -> Formula:
        return row_sums(ctx, element, depth)

    return Kept(width, element, many(product_sizes(ctx).k), many)


def in_registers(ctx: LowerContext, w: Kept) -> tuple[Tensor, ...]:
    return product_result(ctx, panel_sums(ctx, w.width, dtypes.float32, w.few))


def in_panels(ctx: LowerContext, w: Kept) -> tuple[Tensor, ...]:
    return product_result(ctx, panel_sums(ctx, w.width, dtypes.float32, _from_panels(ctx, w, const(1))))


def by_rows(ctx: LowerContext, w: Kept, least: int) -> tuple[Tensor, ...]:
    """Tiles of rows for at least ``least`` of them; fewer are summed one by one, and the tiles have no steps."""
    p = product_sizes(ctx)

    def tiles(many: IntExpr) -> Read:
        sums = _from_panels(ctx, w, many) if w.many is None else w.many(p.k * many)
        return panel_sums(ctx, w.width, dtypes.float32, sums)

    return product_result(ctx, few_or_many(ctx, w.width, least, w.few, tiles))


def _from_panels(ctx: LowerContext, w: Kept, used: IntExpr) -> Formula:
    """``used``: 1, or 0 where no row is summed and no panel made."""
    p = product_sizes(ctx)
    shape = (ceildiv(p.n, w.width), p.k * used, w.width)
    real = ctx.stage(compute(ctx.name("real"), shape, w.element, axis_names=["no", "k", "ni"]))
    return row_sums(ctx, lambda no, k, ni: real[no, k, ni], p.k * used)


def open_rows_refusal(facts: NodeFacts) -> str | None:
    """Why few rows of a constant weight need no nest of their own that a call chooses."""
    weight = facts.constants[1]
    if weight is None or weight.size < _LEAST_ELEMENTS:
        return "a small weight"
    return "the number of rows is known" if product_sizes(facts).rows.value() is not None else None


def panel_stays(facts: NodeFacts) -> bool:
    """Whether a panel stays in the second-level cache beside rows of the other operand."""
    return _fits(facts, 1, facts.target.beside_bytes)


def panels_stay(facts: NodeFacts) -> bool:
    """Whether a panel does, or all of them stay in the largest cache; else they would be written to memory, which takes
    longer than converting each element for each tile."""
    panels = ceildiv(product_sizes(facts).n, panel_columns(facts)).value()
    return panel_stays(facts) or (panels is not None and _fits(facts, panels, facts.target.largest_cache))


def _fits(facts: NodeFacts, panels: int, room: int) -> bool:
    k = product_sizes(facts).k.value()
    return k is not None and panels * k * panel_columns(facts) * dtypes.float32.itemsize <= room
