"""sample_perfect_tile: factors of a loop that multiply to its extent, kept in the trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class SamplePerfectTile(Primitive):
    """Record that ``loop`` is to be split into ``decision``, factors from the outermost in.

    Rewrite::

        f  -->  f

    Keeps: everything; a split behind it in the trace carries the factors.
    Refuses:

    - the extent is not a constant
    - the factors do not multiply to the extent
    - the innermost factor is above the limit

    Cost: none.
    """

    name: ClassVar[str] = "sample_perfect_tile"
    loop: str
    max_innermost: int
    decision: tuple[int, ...]

    def apply(self, func: Func) -> Func:
        """``func`` itself. Raises ScheduleError when the factors do not fit the loop."""
        extent = find_loop(func, self.loop, self).extent.value()
        if extent is None:
            raise refuse(self, "the extent is not a constant")
        if not self.decision or math.prod(self.decision) != extent:
            raise refuse(self, f"the factors do not multiply to the extent {extent}: {self.decision}")
        if self.decision[-1] > self.max_innermost:
            raise refuse(self, f"the innermost factor is above the limit {self.max_innermost}: {self.decision[-1]}")
        return func


def perfect_tiles(extent: int, parts: int, max_innermost: int) -> tuple[tuple[int, ...], ...]:
    """Every way to write ``extent`` as ``parts`` factors, the last at most ``max_innermost``; in increasing order."""
    if parts == 1:
        return ((extent,),) if extent <= max_innermost else ()
    out: list[tuple[int, ...]] = []
    for first in range(1, extent + 1):
        if extent % first == 0:
            out += [(first, *rest) for rest in perfect_tiles(extent // first, parts - 1, max_innermost)]
    return tuple(out)
