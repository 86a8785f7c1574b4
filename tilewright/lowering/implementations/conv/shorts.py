"""Convolutions of bytes as int16, two channels at a time: ``acc[m, no, ni] += dot2i(X2[pixel, taps, q], W2[...])``.

For CPUs that multiply int16 in pairs (``pmaddwd``) and not bytes in fours. Zero points are taken off the elements,
which int16 holds, so that nothing is left to take off the sums; borders are zeros. A stage widens the input; the weight
is widened and packed at build time.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable

import numpy as np

from tilewright.core import dtypes
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.conv_shape import conv_result, conv_shape
from tilewright.lowering.geometry.conv_weight import conv_weight
from tilewright.lowering.geometry.quads import zero_point
from tilewright.lowering.geometry.words import SHORTS as WORDS
from tilewright.lowering.geometry.words import words_of_image
from tilewright.lowering.implementations.conv.cost import plain_cost, useful_lanes
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.machine.vectors import share_of_shorts
from tilewright.tensor_ir.compute import Tensor, Val, constant, op

LOW = 0xFFFF
"""The bits of an int16."""


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    shape = conv_shape(ctx)
    in_pairs = dataclasses.replace(shape, channels=WORDS.count(shape.depth) * shape.groups)
    zero = constant(0, dtypes.int32)
    zx = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), 0)

    def bits(v: Val) -> Val:
        return op("bit_and", v.cast(dtypes.int32) - zx, constant(LOW, dtypes.int32))

    read = words_of_image(ctx, shape, in_pairs, WORDS, bits, lambda step: zero, in_place=False)
    own = centred(ctx)
    weight = conv_weight(ctx, in_pairs, dtypes.int32, lambda w: WORDS.pack_oihw(own(w)), zero_key(ctx), lambda *_: zero)
    return conv_result(ctx, shape, sums(ctx, in_pairs, dtypes.int32, read, weight, times=WORDS.times))


def centred(facts: NodeFacts) -> Callable[[np.ndarray], np.ndarray]:
    """Makes int16 of the weight less its zero points."""
    zero = facts.constant(3)

    def transform(w: np.ndarray) -> np.ndarray:
        own = np.int16(0) if zero is None else zero.array.astype(np.int16).reshape(-1, *(1,) * (w.ndim - 1))
        found: np.ndarray = w.astype(np.int16) - own
        return found

    return transform


def zero_key(facts: NodeFacts) -> str:
    """What tells apart weights that had different zero points taken off."""
    zero = facts.constant(3)
    return "shorts" if zero is None else f"shorts_{hashlib.sha1(zero.array.tobytes()).hexdigest()}"


def refusal(facts: NodeFacts, weight: int = 1, zero: int = 3) -> str | None:
    """Why zero points cannot be taken off a weight when the model is built."""
    if facts.constants[weight] is None:
        return "the weight is not constant"
    if facts.has_input(zero) and facts.constants[zero] is None:
        return "the zero point of the weight is not constant"
    return "an empty weight" if any(d == 0 for d in facts.input_shape(weight)) else None


def _time(facts: NodeFacts) -> float:
    shape = conv_shape(facts)
    depth = shape.depth.value() or 2
    return share_of_shorts(facts.target) * plain_cost(facts) * (-(-depth // 2) * 2 / depth) / useful_lanes(facts)


SHORTS = by_pixels_and_rows("ConvInteger", "shorts", _lower, _time, conv_shape, refusal)
