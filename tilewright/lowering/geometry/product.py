"""The sizes and operands of ``MatMul`` and ``Gemm``, and their results from sums, which all implementations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext, wide
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.packing import flatten, unflatten
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, index_value, lift, select, sum_over

Read = Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]
"""An element at ``(batch, row, column)``."""

LEAST_ROWS = 8
"""Rows from which on there are tiles of them, where a call tells the number: fewer take less time one by one."""


@dataclass(frozen=True, slots=True)
class ProductSizes:
    """``Y[batch..., m, n] = sum_k A[batch..., m, k] * B[batch..., k, n]`` with numpy's rules for batch dimensions.

    ``a_rank``, ``b_rank``: of the operands as they are, 1 for a vector. ``constant_b``: B is one constant matrix;
    ``transposed_b``: its rows and columns change places.
    """

    batch: tuple[IntExpr, ...]
    m: IntExpr
    k: IntExpr
    n: IntExpr
    a_rank: int
    b_rank: int
    constant_b: bool
    transposed_b: bool = False

    @property
    def shares_b(self) -> bool:
        """True if B has no batch dimensions, so that all rows of A are those of one product."""
        return self.b_rank <= 2

    @property
    def rows(self) -> IntExpr:
        """Rows of one product."""
        return product((*self.batch, self.m)) if self.shares_b else self.m

    @property
    def row_extents(self) -> tuple[IntExpr, ...]:
        """Those of all coordinates of a row but the first, where the rows of the batch are one product's."""
        return (*self.batch[1:], self.m) if self.batch else ()


def product_sizes(facts: NodeFacts) -> ProductSizes:
    """The sizes of a ``MatMul`` or ``Gemm`` node."""
    a, b, out = facts.input_shape(0), facts.input_shape(1), facts.output().shape
    constant = facts.constants[1] is not None and len(b) <= 2
    if facts.node.op == "Gemm":
        k = a[0] if facts.attr_int("transA", 0) else a[1]
        return ProductSizes((), out[0], k, out[1], 2, 2, constant, bool(facts.attr_int("transB", 0)))
    m = a[-2] if len(a) > 1 else const(1)
    n = b[-1] if len(b) > 1 else const(1)
    return ProductSizes(out[: len(out) - (len(a) > 1) - (len(b) > 1)], m, a[-1], n, len(a), len(b), constant)


def computed_type(facts: NodeFacts) -> DType:
    """The type in which a product is computed."""
    return wide(facts.output().dtype)


def left_operand(ctx: LowerContext) -> Read:
    """``read(batch, row, depth)``."""
    a, p = ctx.input(0), product_sizes(ctx)
    if ctx.node.op == "Gemm":
        return lambda bi, row, depth: a[(depth, row) if ctx.attr_int("transA", 0) else (row, depth)]
    return lambda bi, row, depth: a[depth] if a.ndim == 1 else a[(*_broadcast(bi, p.batch, a.shape[:-2]), row, depth)]


def right_operand(ctx: LowerContext) -> Read:
    """``read(batch, depth, column)``."""
    b, p = ctx.input(1), product_sizes(ctx)
    if ctx.node.op == "Gemm":
        return lambda bi, depth, col: b[(col, depth) if p.transposed_b else (depth, col)]
    return lambda bi, depth, col: b[depth] if b.ndim == 1 else b[(*_broadcast(bi, p.batch, b.shape[:-2]), depth, col)]


def _broadcast(index: Sequence[IntExpr], full: Sequence[IntExpr], own: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
    """The batch index of an operand whose batch dims are ``own`` under numpy broadcasting to ``full``."""
    offset = len(full) - len(own)
    return tuple(const(0) if d == 1 and full[offset + i] != 1 else index[offset + i] for i, d in enumerate(own))


def place_of_row(p: ProductSizes, row: IntExpr) -> tuple[Sequence[IntExpr], IntExpr]:
    """Batch index and row of a row of one product."""
    *bi, at = unflatten(row, p.row_extents)
    return bi, at


def row_sums(
    ctx: LowerContext, element: Callable[[IntExpr, IntExpr, IntExpr], Val], depth: IntExpr
) -> Callable[[IntExpr, IntExpr, IntExpr], Reduction]:
    """The formula of :func:`panel_sums` of ``depth`` steps; ``element``: that of B for a panel, a step and a column."""
    p, dtype, read, k = product_sizes(ctx), computed_type(ctx), left_operand(ctx), ctx.axis(depth, "k")

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        bi, at = place_of_row(p, row)
        return sum_over(read(bi, at, k.index).cast(dtype) * element(no, k.index, ni), k)

    return formula


def panel_sums(
    ctx: LowerContext, width: int, dtype: DType, formula: Callable[[IntExpr, IntExpr, IntExpr], Reduction]
) -> Read:
    """A stage of the sums ``formula(row of one product, panel, column of it)`` of ``dtype``, in panels of ``width``
    columns."""
    p = product_sizes(ctx)
    shape = (p.rows, ceildiv(p.n, width), as_expr(width))
    return from_panels(p, width, ctx.stage(compute(ctx.name("acc"), shape, formula, axis_names=["m", "no", "ni"])))


def rows_one_by_one(p: ProductSizes, least: int) -> IntExpr:
    """All rows of fewer than ``least``, else none."""
    return minimum(p.rows, (1 - minimum(p.rows // least, 1)) * (least - 1))


def few_or_many(
    ctx: LowerContext, width: int, least: int, few: Callable[[IntExpr, IntExpr, IntExpr], Reduction],
    tiles: Callable[[IntExpr], Read],
) -> Read:  # fmt: skip
    """The sums ``tiles(many)`` of at least ``least`` rows, where ``many`` is 1; else it is 0, they have no steps,
    and ``few`` is the formula of a sum, row by row."""
    p = product_sizes(ctx)
    many = minimum(p.rows // least, 1)
    of_tiles = tiles(many)
    full = (rows_one_by_one(p, least), ceildiv(p.n, width), as_expr(width))
    rows = from_panels(p, width, ctx.stage(compute(ctx.name("few"), full, few, axis_names=["m", "no", "ni"])))

    def acc(bi: Sequence[IntExpr], row: IntExpr, col: IntExpr) -> Val:
        return select(index_value(many).equal(1), of_tiles(bi, row, col), rows(bi, row, col))

    return acc


def from_panels(p: ProductSizes, width: int, acc: Tensor) -> Read:
    """The elements of ``acc[row of one product, panel, column of it]``."""
    return lambda bi, row, col: acc[flatten((*bi, row), p.row_extents), col // width, col % width]


def product_result(ctx: LowerContext, acc: Read) -> tuple[Tensor, ...]:
    """The result of the node from the sums ``acc(batch, row, column)``."""
    return _gemm_result(ctx, acc) if ctx.node.op == "Gemm" else _matmul_result(ctx, acc)


def _matmul_result(ctx: LowerContext, acc: Read) -> tuple[Tensor, ...]:
    p, out = product_sizes(ctx), ctx.output()
    row_axis, column_axis = p.a_rank > 1, p.b_rank > 1

    def result(*i: IntExpr) -> Val:
        at = list(i)
        col = at.pop() if column_axis else const(0)
        row = at.pop() if row_axis else const(0)
        return acc(tuple(at), row, col).cast(out.dtype)

    names = [*(f"b{d}" for d in range(len(p.batch))), *(["m"] if row_axis else []), *(["n"] if column_axis else [])]
    return (compute(ctx.name("matmul"), out.shape, result, axis_names=names),)


def _gemm_result(ctx: LowerContext, acc: Read) -> tuple[Tensor, ...]:
    """``Y = alpha * A' @ B' + beta * C`` with C broadcast to the result (ONNX Gemm)."""
    out, dtype = ctx.output(), computed_type(ctx)
    alpha, beta = ctx.attr_float("alpha", 1.0), ctx.attr_float("beta", 1.0)
    m, n = out.shape
    c = ctx.inputs[2] if ctx.has_input(2) else None

    def result(i: IntExpr, j: IntExpr) -> Val:
        value = acc((), i, j)
        if alpha != 1.0:
            value = value * _factor(alpha, dtype)
        if c is not None and beta != 0.0:
            index = [const(0) if d == 1 and full != 1 else at for d, at, full in zip(
                c.shape, (i, j)[2 - c.ndim :], (m, n)[2 - c.ndim :], strict=True)]  # fmt: skip
            addend = c[tuple(index)].cast(dtype)
            value = value + (addend if beta == 1.0 else addend * _factor(beta, dtype))
        return value.cast(out.dtype)

    return (compute(ctx.name("gemm"), out.shape, result, axis_names=["m", "n"]),)


def _factor(x: float, dtype: DType) -> Val:
    return lift(x if dtype.is_float else int(x), dtype)
