"""Grouped convolutions: where the panels of the groups lie, and which groups are computed as one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.core.arith.expr import IntExpr, ceildiv
from tilewright.lowering.geometry.packing import panel_width
from tilewright.machine.target import Target


@dataclass(frozen=True)
class Panels:
    """Where the output channels of ``groups`` groups lie: whole panels of ``width`` for each group, group by group.

    ``depth``: input channels of a group; ``per_group``: its output channels.
    """

    groups: int
    depth: IntExpr
    per_group: IntExpr
    width: int

    @cached_property
    def each(self) -> IntExpr:
        """Panels of a group."""
        return ceildiv(self.per_group, self.width)

    @cached_property
    def count(self) -> IntExpr:
        return self.each * self.groups

    def channel(self, panel: IntExpr, ic: IntExpr) -> IntExpr:
        """The input channel that step ``ic`` of ``panel`` reads."""
        return ic if self.groups == 1 else panel // self.each * self.depth + ic

    def place(self, c: IntExpr) -> tuple[IntExpr, IntExpr]:
        """Panel and column of output channel ``c``."""
        if self.groups == 1 or (self.per_group % self.width).value() == 0:
            return c // self.width, c % self.width
        inner = c % self.per_group
        return c // self.per_group * self.each + inner // self.width, inner % self.width


def group_panel_width(rows: IntExpr, per_group: IntExpr, groups: int, target: Target, itemsize: int) -> int:
    """Columns of a panel; they end with a group's where vectors do."""
    width = panel_width(rows, per_group, target, itemsize)
    lanes, n = target.lanes(itemsize), per_group.value()
    return lanes if groups > 1 and n is not None and n % width and n % lanes == 0 else width


def groups_in_a_vector(per_group: int, groups: int, lanes: int) -> int:
    """How many groups to compute as one whose weight has zeros between them: as many as fill the vector of one.

    The vector would hold zeros otherwise; its results now lie side by side, as the output has them. What is not finite
    in one group makes NaN of the results of those beside it.
    """
    room = -(-per_group // lanes) * lanes
    return max(r for r in range(1, lanes + 1) if groups % r == 0 and (r == 1 or r * per_group <= room))


def side_by_side(w: np.ndarray, groups: int, beside: int) -> np.ndarray:
    """``[OC, IC / (groups * beside), taps...]`` to ``[OC, IC / groups, taps...]``, with zeros between the groups."""
    if beside == 1:
        return w
    split = w.reshape(groups, beside, -1, *w.shape[1:])
    out = np.zeros((groups, beside, split.shape[2], beside, *w.shape[1:]), w.dtype)
    for n in range(beside):
        out[:, n, :, n] = split[:, n]
    return out.reshape(w.shape[0], beside * w.shape[1], *w.shape[2:])
