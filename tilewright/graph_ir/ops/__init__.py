"""The operator table: name -> definition. One file a family.

Takes: nothing. Gives: ``OPS``, each operator's pattern kind, arity and inference rule.
May import: core, reference (the sizes that Resize rounds to), graph_ir.ir, graph_ir.kinds.
Never: an operator's arithmetic (that is ``reference``'s).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph_ir.ops import (
    arithmetic,
    casts,
    control,
    convolution,
    elementwise,
    generators,
    image,
    indexing,
    linear,
    movement,
    normalization,
    own,
    pooling,
    recurrent,
    reduction,
    sequences,
    signal,
    strings,
    view,
)
from tilewright.graph_ir.ops.base import OpDef

OPS: Mapping[str, OpDef] = {
    **elementwise.OPS,
    **arithmetic.OPS,
    **casts.OPS,
    **reduction.OPS,
    **linear.OPS,
    **convolution.OPS,
    **pooling.OPS,
    **normalization.OPS,
    **image.OPS,
    **view.OPS,
    **movement.OPS,
    **indexing.OPS,
    **generators.OPS,
    **recurrent.OPS,
    **signal.OPS,
    **control.OPS,
    **sequences.OPS,
    **strings.OPS,
    **own.OPS,
}

__all__ = ["OPS", "OpDef"]
