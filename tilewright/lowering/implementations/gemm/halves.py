"""A product of float32 with a weight whose elements are all numbers of 16 bits, and which is kept so.

Models are trained and published in float16 and bfloat16, and exported in float32. Nothing is rounded: a weight of which
one element is no such number is left alone. Where a row is multiplied alone, as a language model does for each token,
reading the weight takes longest, and half of the bytes take half of the time.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import ml_dtypes
import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Constant
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.few_bits import panel_columns
from tilewright.lowering.geometry.packing import pack_columns
from tilewright.lowering.geometry.product import LEAST_ROWS, computed_type, product_sizes
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.gemm.by_rows import Kept, by_rows, in_registers, kept, panels_stay
from tilewright.lowering.implementations.gemm.cost import MANY, cost_by_row
from tilewright.machine.vectors import converts_halves
from tilewright.tensor_ir.compute import Tensor, Val

_PER_ROW, _PER_HALF = 1.35, 0.5
"""The time for each element and row where a tile of rows converts it, and more for each element once, in
multiply-adds."""

_SIZE = 0.5
"""The share of a float32 that an element takes."""

_LEAST_ELEMENTS = 1 << 16
"""Of a weight for which it is worth to read half of the bytes."""


def _in_registers(ctx: LowerContext) -> tuple[Tensor, ...]:
    return in_registers(ctx, _kept(ctx))


def _by_rows(ctx: LowerContext) -> tuple[Tensor, ...]:
    w = _kept(ctx)
    return by_rows(ctx, replace(w, many=None) if panels_stay(ctx) else w, LEAST_ROWS)


def _kept(ctx: LowerContext) -> Kept:
    p, kind, width = product_sizes(ctx), _kind(ctx), panel_columns(ctx)
    if kind is None:
        raise ctx.unsupported("a weight of numbers that 16 bits do not hold")

    def pack(w: np.ndarray) -> np.ndarray:
        return pack_columns(w.reshape(w.shape[0], prod(w.shape[1:])).astype(kind.numpy), width, kind.numpy)

    packed = ctx.packed(1, pack, (ceildiv(p.n, width), p.k, width), f"halves_{width}", kind)

    def element(no: IntExpr, k: IntExpr, ni: IntExpr) -> Val:
        return packed[no, k, ni].cast(dtypes.float32)

    return kept(ctx, width, element)


def _kind(facts: NodeFacts) -> DType | None:
    """float16 or bfloat16, if that holds each element of the weight and vectors of it are converted fast."""
    return facts.once("kind_of_halves", lambda: _find_kind(facts))


def _find_kind(facts: NodeFacts) -> DType | None:
    weight = facts.constants[1]
    if weight is None:
        return None
    kinds = map(dtypes.from_name, converts_halves(facts.target))
    return next((t for t in kinds if _holds(t, weight)), None)


def _holds(kind: DType, weight: Constant) -> bool:
    """Whether ``kind`` has each element; of what a file stores in it, that is known without reading it."""
    content = weight.content
    if isinstance(content, np.ndarray):
        return _has_all(kind, content)
    return content.stored == kind.numpy or kind in content.once("types of 16 bits", _held_by)


def _held_by(elements: np.ndarray) -> tuple[DType, ...]:
    return tuple(t for t in (dtypes.float16, dtypes.bfloat16) if _has_all(t, elements))


def _has_all(kind: DType, elements: np.ndarray) -> bool:
    flat, info = elements.reshape(-1), ml_dtypes.finfo(kind.numpy)  # type: ignore[no-untyped-call]
    lost = (1 << np.finfo(np.float32).nmant - info.nmant) - 1
    if np.bitwise_or.reduce(flat.view(np.uint32)) & lost or not np.isfinite(flat).all():
        return False
    size = np.abs(flat)
    small = flat[size < info.smallest_normal]
    return bool(size.max(initial=0) <= info.max) and np.array_equal(small.astype(kind.numpy).astype(np.float32), small)


def _applies(facts: NodeFacts) -> str | None:
    p = product_sizes(facts)
    if not p.constant_b or computed_type(facts) != dtypes.float32 or facts.constants[1] is None:
        return "the second operand is not a constant matrix of float32"
    if facts.constants[1].dtype != np.float32:
        return f"a weight of {facts.constants[1].dtype}"
    if facts.constants[1].size < _LEAST_ELEMENTS:
        return "a small weight"
    if (rows := p.rows.value()) is not None and rows > MANY:
        return "so many rows take longer than the weight"
    return None if _kind(facts) is not None else "a weight of numbers that 16 bits do not hold"


def _cost_in_registers(facts: NodeFacts) -> float:
    return cost_by_row(facts, _PER_ROW, _PER_HALF, _SIZE)


def _cost_by_rows(facts: NodeFacts) -> float:
    """Less for one row as for many; nothing is to choose where their number is known."""
    chooses = product_sizes(facts).rows.value() is None
    return cost_by_row(facts, 1.0, 0.0, _SIZE) if chooses else 1.01 * _cost_in_registers(facts)


HALVES = Implementation("MatMul", "halves", _in_registers, _cost_in_registers, _applies)
BY_ROWS = Implementation("MatMul", "halves_by_rows", _by_rows, _cost_by_rows, _applies)
