"""annotate: give a loop a hint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.parse import parse
from tilewright.core.errors import ParseError
from tilewright.schedule.base import Primitive, find_loop, refuse, replace_stmt
from tilewright.tensor_ir.hints import Hint, ParallelIf, Prefetch, Stream, with_hint
from tilewright.tensor_ir.ir import Func

KEYS: Mapping[str, type[Hint]] = {"prefetch": Prefetch, "stream": Stream, "worth": ParallelIf}
"""The hints of a schedule, as traces and tuning logs have called them since version 1."""


@dataclass(frozen=True, slots=True)
class Annotate(Primitive):
    """Give a loop a hint (:mod:`tilewright.tensor_ir.hints`) in place of one of its kind that it has.

    The keys: ``prefetch`` and ``stream``, whose value is a buffer (of ``prefetch`` also ``"B, C + 3"``: what the step
    three later reads of two), and ``worth``, an expression in the function's dims, above 0 where threads are to share a
    parallel loop.

    Rewrite:
        parallel for i in N: S
        --> annotate("i", key="worth", value="N - 100")
        parallel for i in N {if_: N - 100}: S

    Keeps: everything.
    Refuses:
        - the loop is not there
        - there is no hint of that key
        - the value is not an expression where it has to be
    Cost: none.
    """

    name: ClassVar[str] = "annotate"
    loop: str
    key: str
    value: str

    def apply(self, func: Func) -> Func:
        loop = find_loop(func, self.loop, self)
        return replace_stmt(func, loop, dataclasses.replace(loop, hints=with_hint(loop.hints, self._hint())))

    def _hint(self) -> Hint:
        if self.key == "worth":
            try:
                return ParallelIf(parse(self.value))
            except ParseError as e:
                raise refuse(self, str(e)) from e
        if self.key not in KEYS:
            raise refuse(self, f"expected one of the keys {', '.join(KEYS)}, got {self.key!r}")
        return Prefetch.parse(self.value) if self.key == "prefetch" else Stream(self.value)
