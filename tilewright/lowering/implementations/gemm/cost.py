"""What the implementations of products of matrices are estimated to cost, in multiply-adds that fill a vector."""

from __future__ import annotations

from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.product import ProductSizes, computed_type, product_sizes
from tilewright.lowering.implementations.base import assumed, share_of_lanes
from tilewright.machine.costs import Costs

MANY = 224
"""What a symbolic size counts as."""


def known_rows(p: ProductSizes) -> int:
    """Rows of one product; a number of rows that a symbol tells is large."""
    rows = p.rows.value()
    return MANY if rows is None else max(1, rows)


def time_by_row(
    p: ProductSizes, per_row: float, per_weight: float, costs: Costs, lanes: int, weight_size: float = 1.0
) -> float:
    """The time of ``per_row`` multiply-adds for each element of B and row, ``per_weight`` for each element of B, and
    reading B, an element of which takes ``weight_size`` times what one of float32 does."""
    products = 1 if p.shares_b else assumed(p.batch, MANY)
    each = per_row * known_rows(p) + per_weight + weight_size * costs.weight_load
    return assumed((p.k, p.n), MANY) * products * each / share_of_lanes(p.n.value() or 0, lanes)


def cost_by_row(facts: NodeFacts, per_row: float, per_weight: float = 0.0, weight_size: float = 1.0) -> float:
    """:func:`time_by_row` of a MatMul or Gemm."""
    return time_by_row(product_sizes(facts), per_row, per_weight, facts.target.costs, lanes_of(facts), weight_size)


def lanes_of(facts: NodeFacts) -> int:
    return facts.target.lanes(computed_type(facts).itemsize)


def useful_lanes(facts: NodeFacts) -> float:
    """The share of the lanes that vectors along the columns fill."""
    return share_of_lanes(product_sizes(facts).n.value() or 0, lanes_of(facts))


def packing(facts: NodeFacts) -> float:
    """The time of packing an element of B while the model runs: more than that of reading it for a few rows again."""
    return facts.target.costs.unpacked_rows + 0.5
