"""sample_compute_location: the loop at which a stage is to be computed, kept in the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_block, find_loop, refuse
from tilewright.tensor_ir.ir import Func

ROOT = "root"
INLINE = "inline"


@dataclass(frozen=True, slots=True)
class SampleComputeLocation(Primitive):
    """Record that ``block`` is to be computed at the loop ``decision``, left at the root, or inlined where it is read.

    Rewrite::

        f  -->  f

    Keeps: everything; a compute_at or compute_inline behind it in the trace carries the decision.
    Refuses:

    - the decision is not one of the candidates

    Cost: none.
    """

    name: ClassVar[str] = "sample_compute_location"
    block: str
    candidates: tuple[str, ...]
    decision: str

    def apply(self, func: Func) -> Func:
        """``func`` itself. Raises ScheduleError for an unknown block, loop or decision."""
        find_block(func, self.block, self)
        if self.decision not in self.candidates:
            shown = ", ".join(self.candidates)
            raise refuse(self, f"the decision is not one of the candidates {shown}: {self.decision}")
        if self.decision not in (ROOT, INLINE):
            find_loop(func, self.decision, self)
        return func
