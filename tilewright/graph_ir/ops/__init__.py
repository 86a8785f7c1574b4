"""The operator table: name -> definition. One file per family.

Takes: nothing. Gives: ``OPS``, each operator's pattern kind, arity, inference rule and traits; ``op_def`` of a node.
May import: core, reference (the sizes that Resize rounds to), graph_ir.ir, graph_ir.kinds.
Never: an operator's arithmetic (that is ``reference``'s).
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import (
    arithmetic,
    casts,
    control,
    elementwise,
    generators,
    own,
    reduction,
    sequences,
    strings,
)
from tilewright.graph_ir.ops.base import OpDef
from tilewright.graph_ir.ops.layers import convolution, image, linear, normalization, pooling, recurrent, signal
from tilewright.graph_ir.ops.movement import copies, indexing, view

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
    **copies.OPS,
    **indexing.OPS,
    **generators.OPS,
    **recurrent.OPS,
    **signal.OPS,
    **control.OPS,
    **sequences.OPS,
    **strings.OPS,
    **own.OPS,
}

_UNKNOWN = OpDef("", PatternKind.HOST, elementwise.same, 0, None, 0, None, deterministic=False, fold_limit=0)


def op_def(node: Node) -> OpDef:
    """The definition of a node's operator; of one that the table does not know, a host operator without traits."""
    if node.definition is not None:
        return node.definition
    return _UNKNOWN if node.domain else OPS.get(node.op, _UNKNOWN)


def is_known(node: Node) -> bool:
    """True for an operator of the table, and for one that brings its definition along."""
    return node.definition is not None or (not node.domain and node.op in OPS)


__all__ = ["OPS", "OpDef", "is_known", "op_def"]
