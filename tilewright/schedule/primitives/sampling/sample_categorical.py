"""sample_categorical: a named decision among given values, kept in the trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, refuse
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class SampleCategorical(Primitive):
    """Record that ``decision`` was taken among ``candidates``.

    Rewrite::

        f  -->  f

    Keeps: everything; the steps behind it in the trace carry the value.
    Refuses:

    - the decision is not one of the candidates

    Cost: none.
    """

    name: ClassVar[str] = "sample_categorical"
    label: str
    candidates: tuple[int | str, ...]
    decision: int | str

    def apply(self, func: Func) -> Func:
        """``func`` itself. Raises ScheduleError when the decision is not among the candidates."""
        if self.decision not in self.candidates:
            shown = ", ".join(map(str, self.candidates))
            raise refuse(self, f"the decision is not one of the candidates {shown}: {self.decision}")
        return func
