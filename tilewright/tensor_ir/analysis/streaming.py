"""Streaming: which stores go past the caches, because a loop around them is with the hint ``stream="B"``.

A store first fetches the line that it writes into; where a result is larger than all caches, that is a third of the
traffic for nothing, and it throws out of the caches what is still needed. Such a store may write whole vectors straight
to memory instead. It is a hint: the values are the same, and where code generation cannot tell that a vector is aligned
it stores as usual.
"""

from __future__ import annotations

from tilewright.tensor_ir.analysis.scopes import blocks_in
from tilewright.tensor_ir.hints import Stream, find_hint
from tilewright.tensor_ir.ir import Func, Loop, walk


def streamed_blocks(func: Func) -> frozenset[str]:
    """Names of the blocks that store into a result inside a loop which names it."""
    outputs = {b.name for b in func.params[len(func.params) - func.outputs :]}
    found: set[str] = set()
    for s in walk(func.body):
        hint = find_hint(s.hints, Stream) if isinstance(s, Loop) else None
        if isinstance(s, Loop) and hint is not None and hint.buffer in outputs:
            found |= {b.name for b in blocks_in(s.body) if b.buffer == hint.buffer}
    return frozenset(found)


__all__ = ["streamed_blocks"]
