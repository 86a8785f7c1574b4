"""set_scope: where an intermediate buffer lives."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar, get_args

from tilewright.schedule.base import Primitive, find_buffer, refuse, replace_stmt
from tilewright.tensor_ir.analysis.scopes import parallel_loops_in, path_to
from tilewright.tensor_ir.ir import Alloc, Func, Scope, Seq


@dataclass(frozen=True, slots=True)
class SetScope(Primitive):
    """Move an intermediate buffer to another memory scope.

    Rewrite:
        alloc B global: S
        --> set_scope("B", scope="local")
        alloc B local: S

    Keeps: every value; only the place of the buffer changes.
    Refuses:
        - the buffer is not there
        - the scope is unknown
        - the buffer is a parameter
        - to global: the allocation is not at the root
        - to local: the shape is not constant
        - to local: a parallel loop stands below the allocation
    Cost: local buffers take stack or registers; global ones take arena memory and cache traffic.
    """

    name: ClassVar[str] = "set_scope"
    buffer: str
    scope: Scope

    def apply(self, func: Func) -> Func:
        buffer = find_buffer(func, self.buffer, self)
        if self.scope not in get_args(Scope):
            raise refuse(self, f"expected scope global or local, got {self.scope!r}")
        path = path_to(func.body, lambda s: isinstance(s, Alloc) and s.buffer.name == self.buffer)
        if not path:
            raise refuse(self, "expected an intermediate buffer, got a parameter")
        alloc = path[-1]
        assert isinstance(alloc, Alloc)  # what path_to looked for
        if self.scope == "global" and not all(isinstance(s, (Seq, Alloc)) for s in path):
            raise refuse(self, "expected the allocation at the root for global scope, got one inside a loop")
        if self.scope == "local":
            if not all(d.is_const for d in buffer.shape):
                shape = ", ".join(map(str, buffer.shape))
                raise refuse(self, f"expected a constant shape for local scope, got ({shape})")
            for s in parallel_loops_in(alloc.body):
                raise refuse(self, f"the buffer would be private to one thread, but {s.var} below it is parallel")
        return replace_stmt(func, alloc, Alloc(dataclasses.replace(buffer, scope=self.scope), alloc.body))
