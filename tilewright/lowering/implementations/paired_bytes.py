"""Products of bytes four at a time, of which two are added in 16 bits: ``acc += dot4s(A4, B4)``.

For x86 without ``vpdpbusd``, where ``pmaddubsw`` multiplies as many bytes as ``pmaddwd`` does int16, twice as many.
Nothing saturates: the rows of the constant operand are in an order in which neighbours fit, and what still would not is
multiplied in a step of its own (:mod:`.byte_pairing`). A stage puts the bytes of the other operand in that order, for
each panel of columns that has one of its own; else they are read where they lie. Zero points are taken off the sums,
the weight's when the model is built.

A convolution is the product of its pixels: the taps of a row lie together in the image, or in a copy of it with its
border, and are one run of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.quantize import row_parameter
from tilewright.lowering.geometry.conv_shape import conv_result, conv_shape
from tilewright.lowering.geometry.packing import flatten, panel_width, unflatten
from tilewright.lowering.geometry.product import LEAST_ROWS, left_operand, place_of_row, product_result, product_sizes
from tilewright.lowering.geometry.quads import MOVED, moved_a, moved_b, sums_of_b, without_zero_points, zero_point
from tilewright.lowering.geometry.words import Word, padded_rows
from tilewright.lowering.implementations.base import Implementation, assumed
from tilewright.lowering.implementations.byte_pairing import WINDOW, Pairing, Windows, pair_bytes
from tilewright.lowering.implementations.conv.shorts import zero_key
from tilewright.lowering.implementations.gemm.cost import MANY, known_rows
from tilewright.machine.vectors import share_of_paired_bytes
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, op, sum_over

WORDS = Word("dot4s", 4)

Element = Callable[[IntExpr, IntExpr, IntExpr], Val]
"""The unsigned byte ``(row, run, place in it)``."""
Sums = Callable[[IntExpr, IntExpr], Val]
"""The sum of ``(row, column)``."""


# -- the weight ------------------------------------------------------------------------------------------------------
def _is_conv(facts: NodeFacts) -> bool:
    return facts.node.op == "ConvInteger"


def _weight(facts: NodeFacts) -> np.ndarray:
    weight = facts.constant(1)
    if weight is None:
        raise InternalError(f"{facts.node.name}: the weight is not constant")
    return weight.array


def _together(facts: NodeFacts) -> int:
    """Bytes of the other operand that lie together and belong to one sum."""
    if not _is_conv(facts):
        return int(product_sizes(facts).k)
    shape = conv_shape(facts)
    return int(shape.channels) * shape.kernel[-1]


def _run(facts: NodeFacts) -> int:
    """The same in whole words."""
    return -(-_together(facts) // WORDS.per) * WORDS.per


def _centred(facts: NodeFacts, w: np.ndarray) -> np.ndarray:
    """The weight less its zero points, ``[k, n]`` in runs of whole words, of int16, or of int8 where there are none."""
    if _is_conv(facts):
        w = np.moveaxis(w, (0, 1), (-1, -2))  # taps, channels, columns
    together, run = _together(facts), _run(facts)
    runs = w.reshape(-1, together, w.shape[-1])
    zero = facts.constant(3)
    if zero is not None:
        runs = runs.astype(np.int16) - zero.array.astype(np.int16).reshape(-1)
    return np.pad(runs, ((0, 0), (0, run - together), (0, 0))).reshape(-1, w.shape[-1])


def _matrix(facts: NodeFacts, w: np.ndarray) -> np.ndarray:
    return _centred(facts, w).astype(np.int8, copy=False)


def _columns(facts: NodeFacts) -> IntExpr:
    return facts.input_shape(1)[0 if _is_conv(facts) else -1]


def _width(facts: NodeFacts) -> int:
    return panel_width(const(MANY), _columns(facts), facts.target, dtypes.int32.itemsize)


def _pairing(facts: NodeFacts) -> Pairing:
    return pair_bytes(_matrix(facts, _weight(facts)), _width(facts), _run(facts))


# -- the sums --------------------------------------------------------------------------------------------------------
def _sums(ctx: LowerContext, element: Element, rows: IntExpr, unsigned: bool) -> Sums:
    """The sums of bytes times the constant operand 1. ``unsigned``: bytes are read where they lie if nothing moves."""
    pairing, run = _pairing(ctx), _run(ctx)
    panels, steps, width = pairing.shape
    in_order = None if unsigned and pairing.order is None else _in_order(ctx, element, rows, pairing)
    packed = _table(ctx, "paired", pairing.shape, dtypes.int32, lambda p, w: p.apply(w).words)
    at = None
    if pairing.moves:
        at = _table(ctx, "at", (panels, steps), dtypes.int32, lambda p, w: p.apply(w).at)
    q, of_group, words = ctx.axis(const(steps), "q"), panels // pairing.groups, run // WORDS.per

    def word(m: IntExpr, no: IntExpr) -> Val:
        which = q.index if at is None else at[no, q.index].cast(dtypes.int64).as_index()
        if in_order is not None:
            group = const(0) if pairing.groups == 1 else no // of_group
            bytes_ = [in_order[group, m, which * WORDS.per + j] for j in range(WORDS.per)]
        else:
            bytes_ = [element(m, which // words, which % words * WORDS.per + j) for j in range(WORDS.per)]
        return WORDS.of([b.cast(dtypes.int32) for b in bytes_])

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(WORDS.times(word(m, no), packed[no, q.index, ni]), q)

    full = (rows, const(panels), const(width))
    acc = ctx.stage(compute(ctx.name("acc"), full, formula, axis_names=["m", "no", "ni"]))
    return lambda row, column: acc[row, column // width, column % width]


def _in_order(ctx: LowerContext, element: Element, rows: IntExpr, pairing: Pairing) -> Tensor:
    """A stage of the bytes, ``[group, row, depth]``, in the orders of ``pairing``, and what fills the last vector."""
    run, depth = _run(ctx), _matrix(ctx, _weight(ctx)).shape[0]
    windows, places = Windows(depth, run), None
    of_run, last = windows.of_run, len(windows.starts()) - 1
    if pairing.order is not None:
        groups, filled = pairing.order.shape
        depth = filled + -filled % max(WINDOW, ctx.target.lanes(1))
        added = (0, 0), (0, depth - filled)
        places = _table(
            ctx,
            "places",
            (groups, depth),
            dtypes.uint8,
            lambda p, w: None if p.order is None else np.pad(p.order, added),
        )

    def byte(g: IntExpr, m: IntExpr, k: IntExpr) -> Val:
        if places is None:
            return element(m, k // run, k % run)
        window = k // WINDOW if depth == WINDOW * (last + 1) else minimum(k // WINDOW, last)
        place = op("bit_and", places[g, k], WINDOW - 1).cast(dtypes.int64).as_index()
        first = window % of_run * WINDOW
        if run % WINDOW:
            first = minimum(first, max(0, run - WINDOW))
        return element(m, window // of_run, first + place)

    full = (const(pairing.groups), rows, const(depth))
    return ctx.stage(compute(ctx.name("bytes"), full, byte, axis_names=["g", "m", "k"]))


def _table(
    ctx: LowerContext, name: str, shape: Sequence[int], dtype: DType,
    of: Callable[[Pairing, np.ndarray], np.ndarray | None],
) -> Tensor:  # fmt: skip
    """What the pairing makes ``of`` the weight, as a constant."""
    matrix, width, run = partial(_matrix, ctx), _width(ctx), _run(ctx)

    def transform(w: np.ndarray) -> np.ndarray:
        own = matrix(w)
        found = of(pair_bytes(own, width, run), own)
        if found is None:
            raise InternalError(f"{ctx.node.name}: the pairing has no {name}")
        return found

    return ctx.packed(1, transform, shape, f"{name}_{zero_key(ctx)}_{width}", dtype)


def _result(ctx: LowerContext, depth: IntExpr) -> Callable[[Val, Val, IntExpr], Val]:
    """``f(sum, zero point of A, column)``: the sum less what the zero point adds."""
    moved = moved_b(ctx.input(1).dtype)

    def sums(w: np.ndarray) -> np.ndarray:
        found: np.ndarray = _centred(ctx, w.view(np.uint8) ^ np.uint8(MOVED) if moved else w).sum(0, dtype=np.int32)
        return found

    of_columns = sums_of_b(ctx, (_columns(ctx),), sums, f"centred_{zero_key(ctx)}")
    return lambda total, za, col: without_zero_points(total, za, za, of_columns(col, za), None, depth)


def _unsigned(v: Val, by: int) -> Val:
    return (v.cast(dtypes.int32) + by).cast(dtypes.uint8) if by else v


def _lower_product(ctx: LowerContext) -> tuple[Tensor, ...]:
    p, read = product_sizes(ctx), left_operand(ctx)
    a_by = moved_a(ctx.input(0).dtype)

    def element(row: IntExpr, run: IntExpr, place: IntExpr) -> Val:
        bi, at = place_of_row(p, row)
        return _unsigned(read(bi, at, place), a_by)

    acc, finished = _sums(ctx, element, p.rows, not a_by), _result(ctx, p.k)

    def result(bi: Sequence[IntExpr], row: IntExpr, col: IntExpr) -> Val:
        za = zero_point(ctx.optional(2), lambda t: row_parameter(t, (*bi, row, col)), a_by)
        return finished(acc(flatten((*bi, row), p.row_extents), col), za, col)

    return product_result(ctx, result)


def _lower_conv(ctx: LowerContext) -> tuple[Tensor, ...]:
    shape, x = conv_shape(ctx), ctx.input(0)
    a_by, channels, run = moved_a(x.dtype), int(shape.channels), _run(ctx)
    za = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), a_by)
    in_place = all(k == 1 for k in shape.kernel) and not shape.needs_padding and run == channels >= WINDOW
    rows = None
    if not in_place:
        room = max(run, WINDOW) - _together(ctx)
        rows = padded_rows(ctx, shape, za.cast(dtypes.uint8), lambda v: _unsigned(v, a_by), room)

    def element(row: IntExpr, run: IntExpr, place: IntExpr) -> Val:
        n, *at = unflatten(row, shape.out_spatial)
        *outer, last = (p * s for p, s in zip(at, shape.strides, strict=True))
        if rows is None:
            return _unsigned(x[shape.element(n, place, (*outer, last))], a_by)
        taps = unflatten(run, [const(k) for k in shape.kernel[1:-1]])
        above = [p + t * d for p, t, d in zip(outer, taps, shape.dilations, strict=False)]
        return rows[(n, *above, last * channels + place)]

    pixels = product((shape.batch, *shape.out_spatial))
    acc = _sums(ctx, element, pixels, rows is not None or not a_by)
    finished = _result(ctx, shape.depth * prod(shape.kernel))
    return conv_result(ctx, shape, lambda n, c, at: finished(acc(flatten((n, *at), shape.out_spatial), c), za, c))


# -- when ------------------------------------------------------------------------------------------------------------
def _refusal(facts: NodeFacts, rows: IntExpr) -> str | None:
    if share_of_paired_bytes(facts.target) is None:
        return "no sums of two products of bytes on the target, or such of four"
    if facts.constant(1) is None:
        return "the weight is not constant"
    if facts.has_input(3) and facts.constant(3) is None:
        return "the zero point of the weight is not constant"
    if any(d == 0 for d in facts.input_shape(1)):
        return "an empty weight"
    if (n := rows.value()) is not None and n < LEAST_ROWS:
        return f"{n} rows, expected at least {LEAST_ROWS}"
    centred, int8 = _centred(facts, _weight(facts)), np.iinfo(np.int8)
    fits = centred.dtype == np.int8 or (centred.min() >= int8.min and centred.max() <= int8.max)
    return None if fits else "the weight less its zero point does not fit in int8"


def _product_refusal(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.constant_b or p.b_rank == 1:
        return "the second operand is not a constant matrix"
    k = p.k.value() or 0
    if k < WINDOW or k % WORDS.per:
        return f"sums over {p.k}, expected a multiple of {WORDS.per}, at least {WINDOW}"
    return _refusal(facts, p.rows)


def _conv_refusal(facts: NodeFacts) -> str | None:
    shape = conv_shape(facts)
    if shape.groups > 1 or not shape.channels_last or not shape.channels.is_const:
        return "not a convolution of one group, with a known number of channels, which are last"
    if shape.dilations[-1] > 1 and shape.kernel[-1] > 1:
        return "the taps of a row do not lie together"
    return _refusal(facts, product((shape.batch, *shape.out_spatial)))


def _cost(facts: NodeFacts) -> float:
    """The steps in all lanes, and that the weight is read."""
    pairing = _pairing(facts)
    if _is_conv(facts):
        shape = conv_shape(facts)
        rows = assumed((shape.batch, *shape.out_spatial), MANY)
    else:
        rows = known_rows(product_sizes(facts))
    panels, steps, width = pairing.shape
    each = rows * pairing.time * WORDS.per * (share_of_paired_bytes(facts.target) or 0.0)
    return float(panels * width * (each + steps * facts.target.costs.weight_load))


OF_MATRICES = Implementation("MatMulInteger", "paired_bytes", _lower_product, _cost, _product_refusal)
OF_PIXELS = Implementation("ConvInteger", "paired_bytes", _lower_conv, _cost, _conv_refusal)
