"""unannotate: take a hint from a loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.schedule.primitives.loops.annotate import KEYS
from tilewright.tensor_ir.hints import without_hint
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Unannotate(Primitive):
    """Take the hint of a key (see :class:`~tilewright.schedule.primitives.loops.annotate.Annotate`) from a loop.

    Rewrite:
        for i in N {prefetch: B}: S
        --> unannotate("i", key="prefetch")
        for i in N: S

    Keeps: everything else.
    Refuses:
        - the loop is not there
        - the loop has no such hint
    Cost: none.
    """

    name: ClassVar[str] = "unannotate"
    loop: str
    key: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        known = [key for key, kind in KEYS.items() if any(isinstance(h, kind) for h in loop.hints)]
        if self.key not in known:
            raise refuse(self, f"expected a hint {self.key!r}, got only: {', '.join(known) or 'none'}")
        return replace_stmt(func, loop, dataclasses.replace(loop, hints=without_hint(loop.hints, KEYS[self.key])))
