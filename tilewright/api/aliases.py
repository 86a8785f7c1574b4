"""Names that users of TVM and Halide know, for what means the same here: thin, and nothing that has no step of ours.

What they call otherwise, and what they have that we have not, is on the pages docs/from-tvm.md and docs/from-halide.md.
"""

from __future__ import annotations

from tilewright.core.errors import ScheduleError
from tilewright.schedule import schedule
from tilewright.tensor_ir.analysis.scopes import blocks_in, consumers, find_block, find_loop, loads_of
from tilewright.tensor_ir.ir import Func


class Aliases(schedule.Schedule):
    """A schedule, under other names as well."""

    # -- TVM's -------------------------------------------------------------------------------------------------------
    @property
    def mod(self) -> Func:
        """The function in its present form; the same as ``func``."""
        return self.func

    def get_block(self, name: str) -> str:
        """The block ``name``: blocks are called by their names. Raises ScheduleError, with those there are."""
        return find_block(self.func, name).name

    def get_loops(self, block: str) -> list[str]:
        """:meth:`loops`."""
        return self.loops(block)

    def get_child_blocks(self, loop: str) -> list[str]:
        """The blocks inside a loop, in program order."""
        return [b.name for b in blocks_in(find_loop(self.func, loop))]

    def get_producers(self, block: str) -> list[str]:
        """The blocks that write what ``block`` reads, in program order."""
        own = find_block(self.func, block)
        read = {load.buffer for load in loads_of(own)}
        return [b.name for b in blocks_in(self.func.body) if b.buffer in read and b.name != own.name]

    def get_consumers(self, block: str) -> list[str]:
        """The blocks that read what ``block`` writes, in program order."""
        own = find_block(self.func, block)
        return [b.name for b in consumers(self.func, own.buffer) if b.name != own.name]

    def get_output_blocks(self) -> list[str]:
        """The blocks that write results of the function, in program order."""
        results = {p.name for p in self.func.params[len(self.func.params) - self.func.outputs :]}
        return [b.name for b in blocks_in(self.func.body) if b.buffer in results]

    # -- Halide's ----------------------------------------------------------------------------------------------------
    def compute_root(self, block: str) -> None:
        """Compute a stage before those that read it, in loops of its own: as it is until :meth:`compute_at` moves it,
        so that there is nothing to do. Raises ScheduleError if it was moved, since a step is not taken back by
        another."""
        loops = self.loops(block)
        if not loops:
            return
        buffer = find_block(self.func, block).buffer
        others = [b.name for b in blocks_in(find_loop(self.func, loops[0])) if b.buffer != buffer]
        if others:
            raise ScheduleError(
                f"compute_root({block}): expected a stage in loops of its own, got one that shares {loops[0]} with "
                f"{', '.join(others)}"
            )

    def print_loop_nest(self) -> None:
        """Print the loops and the blocks in them, without what they compute; in colours on a terminal."""
        self.func.print_loop_nest()
