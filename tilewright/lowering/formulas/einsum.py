"""Einsum: two operands in the packed form of matrix products where the labels allow it, else one plain reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.core.arith.expr import IntExpr, as_expr, const, product
from tilewright.graph_ir.ops.layers.linear import parse_equation
from tilewright.lowering.context import Lower, LowerContext, wide
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.geometry.packing import unflatten
from tilewright.lowering.geometry.product import ProductSizes
from tilewright.lowering.implementations.gemm.batched_gemm import batched_product
from tilewright.lowering.implementations.gemm.unpacked_gemm import unpacked_product
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over

Sizes = Mapping[str, IntExpr]


def lower_einsum(c: LowerContext) -> tuple[Tensor, ...]:
    """Sum over the labels that the output does not have, of the product of the operands."""
    operands = [c.input(i) for i in range(len(c.inputs))]
    terms, result = parse_equation(c.attr_str("equation", ""), [t.ndim for t in operands])
    sizes: dict[str, IntExpr] = {}
    for term, t in zip(terms, operands, strict=True):
        for label, d in zip(term, t.shape, strict=True):
            sizes[label] = d if label not in sizes or sizes[label] == 1 else sizes[label]
    if len(operands) == 2 and _is_product(terms, result):
        return (_as_product(c, operands, terms, result, sizes),)
    return (_plain(c, operands, terms, result, sizes),)


def _is_product(terms: Sequence[Sequence[str]], result: Sequence[str]) -> bool:
    """True if every label is a batch, row, column or summed label, once in each term."""
    a, b = terms
    once = all(len(set(t)) == len(t) for t in (a, b, result))
    return once and bool(set(a) & set(b) - set(result)) and set(a) ^ set(b) <= set(result)


def _read(t: Tensor, term: Sequence[str], at: Mapping[str, IntExpr]) -> Val:
    return t[tuple(const(0) if d == 1 else at[label] for label, d in zip(term, t.shape, strict=True))]


def _as_product(
    c: LowerContext, operands: Sequence[Tensor], terms: Sequence[Sequence[str]], result: Sequence[str], sizes: Sizes
) -> Tensor:
    a, b = terms
    batch = [x for x in result if x in a and x in b]
    rows = [x for x in result if x in a and x not in b]
    cols = [x for x in result if x in b and x not in a]
    summed = [x for x in a if x in b and x not in result]
    out = c.output()

    def place(labels: Sequence[str], flat: IntExpr) -> dict[str, IntExpr]:
        return dict(zip(labels, unflatten(flat, [sizes[x] for x in labels[1:]]), strict=True)) if labels else {}

    def read_a(bi: Sequence[IntExpr], row: IntExpr, depth: IntExpr) -> Val:
        return _read(operands[0], a, {**dict(zip(batch, bi, strict=True)), **place(rows, row), **place(summed, depth)})

    def read_b(bi: Sequence[IntExpr], depth: IntExpr, col: IntExpr) -> Val:
        return _read(operands[1], b, {**dict(zip(batch, bi, strict=True)), **place(cols, col), **place(summed, depth)})

    def extent(labels: Sequence[str]) -> IntExpr:
        return product(sizes[x] for x in labels)

    lead = tuple(sizes[x] for x in batch)
    m = extent(rows)
    p = ProductSizes(lead, m, extent(summed), extent(cols), len(lead) + 2, len(lead) + 2, False)
    few = (count := m.value()) is not None and count <= c.target.costs.unpacked_rows
    acc = (unpacked_product if few else batched_product)(c, p, read_a, read_b, wide(out.dtype))

    def flat(labels: Sequence[str], at: Mapping[str, IntExpr]) -> IntExpr:
        position = as_expr(0)
        for x in labels:
            position = position * sizes[x] + at[x]
        return position

    def body(*i: IntExpr) -> Val:
        at = dict(zip(result, i, strict=True))
        return acc([at[x] for x in batch], flat(rows, at), flat(cols, at)).cast(out.dtype)

    return compute(c.name("einsum"), out.shape, body, axis_names=axis_names(len(out.shape)))


def _plain(
    c: LowerContext, operands: Sequence[Tensor], terms: Sequence[Sequence[str]], result: Sequence[str], sizes: Sizes
) -> Tensor:
    out = c.output()
    real = wide(out.dtype)
    summed = [x for x in sizes if x not in result]
    axes = {x: c.axis(sizes[x], "k") for x in summed}

    def element(i: Sequence[IntExpr]) -> Val:
        at = {**dict(zip(result, i, strict=True)), **{x: r.index for x, r in axes.items()}}
        total = _read(operands[0], terms[0], at).cast(real)
        for t, term in zip(operands[1:], terms[1:], strict=True):
            total = total * _read(t, term, at).cast(real)
        return total

    names = axis_names(len(out.shape))
    if not summed:
        return compute(c.name("einsum"), out.shape, lambda *i: element(i).cast(out.dtype), axis_names=names)

    def reduced(*i: IntExpr) -> Reduction:
        return sum_over(element(i), *axes.values())

    acc = compute(c.name("einsum"), out.shape, reduced, axis_names=names)
    if real == out.dtype:
        return acc
    c.stage(acc)
    return compute(c.name("einsum_out"), out.shape, lambda *i: acc[i].cast(out.dtype), axis_names=names)


LOWER: dict[str, Lower] = {"Einsum": lower_einsum}
