"""The user's handle on a function: each method applies one primitive, records it, and returns the names it made.

Steps that belong together are tried with :meth:`Schedule.attempt`: all of them, or none.

Example::

    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> A = placeholder("A", (20,), dtypes.float32)
    >>> s = Schedule(build_func("double", [A], [compute("B", (20,), lambda i: A[i] + A[i])]))
    >>> outer, inner = s.split("B_i", factors=(None, 8))
    >>> s.vectorize(inner)
    >>> print(s.trace, end="")
    split("B_i", factors=(None, 8))
    vectorize("B_i_1")
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import cast

from tilewright.core.arith.expr import IntExpr
from tilewright.core.console import coloured, console
from tilewright.core.errors import ScheduleError
from tilewright.core.html.pieces import code, details, fragment, title
from tilewright.schedule.arguments import require_count
from tilewright.schedule.base import Primitive
from tilewright.schedule.decisions import Decider, DefaultDecider
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.primitives.buffers.cache_read import CacheRead
from tilewright.schedule.primitives.buffers.cache_write import CacheWrite
from tilewright.schedule.primitives.buffers.set_scope import SetScope
from tilewright.schedule.primitives.buffers.storage_align import StorageAlign
from tilewright.schedule.primitives.buffers.transform_layout import TransformLayout
from tilewright.schedule.primitives.loops.annotate import Annotate
from tilewright.schedule.primitives.loops.blockize import Blockize
from tilewright.schedule.primitives.loops.fuse import Fuse
from tilewright.schedule.primitives.loops.parallel import Parallel
from tilewright.schedule.primitives.loops.peel import Peel
from tilewright.schedule.primitives.loops.reorder import Reorder
from tilewright.schedule.primitives.loops.split import Split
from tilewright.schedule.primitives.loops.tensorize import Tensorize
from tilewright.schedule.primitives.loops.unannotate import Unannotate
from tilewright.schedule.primitives.loops.unroll import Unroll
from tilewright.schedule.primitives.loops.vectorize import Vectorize
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.primitives.sampling.sample_compute_location import ROOT, SampleComputeLocation
from tilewright.schedule.primitives.sampling.sample_perfect_tile import SamplePerfectTile, perfect_tiles
from tilewright.schedule.primitives.stages.compute_at import ComputeAt
from tilewright.schedule.primitives.stages.compute_inline import ComputeInline
from tilewright.schedule.primitives.stages.decompose_reduction import DecomposeReduction
from tilewright.schedule.primitives.stages.pad_einsum import PadEinsum
from tilewright.schedule.primitives.stages.reverse_compute_at import ReverseComputeAt
from tilewright.schedule.primitives.stages.reverse_compute_inline import ReverseComputeInline
from tilewright.schedule.primitives.stages.rfactor import RFactor
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import blocks_in, find_loop, loops_around
from tilewright.tensor_ir.hints import Prefetch
from tilewright.tensor_ir.ir import Func, Scope


class Schedule:
    """A function under transformation. ``func`` is its present form, ``trace`` the steps that made it."""

    def __init__(
        self,
        func: Func,
        trace: Trace | None = None,
        decider: Decider | None = None,
        memory: StepMemory | None = None,
    ) -> None:
        self.decider: Decider = decider if decider is not None else DefaultDecider()
        self._memory = memory
        self.original = func
        self.trace = Trace()
        self.func = func
        if trace is not None:
            self.func, self.trace = trace.apply(func), trace

    def step(self, primitive: Primitive) -> tuple[str, ...]:
        """Apply and record any primitive; the names that it made. A refused step changes nothing."""
        if self._memory is None:
            before, self.func = self.func, primitive.apply(self.func)
            names = primitive.produces(before, self.func)
        else:
            self.func, names = self._memory.apply(primitive, self.func)
        self.trace = self.trace.then(primitive)
        return names

    def copy(self) -> Schedule:
        """A schedule in the same state, to try steps on."""
        out = type(self)(self.original, decider=self.decider, memory=self._memory)
        out.func, out.trace = self.func, self.trace
        return out

    def attempt(self, steps: Callable[[Schedule], object]) -> bool:
        """Run ``steps`` on this schedule; if one of them is refused, take all of them back and return False."""
        func, trace = self.func, self.trace
        try:
            steps(self)
        except ScheduleError:
            self.func, self.trace = func, trace
            return False
        return True

    def show(self) -> None:
        """Print the function, in colours on a terminal."""
        console(sys.stdout).print(coloured(str(self)), soft_wrap=True)

    def __str__(self) -> str:
        return str(self.func)

    def _repr_html_(self) -> str:
        steps = f"{len(self.trace)} steps"
        return fragment(title(self.func.name, steps), code(str(self)), details("trace", code(self.trace.to_text())))

    # -- look around -----------------------------------------------------------------------------------------------
    def loops(self, block: str) -> list[str]:
        """The loops around a block, outermost first."""
        return [loop.var for loop in loops_around(self.func, block)]

    def blocks(self) -> list[str]:
        """The blocks in program order."""
        return [b.name for b in blocks_in(self.func.body)]

    # -- decisions -------------------------------------------------------------------------------------------------
    def sample_categorical(self, label: str, candidates: Sequence[int | str], default: int | str) -> int | str:
        """Ask for one of ``candidates``; the answer is part of the trace under ``label``, unique in the function."""
        choice = self.decider.choose(label, candidates, default)
        step = SampleCategorical(label, candidates, choice)  # type: ignore[arg-type]  # it makes a tuple of any sequence
        self.step(step)
        return step.decision

    def sample_perfect_tile(
        self, loop: str, parts: int, max_innermost: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """Ask for ``parts`` factors of a loop of constant extent, the innermost at most ``max_innermost``."""
        who = f"sample_perfect_tile({loop})"
        parts, max_innermost = require_count(who, "parts", parts), require_count(who, "max_innermost", max_innermost)
        extent = find_loop(self.func, loop).extent.value()
        candidates = perfect_tiles(extent, parts, max_innermost) if extent else ()
        if not candidates:
            raise ScheduleError(f"{who}: no {parts} factors of {extent} up to {max_innermost}")
        own = default if default is not None and default in candidates else candidates[-1]
        choice = cast("tuple[int, ...]", self.decider.choose(f"{loop}.tile", candidates, own))
        self.step(SamplePerfectTile(loop, max_innermost, choice))
        return choice

    def sample_compute_location(self, block: str, candidates: Sequence[str], default: str = ROOT) -> str:
        """Ask for the loop at which ``block`` is computed, one of ``candidates`` or ``"root"``."""
        options = (ROOT, *candidates)
        choice = str(self.decider.choose(f"{block}.at", options, default))
        self.step(SampleComputeLocation(block, options, choice))
        return choice

    # -- loops -----------------------------------------------------------------------------------------------------
    def split(self, loop: str, factors: Sequence[int | None]) -> tuple[str, ...]:
        """Split a loop, one new loop a factor; returns their names, outermost first."""
        return self.step(Split(loop, factors))  # type: ignore[arg-type]  # likewise

    def tile(self, first: str, second: str, first_factor: int, second_factor: int) -> tuple[str, str, str, str]:
        """Split two nested loops and put both outer parts outside; returns (outer, outer, inner, inner)."""
        a, b = self.split(first, (None, first_factor))
        c, d = self.split(second, (None, second_factor))
        self.reorder(a, c, b, d)
        return a, c, b, d

    def fuse(self, *loops: str) -> str:
        """Fuse nested loops, outermost first; returns the name of the new loop."""
        return self.step(Fuse(loops))[0]

    def reorder(self, *loops: str) -> None:
        """Put loops of one nest into this order."""
        self.step(Reorder(loops))

    def peel(self, loop: str) -> str:
        """Separate the full iterations from the ragged ones; returns the name of the tail's loop."""
        return self.step(Peel(loop))[0]

    loop_partition = peel

    def unroll(self, loop: str) -> None:
        """Write the iterations out."""
        self.step(Unroll(loop))

    def vectorize(self, loop: str) -> None:
        """Run the iterations in vector lanes."""
        self.step(Vectorize(loop))

    def parallel(self, loop: str, if_: IntExpr | None = None) -> None:
        """Spread the iterations over threads; with ``if_``, where that expression in the dims is above 0."""
        self.step(Parallel(loop))
        if if_ is not None:
            self.annotate(loop, "worth", str(if_))

    def prefetch(self, loop: str, *buffers: str, steps: int = 0) -> None:
        """Fetch ahead, in each step, what will be read of a buffer; or what a step so many ``steps`` later reads of
        ``buffers``."""
        self.annotate(loop, "prefetch", str(Prefetch(buffers, steps)))

    def stream(self, loop: str, buffer: str) -> None:
        """Store past the caches into a buffer."""
        self.annotate(loop, "stream", buffer)

    def annotate(self, loop: str, key: str, value: str) -> None:
        """Give a loop a hint."""
        self.step(Annotate(loop, key, value))

    def unannotate(self, loop: str, key: str) -> None:
        """Take a hint from a loop."""
        self.step(Unannotate(loop, key))

    # -- units -----------------------------------------------------------------------------------------------------
    def blockize(self, loop: str) -> None:
        """Make a loop and all that it holds a unit that later steps leave alone."""
        self.step(Blockize(loop))

    def tensorize(self, loop: str, intrinsic: str) -> None:
        """Run a nest that computes what an intrinsic describes by the intrinsic's machine code."""
        self.step(Tensorize(loop, intrinsic))

    # -- buffers ---------------------------------------------------------------------------------------------------
    def set_scope(self, buffer: str, scope: Scope) -> None:
        """Move an intermediate buffer to another scope."""
        self.step(SetScope(buffer, scope))

    def cache_read(self, block: str, buffer: str, scope: Scope = "local") -> str:
        """Copy a buffer in front of a block that reads it; returns the name of the copying block."""
        return self.step(CacheRead(block, buffer, scope))[0]

    def cache_write(self, block: str, scope: Scope = "local") -> str:
        """Let a block write a new buffer, copied behind it; returns the name of the copying block."""
        return self.step(CacheWrite(block, scope))[0]

    def transform_layout(self, buffer: str, index_map: str) -> None:
        """Store an intermediate buffer in another layout: ``"i, j -> i // 8, j, i % 8"``."""
        self.step(TransformLayout(buffer, index_map))

    def storage_align(self, buffer: str, axis: int, factor: int, offset: int = 0) -> None:
        """Make the stride of a dimension a multiple of ``factor``, plus ``offset``."""
        self.step(StorageAlign(buffer, axis, factor, offset))

    # -- blocks ----------------------------------------------------------------------------------------------------
    def compute_at(self, block: str, loop: str, whole: bool = False, multiple: int = 1) -> tuple[str, ...]:
        """Compute a stage inside a loop of its readers; returns the names of its new loops."""
        return self.step(ComputeAt(block, loop, whole, multiple))

    def reverse_compute_at(self, block: str, loop: str) -> tuple[str, ...]:
        """Compute a stage inside a loop of the stage that it reads; returns the names of its new loops."""
        return self.step(ReverseComputeAt(block, loop))

    def compute_inline(self, block: str) -> None:
        """Compute an elementwise stage where it is read."""
        self.step(ComputeInline(block))

    def reverse_compute_inline(self, block: str) -> None:
        """Apply an elementwise stage where its input is produced."""
        self.step(ReverseComputeInline(block))

    def decompose_reduction(self, block: str, loop: str) -> str:
        """Store the initial values of a reduction in front of a loop; returns the name of the new block."""
        return self.step(DecomposeReduction(block, loop))[0]

    def rfactor(self, loop: str) -> str:
        """Keep partial results for each iteration of a reduction loop; returns the name of their block."""
        return self.step(RFactor(loop))[0]

    def pad_einsum(self, block: str, padding: Sequence[int]) -> tuple[str, ...]:
        """Pad a contraction to multiples, one for each axis; returns the names of the copying blocks."""
        return self.step(PadEinsum(block, padding))  # type: ignore[arg-type]  # likewise
