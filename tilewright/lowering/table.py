"""What lowers every operator: the literal merge of the families of formulas, and of the operators with several
implementations. One that is not here has no native code."""

from __future__ import annotations

from tilewright.lowering.context import Lower
from tilewright.lowering.formulas import (
    attention,
    broadcast,
    elementwise,
    gather,
    generate,
    normalize,
    pad,
    quantize,
    recurrent,
    reduce,
    scatter,
    shape,
    softmax,
)
from tilewright.lowering.formulas.images import deform_conv, grid_sample, resize, vision
from tilewright.lowering.formulas.signals import spectral, windows
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.table import IMPLEMENTATIONS

LOWER: dict[str, Lower] = {
    **elementwise.LOWER,
    **broadcast.LOWER,
    **shape.LOWER,
    **pad.LOWER,
    **gather.LOWER,
    **generate.LOWER,
    **scatter.LOWER,
    **reduce.LOWER,
    **softmax.LOWER,
    **normalize.LOWER,
    **resize.LOWER,
    **attention.LOWER,
    **vision.LOWER,
    **windows.LOWER,
    **grid_sample.LOWER,
    **quantize.LOWER,
    **spectral.LOWER,
    **deform_conv.LOWER,
    **recurrent.LOWER,
}


def only(op: str, lower: Lower) -> tuple[Implementation, ...]:
    """The implementations of an operator that is computed in one way."""
    return (Implementation(op, "only", lower, lambda facts: 0.0),)


TABLE: dict[str, tuple[Implementation, ...]] = {**{op: only(op, r) for op, r in LOWER.items()}, **IMPLEMENTATIONS}
"""What can compute a node, by operator."""
