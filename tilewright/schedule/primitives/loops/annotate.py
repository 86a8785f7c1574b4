"""annotate: attach a fact to a loop."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Annotate(Primitive):
    """Attach ``key: value`` to a loop, for later stages to read; a value that the key had is replaced.

    Rewrite:
        for i in N: S
        --> annotate("i", key="grain", value="4")
        for i in N {grain: 4}: S

    Keeps: everything.
    Refuses:
        - the loop is not there
        - the key is not an identifier
        - the key is "intrinsic", which tensorize sets
    Cost: none.
    """

    name: ClassVar[str] = "annotate"
    loop: str
    key: str
    value: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        if not self.key.isidentifier():
            raise refuse(self, f"expected an identifier as key, got {self.key!r}")
        if self.key == "intrinsic":
            raise refuse(self, "expected a key that is free, but tensorize alone names an intrinsic")
        notes = dict(loop.annotations)
        notes[self.key] = self.value
        return replace_stmt(func, loop, dataclasses.replace(loop, annotations=tuple(sorted(notes.items()))))
