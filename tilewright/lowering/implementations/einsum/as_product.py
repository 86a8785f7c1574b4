"""A product of two operands in the form of a matrix product for each batch element, packed or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilewright.core.arith.expr import IntExpr, as_expr
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext, wide
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.geometry.packing import unflatten
from tilewright.lowering.geometry.product import ProductSizes, Read
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.einsum.labels import labels_of, product_labels, product_refusal
from tilewright.lowering.implementations.gemm.batched_gemm import batched_product
from tilewright.lowering.implementations.gemm.cost import packing, time_by_row
from tilewright.lowering.implementations.gemm.unpacked_gemm import UNPACKED_ROW, unpacked_product
from tilewright.tensor_ir.compute import Tensor, Val, compute


def _lower(
    product: Callable[[LowerContext, ProductSizes, Read, Read, DType], Read], c: LowerContext
) -> tuple[Tensor, ...]:
    labels, out = labels_of(c), c.output()
    p, sizes = product_labels(labels), labels.sizes

    def place(names: Sequence[str], flat: IntExpr) -> dict[str, IntExpr]:
        return dict(zip(names, unflatten(flat, [sizes[x] for x in names[1:]]), strict=True)) if names else {}

    def read(operand: int, own: Sequence[str], bi: Sequence[IntExpr], at: IntExpr, depth: IntExpr) -> Val:
        where = {**dict(zip(p.batch, bi, strict=True)), **place(own, at), **place(p.summed, depth)}
        return labels.read(c.input(operand), operand, where)

    def read_a(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return read(0, p.rows, bi, row, depth)

    def read_b(bi: Sequence[IntExpr], depth: IntExpr, column: IntExpr) -> Val:
        return read(1, p.columns, bi, column, depth)

    acc = product(c, p.sizes(labels), read_a, read_b, wide(out.dtype))

    def flat(names: Sequence[str], at: dict[str, IntExpr]) -> IntExpr:
        position = as_expr(0)
        for x in names:
            position = position * sizes[x] + at[x]
        return position

    def body(*i: IntExpr) -> Val:
        at = dict(zip(labels.result, i, strict=True))
        return acc([at[x] for x in p.batch], flat(p.rows, at), flat(p.columns, at)).cast(out.dtype)

    return (compute(c.name("einsum"), out.shape, body, axis_names=axis_names(len(out.shape))),)


def _applies(facts: NodeFacts) -> str | None:
    return product_refusal(labels_of(facts))


def _time(facts: NodeFacts, per_row: float, per_weight: float) -> float:
    labels = labels_of(facts)
    lanes = facts.target.lanes(wide(facts.output().dtype).itemsize)
    return time_by_row(product_labels(labels).sizes(labels), per_row, per_weight, facts.target.costs, lanes)


def _packed_cost(facts: NodeFacts) -> float:
    return _time(facts, 1.0, packing(facts))


def _unpacked_cost(facts: NodeFacts) -> float:
    return _time(facts, UNPACKED_ROW, 0.0)


BATCHED_GEMM = Implementation("Einsum", "batched_gemm", partial(_lower, batched_product), _packed_cost, _applies)
UNPACKED_GEMM = Implementation("Einsum", "unpacked_gemm", partial(_lower, unpacked_product), _unpacked_cost, _applies)
