"""All lowering rules: the literal merge of the families. An operator that is not here has no native code."""

from __future__ import annotations

from tilewright.lowering import conv, matmul
from tilewright.lowering.context import Rule
from tilewright.lowering.formulas import (
    attention,
    broadcast,
    einsum,
    elementwise,
    gather,
    generate,
    normalize,
    pad,
    pool,
    quantize,
    recurrent,
    reduce,
    scatter,
    shape,
    softmax,
)
from tilewright.lowering.formulas.images import deform_conv, grid_sample, resize, vision
from tilewright.lowering.formulas.signals import spectral, windows

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **broadcast.RULES,
    **shape.RULES,
    **pad.RULES,
    **gather.RULES,
    **generate.RULES,
    **scatter.RULES,
    **reduce.RULES,
    **softmax.RULES,
    **normalize.RULES,
    **pool.RULES,
    **resize.RULES,
    **attention.RULES,
    **vision.RULES,
    **windows.RULES,
    **grid_sample.RULES,
    **quantize.RULES,
    **matmul.RULES,
    **einsum.RULES,
    **spectral.RULES,
    **conv.RULES,
    **deform_conv.RULES,
    **recurrent.RULES,
}
