"""tensorize: let a tensor intrinsic's machine code run a loop nest."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import Primitive, refuse, replace_stmt, require_open
from tilewright.tensor_ir.analysis import scopes
from tilewright.tensor_ir.analysis.intrinsic_match import Mismatch, intrinsic_of, match_intrinsic
from tilewright.tensor_ir.hints import Intrinsic, with_hint
from tilewright.tensor_ir.intrinsics import find_intrinsic, intrinsic_names
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Tensorize(Primitive):
    """Run a nest that computes what an intrinsic describes by the intrinsic's machine code; the nest is a unit then.

    The loops stand as in the description, outermost first; ``split`` and ``reorder`` bring them there, ``peel`` makes
    ragged extents constant, and ``decompose_reduction`` takes initial values out where the description has none.

    Rewrite:
        for i in 8: for j in 8: B[y + i, x + j] = A[x + j, y + i]
        --> tensorize("i", intrinsic="transpose_8x8_f32")
        opaque for i in 8 {intrinsic: transpose_8x8_f32}: for j in 8: B[y + i, x + j] = A[x + j, y + i]

    Keeps: every value, as far as the intrinsic's code computes what it describes; a multiplication and an addition may
        be one operation (``fma``), as everywhere. A target that can run none of the implementations refuses later, when
        code is generated.
    Refuses:
        - the loop is not there
        - the loop is part of an opaque loop
        - an intrinsic runs the loop already
        - there is no such intrinsic
        - the intrinsic's description is not one nest
        - a loop around it is vectorized
        - a loop of the nest is neither serial nor the opaque one
        - a loop has not the extent of the description's
        - the statements are not those of the description
        - a reduction stores its initial values in the nest
        - a reduction stores other initial values than that of the description
        - a reduction with initial values is not over the loops of the description's
        - an operation is not that of the description
        - a buffer holds another element type
        - an index is read from memory
        - an access does not go in straight lines
        - an access moves with a loop where the description's does not
        - two accesses that are one in the description are not
        - the last dimension of a parameter is not made of neighbours
        - elements that are written may be the same
        - a dense parameter has gaps
        - a parameter that is written shares memory with another
    Cost: a call that LLVM inlines; what it costs is the intrinsic's business, not that of loops inside.
    """

    name: ClassVar[str] = "tensorize"
    loop: str
    intrinsic: str

    def apply(self, func: Func) -> Func:
        try:
            loop = scopes.find_loop(func, self.loop)
        except ScheduleError as e:
            raise refuse(self, str(e)) from None
        path = scopes.loop_path(func, self.loop)[:-1]
        require_open(path, self, f"loop {self.loop}")
        if (name := intrinsic_of(loop)) is not None:
            raise refuse(self, f"{name} runs the loop already")
        intrinsic = find_intrinsic(func, self.intrinsic)
        if intrinsic is None:
            known = ", ".join(intrinsic_names(func))
            raise refuse(self, f"expected an intrinsic of {func.name}, got {self.intrinsic!r}; there are: {known}")
        outer = scopes.loops_in(path)
        for x in outer:
            if x.kind == "vectorized":
                raise refuse(self, f"loop {x.var} outside is vectorized")
        found = match_intrinsic(func, loop, intrinsic, scopes.loop_ranges(outer))
        if isinstance(found, Mismatch):
            raise refuse(self, f"the loop is not {self.intrinsic}: {found.reason}")
        unit = dataclasses.replace(loop, kind="opaque", hints=with_hint(loop.hints, Intrinsic(self.intrinsic)))
        return replace_stmt(func, loop, unit)
