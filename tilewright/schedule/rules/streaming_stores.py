"""Results larger than all caches are written past them (:mod:`tilewright.tensor_ir.analysis.streaming`).

Decision: ``<block>.stream``, 1 to do so, asked only of results that are large enough for it to matter.
"""

from __future__ import annotations

from tilewright.machine.target import Target
from tilewright.schedule.rules.facts import buffer_bytes, output_buffers
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.scopes import consumers, find_block, find_buffer


def stream_if_large(s: Schedule, block: str, target: Target) -> None:
    """Annotate the outermost loop of ``block`` if it writes a result that no cache holds, and nothing reads it."""
    buffer = find_buffer(s.func, find_block(s.func, block).buffer)
    size = buffer_bytes(buffer)
    loops = s.loops(block)
    if size is None or not loops or buffer.name not in output_buffers(s.func) or consumers(s.func, buffer.name):
        return
    cache = target.largest_cache
    if 2 * size >= cache and s.sample_categorical(f"{block}.stream", (0, 1), int(size > cache)):
        s.stream(loops[0], buffer.name)


__all__ = ["stream_if_large"]
