"""Softmax and its kin until 12: the operand was made a matrix at ``axis``, 1 by default, and its rows normalized."""

from __future__ import annotations

from tilewright.writer.forms import NEGATIVE_AXES, Site


def along_the_last_axis(s: Site) -> None:
    """Rows of the last axis with more than one element are the same; another one is moved to the end and back."""
    x = s.input(0)
    if s.number("axis", -1) == -1 and s.opset >= NEGATIVE_AXES:
        s.raw(x, axis=-1)
        return
    rank = s.rank(x)
    axis = int(s.number("axis", -1)) % max(rank, 1)
    behind = s.value(x).shape[axis + 1 :]
    if all(d.value() == 1 for d in behind):
        s.raw(x, axis=axis)
        return
    perm = (*(a for a in range(rank) if a != axis), axis)
    moved = s.op("Transpose", x, perm=perm)
    rows = s.like(moved, "rows")
    s.raw(moved, outputs=(rows,), axis=rank - 1)
    s.instead("Transpose", rows, perm=tuple(perm.index(a) for a in range(rank)))
