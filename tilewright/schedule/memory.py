"""Steps that were taken before: schedules that begin alike share the work of their first steps.

Functions are immutable, so a step on one function object always gives the same. A search makes many schedules of one
function that differ in a decision or two; up to that decision all their steps are found here. Dropped as a whole when
it is full, so that it stays bounded.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import Primitive
from tilewright.tensor_ir.ir import Func

_Taken = tuple[Func, tuple[str, ...]]


class StepMemory:
    """Results, and refusals, of primitives by the identity of the function and the primitive's arguments."""

    def __init__(self, limit: int = 6_000) -> None:
        self._limit = limit
        self._known: dict[tuple[int, Primitive], _Taken | str] = {}
        self._alive: dict[int, Func] = {}

    def apply(self, primitive: Primitive, func: Func) -> _Taken:
        """``func`` transformed, and the names made. Raises ScheduleError when the step is refused."""
        key = (id(func), primitive)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._limit:
                self._known.clear()
                self._alive.clear()
            self._alive[id(func)] = func  # an id means something only while its object lives
            try:
                after = primitive.apply(func)
                found = (after, primitive.produces(func, after))
            except ScheduleError as e:
                self._known[key] = str(e)
                raise
            self._known[key] = found
        if isinstance(found, str):
            raise ScheduleError(found)
        return found
