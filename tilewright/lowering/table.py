"""All lowering rules: the literal merge of the families. An operator that is not here has no native code."""

from __future__ import annotations

from tilewright.lowering import (
    attention,
    broadcast,
    conv,
    einsum,
    elementwise,
    gather,
    generate,
    grid_sample,
    matmul,
    normalize,
    pad,
    pool,
    quantize,
    recurrent,
    reduce,
    resize,
    scatter,
    shape,
    softmax,
    spectral,
    vision,
    windows,
)
from tilewright.lowering.context import Rule

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
    **recurrent.RULES,
}
