"""storage_align: room between the rows of an intermediate buffer."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.expr import IntExpr, ceildiv, product
from tilewright.schedule.base import Primitive, find_buffer, refuse, replace_stmt, require_intrinsics
from tilewright.schedule.stage_motion import alloc_of
from tilewright.tensor_ir.ir import Alloc, Func


@dataclass(frozen=True, slots=True)
class StorageAlign(Primitive):
    """Make the stride of a dimension ``k * factor + offset`` elements, by more room in the dimension inside of it.

    The least such stride that is not below the present one. A negative ``axis`` counts from the last dimension. Comes
    after ``compute_at``, which gives a buffer the shape of its region.

    Rewrite:
        alloc B[N, 13] local: S
        --> storage_align("B", axis=0, factor=8, offset=4)
        alloc B[N, 20] local: S

    Keeps: every value, bit for bit; the elements between the rows are never touched.
    Refuses:
        - the buffer is not there
        - the buffer is a parameter
        - the axis is none of the buffer's, or has no dimension inside
        - the factor is less than 1, or the offset not below it
        - the number of elements further inside is not constant
        - no stride of this form is a multiple of the elements further inside
        - a nest would no longer be what the intrinsic that runs it computes
    Cost: memory between the rows; rows that start on vectors, or that do not fall on the same cache sets, are faster.
    """

    name: ClassVar[str] = "storage_align"
    buffer: str
    axis: int
    factor: int
    offset: int = 0

    def apply(self, func: Func) -> Func:
        buffer = find_buffer(func, self.buffer, self)
        alloc = alloc_of(func, self.buffer)
        if alloc is None:
            raise refuse(self, f"expected an intermediate buffer, but {self.buffer} is a parameter of {func.name}")
        rank = len(buffer.shape)
        axis = self.axis + rank if self.axis < 0 else self.axis
        if not 0 <= axis < rank - 1:
            raise refuse(self, f"expected an axis of {rank} with a dimension inside, got {self.axis}")
        if self.factor < 1 or not 0 <= self.offset < self.factor:
            raise refuse(self, f"expected factor >= 1 and 0 <= offset < factor, got {self.factor} and {self.offset}")
        extent = self._extent(buffer.shape[axis + 1], buffer.shape[axis + 2 :])
        if extent == buffer.shape[axis + 1]:
            return func
        shape = (*buffer.shape[: axis + 1], extent, *buffer.shape[axis + 2 :])
        result = replace_stmt(func, alloc, Alloc(dataclasses.replace(buffer, shape=shape), alloc.body))
        require_intrinsics(self, func, result)
        return result

    def _extent(self, extent: IntExpr, inside: tuple[IntExpr, ...]) -> IntExpr:
        """The least ``e >= extent`` for which ``e * product(inside)`` is ``offset`` modulo ``factor``."""
        unit = product(inside).value()
        if unit is None:
            raise refuse(self, f"expected a constant number of elements further inside, got {product(inside)}")
        common = math.gcd(unit, self.factor)
        if self.offset % common:
            raise refuse(self, f"no multiple of {unit} is a multiple of {self.factor} plus {self.offset}")
        step = self.factor // common
        start = 0 if step == 1 else self.offset // common * pow(unit // common, -1, step) % step
        return ceildiv(extent - start, step) * step + start
