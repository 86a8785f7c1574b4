"""Rotary positions: pairs of the elements of a head turned by angles that grow with the position.

A head of 2 * h elements is seen as [2, h] (its first half and its second), or as [h, 2] where pairs are neighbours.
Turned it is ``x * cos + x[::-1] * [-sin, sin]``, the reversal along the axis of two: no halves are cut out or joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule, contrib

_TO_FRONT = np.iinfo(np.int64).min
WIDE = "float32"


@dataclass(frozen=True, slots=True)
class Rotary:
    """Cosines and sines that broadcast to pairs: [..., 1, half], or [..., half, 1] if ``interleaved``.

    ``size``: elements of a head that are turned; ``head``: all of them, None where that is not known.
    """

    cos: str
    sin: str
    size: int
    head: int | None
    interleaved: bool

    @property
    def pairs(self) -> tuple[int, int]:
        return (self.size // 2, 2) if self.interleaved else (2, self.size // 2)


def wide(build: GraphBuilder, x: str) -> str:
    """A narrow float as float32."""
    dtype = build.dtype(x)
    if dtype is None or not dtype.is_narrow_float:
        return x
    return build.emit("Cast", (x,), WIDE, to=dtypes.float32)


def size_of(build: GraphBuilder, x: str, axis: int) -> str:
    """One dim of a value, as a vector of one element."""
    end = {} if axis == -1 else {"end": axis + 1}
    return build.emit("Shape", (x,), "size", start=axis, **end)


def count_from(build: GraphBuilder, start: str, stop: str) -> str:
    """The integers from ``start`` to ``stop``, which are vectors of one element."""
    ends = (build.emit("Squeeze", (v,), "end") for v in (start, stop))
    return build.emit("Range", (*ends, build.constant(np.array(1, np.int64), "step")), "positions")


def angles(build: GraphBuilder, caches: tuple[str, str], positions: str, interleaved: bool) -> tuple[str, str]:
    """The rows at ``positions`` of the caches of cosines and sines [rows, half], as pairs of heads take them.

    ``positions`` has an axis for each one of the heads but the last: what is turned has the pairs behind them.
    """
    cos, sin = (build.emit("Gather", (wide(build, c), positions), "angles", axis=0) for c in caches)
    return _of_pairs(build, cos, sin, interleaved)


def _of_pairs(build: GraphBuilder, cos: str, sin: str, interleaved: bool) -> tuple[str, str]:
    axis = build.ints((-1 if interleaved else -2,), "pair")
    cos, sin = (build.emit("Unsqueeze", (v, axis), "angles") for v in (cos, sin))
    signs = np.array([-1, 1], np.float32).reshape((2,) if interleaved else (2, 1))
    sign = build.emit("CastLike", (build.constant(signs, "signs"), sin), "signs")
    return cos, build.emit("Mul", (sin, sign), "signed")


def turned(
    build: GraphBuilder, x: str, heads: Sequence[int], rotary: Rotary, order: Sequence[int], shape: Sequence[int]
) -> str:
    """``x`` by heads, as Reshape takes ``heads`` (without their last axis), turned; then these axes in ``order``; then
    reshaped to ``shape``. The type stays."""
    if rotary.head != rotary.size:
        whole = build.emit("Reshape", (x, build.ints((*heads, rotary.head or -1), "heads")), "apart")
        parts = (_columns(build, whole, 0, rotary.size), _columns(build, whole, rotary.size, None))
        first = _turned(build, parts[0], heads, rotary, range(len(heads)))
        last = build.ints((*(0,) * len(heads), rotary.size), "size")
        joined = build.emit("Concat", (build.emit("Reshape", (first, last)), parts[1]), "turned", axis=-1)
        moved = build.emit("Transpose", (joined,), "moved", perm=(*order, len(heads)))
    else:
        moved = _turned(build, x, heads, rotary, order)
    return build.emit("Reshape", (moved, build.ints(shape, "shape")), "turned")


def _columns(build: GraphBuilder, x: str, start: int, stop: int | None) -> str:
    end = np.iinfo(np.int64).max if stop is None else stop
    ends = (build.ints((v,), "end") for v in (start, end, -1))
    return build.emit("Slice", (x, *ends), "columns")


def _turned(build: GraphBuilder, x: str, heads: Sequence[int], rotary: Rotary, order: Sequence[int]) -> str:
    """``x`` as pairs, turned, its other axes in ``order``."""
    pairs = build.emit("Reshape", (x, build.ints((*heads, *rotary.pairs), "pairs")), "pairs")
    pairs = wide(build, pairs)
    ends = (build.ints((v,), "end") for v in (1, _TO_FRONT, -1 if rotary.interleaved else -2, -1))
    other = build.emit("Slice", (pairs, *ends), "other")
    products = (build.emit("Mul", pair, "part") for pair in ((pairs, rotary.cos), (other, rotary.sin)))
    y = build.emit("Add", tuple(products), "turned")
    if build.dtype(x) is None or build.dtype(x) != build.dtype(y):
        y = build.emit("CastLike", (y, x), "narrow")
    n = len(heads)
    return y if list(order) == list(range(n)) else build.emit("Transpose", (y,), "moved", perm=(*order, n, n + 1))


# -- operators -----------------------------------------------------------------------------------------------------
def _contrib_rotary(call: Call, build: GraphBuilder) -> None:
    """RotaryEmbedding of onnxruntime's: positions [1], where the first row stands, or [batch, rows]."""
    x, ids, cos, sin = (call.input(i) for i in range(4))
    rank = build.rank(ids)
    if rank not in (0, 1, 2):
        call.error("position_ids of rank 1 or 2", "an unknown rank" if rank is None else f"rank {rank}")
    if rank != 2:
        steps = size_of(build, x, 1 if _heads_last(call, build) else 2)
        here = count_from(build, build.ints((0,), "start"), steps)
        at = build.emit("Add", (build.emit("Reshape", (ids, build.ints((1, 1), "one"))), here), "positions")
    else:
        at = ids
    _embed(call, build, cos, sin, at)


def _standard_rotary(call: Call, build: GraphBuilder) -> None:
    """ONNX's: caches of all positions with position_ids, or of the rows themselves, [batch, rows, half]."""
    _embed(call, build, call.input(1), call.input(2), call.input(3))


def _heads_last(call: Call, build: GraphBuilder) -> bool:
    """True for [batch, rows, heads * size], False for [batch, heads, rows, size]."""
    rank = build.rank(call.input(0))
    if rank not in (3, 4):
        call.error("an input 0 of rank 3 or 4", "an unknown rank" if rank is None else f"rank {rank}")
    return rank == 3


def _embed(call: Call, build: GraphBuilder, cos: str, sin: str, positions: str) -> None:
    x, flat = call.input(0), _heads_last(call, build)
    half = build.fixed_size(cos, -1)
    if half is None or half < 1:
        raise call.unsupported("a cache of cosines of an unknown number of columns")
    count, size = call.int_attr("num_heads", 0), call.int_attr("rotary_embedding_dim", 0)
    if size not in (0, 2 * half):
        call.error(f"an attribute rotary_embedding_dim of twice the {half} columns of the cosines", size)
    if flat and not count and size:
        call.error("an attribute num_heads >= 1", count)
    hidden = build.fixed_size(x, -1)
    own = hidden if not flat or hidden is None else hidden // count if count else None
    if size == 0:
        if own not in (None, 2 * half):
            call.error(f"heads of {2 * half} elements, twice the columns of the cosines", own)
        own = 2 * half
        count = count or (hidden or 0) // own
    heads = (0, 0, count or -1) if flat else (0, 0, 0)
    axis = build.ints((2,) if flat else (1,), "heads")
    interleaved = bool(call.int_attr("interleaved", 0))
    if positions:
        at = build.emit("Unsqueeze", (positions, axis), "positions")
        pair = angles(build, (cos, sin), at, interleaved)
    else:
        cos, sin = (build.emit("Unsqueeze", (wide(build, v), axis), "angles") for v in (cos, sin))
        pair = _of_pairs(build, cos, sin, interleaved)
    rotary = Rotary(*pair, 2 * half, own, interleaved)
    y = turned(build, x, heads, rotary, range(3), (*(0,) * (2 if flat else 3), hidden or -1))
    build.emit_to("Identity", (y,), call.outputs[:1], {})


MAKES = (
    "Reshape", "Slice", "Mul", "Add", "Gather", "Unsqueeze", "Transpose", "Concat", "Cast", "CastLike", "Shape",
    "Range", "Squeeze", "Identity",
)  # fmt: skip
RULES: Family = {"RotaryEmbedding": contrib((0, 1, 2, 3), _contrib_rotary, MAKES)}
STANDARD: Family = {"RotaryEmbedding": (Rule(23, None, _standard_rotary, MAKES),)}
