"""Whether matrix tiles compute what they should: products by the code that models get, against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.geometry.words import Word
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import Reduction, Val, build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct
from tilewright.tensor_ir.ir import Func

_ROWS, _COLUMNS, _STEPS = 32, 32, 2
"""A block; the innermost loop has several steps. More blocks take four times as long to interpret."""
_SPLIT_ROWS = 16
"""Of operands in two parts, whose interpreter takes three times as long."""
_DOWN = 2
"""Rows of an image, and taps; parts of an operand."""
_GROUPS = 2
"""That have a scale each."""


def tile_product_func(p: TileProduct, rows: int, columns: int, steps: int) -> Func:
    """``out[m, n] = 1 + sum of p.product(A, B)`` of words that lie in blocks for ``p``: A ``[blocks, steps, rows of a
    block, 16]``, B ``[panels, 16 * steps, columns of a block]``; of ``p`` with taps, those of an image, and with parts,
    of groups that have a scale each. Operands of a split product have two rows of words in a step."""
    if p.has_taps:
        return _product_of_taps(p, rows // _DOWN, columns, steps)
    if p.form == "parts":
        return _product_of_parts(p, rows, columns, -(-steps // _DOWN))
    high, wide = SIDE * p.rows, SIDE * p.columns
    down, right, planes = -(-rows // high), -(-columns // wide), p.planes
    a = placeholder("A", (down, steps, planes, high, SIDE), dtypes.int32)
    b = placeholder("B", (right, steps, planes, SIDE, wide), dtypes.int32)
    k, q = reduce_axis(steps, "k"), reduce_axis(SIDE, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        left = [a[m // high, k.index, n, m % high, q.index] for n in range(planes)]
        return sum_over(_step(p, left, [b[no, k.index, n, q.index, ni] for n in range(planes)]), k, q)

    acc = compute("acc", (down * high, right, wide), formula, axis_names=["m", "no", "ni"])
    one = 1.0 if p.sums == "float32" else 1
    out = compute("out", (rows, columns), lambda m, n: acc[m, n // wide, n % wide] + one, axis_names=["m", "n"])
    return build_func("product", [a, b], [out], [acc])


def _step(p: TileProduct, left: Sequence[Val], right: Sequence[Val]) -> Val:
    """What a step adds up, of words in all planes."""
    return Word(p.product, 1, len(left)).sum_of_planes(lambda n: left[n], lambda n: right[n])


def _product_of_taps(p: TileProduct, across: int, columns: int, steps: int) -> Func:
    """``out[y, x, n] = 1 + sum of p.product(A, B)`` of two taps below each other: A ``[pixels, 16 * steps]`` in rows of
    one pixel more than there are results, B ``[panels, 2, 16 * steps, columns of a block]``."""
    high, wide, row, planes = SIDE * p.rows, SIDE * p.columns, across + 1, p.planes
    blocks, panels = -(-(_DOWN * row + high - 1) // high), -(-columns // wide)
    a = placeholder("A", (blocks * high + row, steps * planes * SIDE), dtypes.int32)
    b = placeholder("B", (panels, _DOWN, steps * planes * SIDE, wide), dtypes.int32)
    t, k, q = reduce_axis(_DOWN, "t"), reduce_axis(steps, "k"), reduce_axis(SIDE, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        words = [(k.index * planes + n) * SIDE + q.index for n in range(planes)]
        left = [a[m + t.index * row, w] for w in words]
        return sum_over(_step(p, left, [b[no, t.index, w, ni] for w in words]), t, k, q)

    acc = compute("acc", (blocks * high, panels, wide), formula, axis_names=["m", "no", "ni"])
    one = 1.0 if p.sums == "float32" else 1
    out = compute(
        "out", (_DOWN, across, columns), lambda y, x, n: acc[y * row + x, n // wide, n % wide] + one,
        axis_names=["y", "x", "n"],
    )  # fmt: skip
    return build_func("product", [a, b], [out], [acc])


def _product_of_parts(p: TileProduct, rows: int, columns: int, steps: int) -> Func:
    """``out[m, n] = 1 + sum over groups of scale * (sum of p.product(A, B))``: A ``[blocks, groups, parts, steps, rows
    of a block, 16]``, B ``[panels, groups, steps, 16, columns of a block]``, scale ``[panels, groups, columns]``."""
    high, wide = SIDE * p.rows, SIDE * p.columns
    down, right = -(-rows // high), -(-columns // wide)
    a = placeholder("A", (down, _GROUPS, _DOWN, steps, high, SIDE), dtypes.int32)
    b = placeholder("B", (right, _GROUPS, steps, SIDE, wide), dtypes.int32)
    scale = placeholder("scale", (right, _GROUPS, wide), dtypes.float32)
    d, k, q, over = (reduce_axis(n, name) for n, name in ((_DOWN, "d"), (steps, "k"), (SIDE, "q"), (_GROUPS, "g")))

    def of_group(g: IntExpr, m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        left = a[m // high, g, d.index, k.index, m % high, q.index]
        return sum_over(op(p.product, left, b[no, g, k.index, q.index, ni]), d, k, q)

    full = (down * high, right, wide)
    sums = compute("sums", (_GROUPS, *full), of_group, axis_names=["g", "m", "no", "ni"])
    acc = compute(
        "acc", full, lambda m, no, ni: sum_over(sums[over.index, m, no, ni] * scale[no, over.index, ni], over),
        axis_names=["m", "no", "ni"],
    )  # fmt: skip
    out = compute("out", (rows, columns), lambda m, n: acc[m, n // wide, n % wide] + 1.0, axis_names=["m", "n"])
    return build_func("product", [a, b, scale], [out], [sums, acc])


def tile_operands(p: TileProduct, func: Func) -> list[np.ndarray]:
    """Words of any bytes, or of small integers in bfloat16, whose sums are exact in any order; scales that are powers
    of 2."""
    rng = np.random.default_rng(5)
    shapes = [tuple(int(d) for d in b.shape) for b in func.params[: len(func.params) - func.outputs]]
    if p.product == "dot4":
        return [rng.integers(-(1 << 31), 1 << 31, s, dtype=np.int32) for s in shapes]
    pairs = [rng.integers(-9, 10, (*s, 2)).astype(np.float32).view(np.uint32) >> 16 for s in shapes[:2]]
    words = [(x[..., 0] | x[..., 1] << 16).astype(np.uint32).view(np.int32) for x in pairs]
    return [*words, *(np.exp2(rng.integers(-2, 3, s)).astype(np.float32) for s in shapes[2:])]


def wrong_tile_products(target: Target) -> list[str]:
    """Names of the intrinsics whose code, run on this machine, gives other numbers than the interpreter. Those that
    ``target`` cannot run are passed over."""
    wrong: list[str] = []
    for name, p in TILE_PRODUCTS.items():
        if not has_matrix_tiles(target, p.product):
            continue
        rows, columns = (_SPLIT_ROWS, SIDE * p.columns) if p.is_split else (_ROWS, _COLUMNS)
        func = tile_product_func(p, rows, columns, _STEPS)
        args = tile_operands(p, func)
        trace = default_trace(func, target)
        (want,) = interpret(func, args, {})
        (got,) = build(trace.apply(func), target)(args)
        if not np.array_equal(got, want):
            wrong.append(name)
    return wrong
