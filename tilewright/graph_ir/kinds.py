"""Pattern kinds: what fusion needs to know of an operator, in the way of TVM's operator patterns."""

from __future__ import annotations

from enum import Enum


class PatternKind(Enum):
    """How the elements of an operator's outputs depend on its inputs.

    The order below is the order of growing restriction; fusion reads the members, never the numbers.
    """

    VIEW = "view"  # the reshape family: the same bytes in the same order, no data moves
    INJECTIVE = "injective"  # one output element reads one input element each, at a computed place (transpose, gather)
    BROADCAST = "broadcast"  # elementwise with broadcasting
    REDUCTION = "reduction"  # elementwise may come before it
    OUT_FUSABLE = "out_fusable"  # matmul, convolution: elementwise may follow
    OPAQUE = "opaque"  # lowered natively, alone (softmax, norms, pools, ...)
    HOST = "host"  # runs on the host in numpy: strings, sequences, data-dependent sizes
    CONTROL = "control"  # has subgraphs
