"""unannotate: remove a fact from a loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Unannotate(Primitive):
    """Remove an annotation from a loop.

    Rewrite:
        for i in N {grain: 4}: S
        --> unannotate("i", key="grain")
        for i in N: S

    Keeps: everything else.
    Refuses:
        - the loop is not there
        - the loop has no such annotation
    Cost: none.
    """

    name: ClassVar[str] = "unannotate"
    loop: str
    key: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        notes = dict(loop.annotations)
        if self.key not in notes:
            raise refuse(self, f"expected an annotation {self.key!r}, got only: {', '.join(notes) or 'none'}")
        del notes[self.key]
        return replace_stmt(func, loop, dataclasses.replace(loop, annotations=tuple(notes.items())))
