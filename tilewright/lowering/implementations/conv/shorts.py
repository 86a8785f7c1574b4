"""Convolutions of bytes as int16, two channels at a time: ``acc[m, no, ni] += dot2i(X2[pixel, taps, q], W2[...])``.

For CPUs that multiply int16 in pairs (``pmaddwd``) and not bytes in fours. Zero points are taken off the elements,
which int16 holds, so that nothing is left to take off the sums; borders are zeros. A stage widens the input; the weight
is widened and packed at build time. Of an image with an odd number of channels the taps of a row are channels, which
are fewer words (three taps of three channels: five for six), and the image is widened as it lies.
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
from tilewright.lowering.geometry.conv_weight import conv_weight, named, weight_rows
from tilewright.lowering.geometry.quads import zero_point
from tilewright.lowering.geometry.words import SHORTS as WORDS
from tilewright.lowering.geometry.words import in_fewer_words, words_of_image, words_of_rows
from tilewright.lowering.implementations.conv.cost import cost_in_words
from tilewright.lowering.implementations.conv.direct import Sums
from tilewright.lowering.implementations.conv.implicit_gemm import by_pixels_and_rows
from tilewright.machine.vectors import share_of_shorts
from tilewright.tensor_ir.compute import Tensor, Val, constant, op

LOW = 0xFFFF
"""The bits of an int16."""


def _lower(sums: Sums, ctx: LowerContext) -> tuple[Tensor, ...]:
    whole = conv_shape(ctx)
    shape = in_fewer_words(WORDS, whole)
    in_pairs = dataclasses.replace(shape, channels=WORDS.count(shape.depth) * shape.groups)
    zero = constant(0, dtypes.int32)
    zx = zero_point(ctx.optional(2), lambda t: ctx.scalar(2), 0)

    def less_zero(v: Val) -> Val:
        return v.cast(dtypes.int32) - zx

    def low(v: Val) -> Val:
        return op("bit_and", v.cast(dtypes.int32), constant(LOW, dtypes.int32))

    if shape is whole:
        read = words_of_image(ctx, shape, in_pairs, WORDS, lambda v: low(less_zero(v)), lambda step: zero, False)
    else:
        border = constant(0, dtypes.int16)
        read = words_of_rows(ctx, whole, in_pairs, WORDS, border, lambda v: less_zero(v).cast(dtypes.int16), low)
    own = centred(ctx)
    weight = conv_weight(
        ctx, in_pairs, dtypes.int32, lambda w: WORDS.pack_oihw(weight_rows(own(w), shape)),
        named(zero_key(ctx), shape), lambda *_: zero,
    )  # fmt: skip
    return conv_result(ctx, whole, sums(ctx, in_pairs, dtypes.int32, read, weight, times=WORDS.times))


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
    return cost_in_words(facts, WORDS, share_of_shorts(facts.target))


SHORTS = by_pixels_and_rows("ConvInteger", "shorts", _lower, _time, conv_shape, refusal)
