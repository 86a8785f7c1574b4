"""Matrix products: ``MatMul`` and ``Gemm`` in the packed form of :mod:`tilewright.lowering.geometry.packing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_expr, ceildiv, const, product
from tilewright.core.dtypes import DType, float32
from tilewright.lowering.context import LowerContext, Rule, wide
from tilewright.lowering.geometry.packing import (
    clamped,
    flatten,
    pack_columns,
    packed_stage,
    panel_width,
    unflatten,
    whole_tiles,
)
from tilewright.lowering.strassen import strassen_product
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, lift, sum_over

Read = Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]


def lower_matmul(ctx: LowerContext) -> tuple[Tensor, ...]:
    """``Y[b..., m, n] = sum_k A[b..., m, k] * B[b..., k, n]`` with numpy's rules for vectors and batch dimensions."""
    a, b = ctx.input(0), ctx.input(1)
    a_batch, b_batch = a.shape[:-2], b.shape[:-2]
    m = a.shape[-2] if a.ndim > 1 else const(1)
    k = a.shape[-1]
    n = b.shape[-1] if b.ndim > 1 else const(1)
    out = ctx.output()
    batch = tuple(out.shape[: len(out.shape) - (a.ndim > 1) - (b.ndim > 1)])

    def read_a(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return a[depth] if a.ndim == 1 else a[(*_broadcast(bi, batch, a_batch), row, depth)]

    def read_b(bi: Sequence[IntExpr], depth: IntExpr, col: IntExpr) -> Val:
        return b[depth] if b.ndim == 1 else b[(*_broadcast(bi, batch, b_batch), depth, col)]

    compute_type = wide(out.dtype)
    constant_b = ctx.constants[1] is not None and b.ndim <= 2
    algorithm = ctx.attr_str("algorithm", "direct")
    if algorithm != "direct":
        acc = _by_algorithm(ctx, algorithm, batch, (m, k, n), read_a, compute_type)
    elif constant_b or not b_batch:
        acc = _shared_b(ctx, batch, m, k, n, read_a, read_b, compute_type, constant_b)
    else:
        acc = batched_product(ctx, batch, m, k, n, read_a, read_b, compute_type)

    def result(*i: IntExpr) -> Val:
        at = list(i)
        col = at.pop() if b.ndim > 1 else const(0)
        row = at.pop() if a.ndim > 1 else const(0)
        return acc(tuple(at), row, col).cast(out.dtype)

    names = [*(f"b{d}" for d in range(len(batch))), *(["m"] if a.ndim > 1 else []), *(["n"] if b.ndim > 1 else [])]
    return (compute(ctx.name("matmul"), out.shape, result, axis_names=names),)


def _by_algorithm(
    ctx: LowerContext, algorithm: str, batch: tuple[IntExpr, ...], sizes: Sequence[IntExpr], read_a: Read, dtype: DType
) -> Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]:  # fmt: skip
    """``acc(b, row, column)`` of the product with a constant B, ``sizes`` m, k, n, by an algorithm with fewer steps."""
    known = [v for d in (product(batch), *sizes) if (v := d.value())]
    constant = ctx.constants[1] is not None and ctx.input(1).ndim == 2 and ctx.input(0).ndim > 1
    if algorithm != "strassen" or not constant or dtype != float32 or len(known) < 4 or known[2] % 2:
        raise ctx.unsupported(f"algorithm {algorithm!r} for this product")
    count, m, k, n = known

    def read(b: IntExpr, row: IntExpr, depth: IntExpr) -> Val:
        return read_a(unflatten(b, batch[1:]) if batch else (), row, depth).cast(dtype)

    acc = strassen_product(ctx, count, m, k, n, dtype, read)
    return lambda bi, row, col: acc(flatten(bi, batch[1:]) if batch else const(0), row, col)


def _broadcast(
    index: Sequence[IntExpr], full: Sequence[IntExpr], own: Sequence[IntExpr]
) -> tuple[IntExpr, ...]:
    """The batch index of an operand whose batch dims are ``own`` under numpy broadcasting to ``full``."""
    offset = len(full) - len(own)
    return tuple(const(0) if d == 1 and full[offset + i] != 1 else index[offset + i] for i, d in enumerate(own))


def _shared_b(
    ctx: LowerContext, batch: tuple[IntExpr, ...], m: IntExpr, k: IntExpr, n: IntExpr, read_a: Read, read_b: Read,
    dtype: DType, constant_b: bool,
) -> Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]:  # fmt: skip
    """All batch dimensions of A are rows of one product with one B: ``acc[row, no, ni]``."""
    rows = product((*batch, m))
    if not constant_b and (small := rows.value()) is not None and small <= ctx.target.costs.unpacked_rows:
        return _direct(ctx, batch, m, k, n, read_a, read_b, dtype)
    width = panel_width(rows, n, ctx.target, dtype.itemsize)
    if constant_b:
        panels = (ceildiv(n, width), k, width)

        def transform(w: np.ndarray) -> np.ndarray:
            return pack_columns(w.reshape(w.shape[0], prod(w.shape[1:])), width, dtype.numpy)

        packed = ctx.packed(1, transform, panels, f"panels_{width}", dtype)
    else:
        packed = packed_stage(ctx, (), k, n, width, dtype, read_b)
    axis = ctx.axis(k, "k")

    inner = (*batch[1:], m) if batch else ()

    def formula(row: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        *bi, at = unflatten(clamped(row, rows), inner)
        return sum_over(read_a(bi, at, axis.index).cast(dtype) * packed[no, axis, ni], axis)

    full = (whole_tiles(rows, width, ctx.target, dtype.itemsize), ceildiv(n, width), width)
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))

    def read(bi: Sequence[IntExpr], row: IntExpr, col: IntExpr) -> Val:
        return acc[flatten((*bi, row), inner), col // width, col % width]

    return read


def batched_product(
    ctx: LowerContext, batch: tuple[IntExpr, ...], m: IntExpr, k: IntExpr, n: IntExpr, read_a: Read, read_b: Read,
    dtype: DType,
) -> Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]:  # fmt: skip
    """A product per batch element: ``acc[b..., m, no, ni]`` with B packed per batch element."""
    if (small := m.value()) is not None and small <= ctx.target.costs.unpacked_rows:
        return _direct(ctx, batch, m, k, n, read_a, read_b, dtype)
    width = panel_width(m, n, ctx.target, dtype.itemsize)
    packed = packed_stage(ctx, batch, k, n, width, dtype, read_b)
    axis = ctx.axis(k, "k")
    rank = len(batch)

    def formula(*i: IntExpr) -> Reduction:
        value = read_a(i[:rank], clamped(i[rank], m), axis.index).cast(dtype)
        return sum_over(value * packed[(*i[:rank], i[rank + 1], axis, i[rank + 2])], axis)

    names = [*(f"b{d}" for d in range(rank)), "m", "no", "ni"]
    shape = (*batch, whole_tiles(m, width, ctx.target, dtype.itemsize), ceildiv(n, width), as_expr(width))
    acc = ctx.stage(compute(ctx.name("acc"), shape, formula, axis_names=names))
    return lambda bi, row, col: acc[(*bi, row, col // width, col % width)]


def _direct(
    ctx: LowerContext, batch: tuple[IntExpr, ...], m: IntExpr, k: IntExpr, n: IntExpr, read_a: Read, read_b: Read,
    dtype: DType,
) -> Callable[[Sequence[IntExpr], IntExpr, IntExpr], Val]:  # fmt: skip
    """Too few rows for packing to pay: ``acc[b..., m, n]`` straight from the operands."""
    axis = ctx.axis(k, "k")
    rank = len(batch)

    def formula(*i: IntExpr) -> Reduction:
        a = read_a(i[:rank], i[rank], axis.index).cast(dtype)
        return sum_over(a * read_b(i[:rank], axis.index, i[rank + 1]).cast(dtype), axis)

    names = [*(f"b{d}" for d in range(rank)), "m", "n"]
    acc = ctx.stage(compute(ctx.name("acc"), (*batch, m, n), formula, axis_names=names))
    return lambda bi, row, col: acc[(*bi, row, col)]


def lower_gemm(ctx: LowerContext) -> tuple[Tensor, ...]:
    """``Y = alpha * A' @ B' + beta * C`` with C broadcast to the result (ONNX Gemm)."""
    a, b, out = ctx.input(0), ctx.input(1), ctx.output()
    trans_a, trans_b = ctx.attr_int("transA", 0), ctx.attr_int("transB", 0)
    alpha, beta = ctx.attr_float("alpha", 1.0), ctx.attr_float("beta", 1.0)
    m, n = out.shape
    k = a.shape[0] if trans_a else a.shape[1]
    dtype = wide(out.dtype)
    constant_b = ctx.constants[1] is not None

    def read_a(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return a[depth, row] if trans_a else a[row, depth]

    def read_b(bi: Sequence[IntExpr], depth: IntExpr, col: IntExpr) -> Val:
        return b[col, depth] if trans_b else b[depth, col]

    if constant_b and trans_b:
        width = panel_width(m, n, ctx.target, dtype.itemsize)

        def transform(w: np.ndarray) -> np.ndarray:
            return pack_columns(w.T, width, dtype.numpy)

        packed = ctx.packed(1, transform, (ceildiv(n, width), k, width), f"panels_{width}_transposed", dtype)
        axis = ctx.axis(k, "k")
        acc_stage = ctx.stage(
            compute(
                ctx.name("acc"),
                (whole_tiles(m, width, ctx.target, dtype.itemsize), ceildiv(n, width), width),
                lambda row, no, ni: sum_over(
                    read_a((), clamped(row, m), axis.index).cast(dtype) * packed[no, axis, ni], axis
                ),
                axis_names=["m", "no", "ni"],
            )
        )

        def acc(bi: Sequence[IntExpr], row: IntExpr, col: IntExpr) -> Val:
            return acc_stage[row, col // width, col % width]
    else:
        acc = _shared_b(ctx, (), m, k, n, read_a, read_b, dtype, constant_b)  # type: ignore[assignment]

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


RULES: dict[str, Rule] = {"MatMul": lower_matmul, "Gemm": lower_gemm}
