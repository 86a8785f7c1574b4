"""Hints: how a loop is to be run. None of them changes what a function computes.

In the text of a function they follow the loop's extent, each by its word: ``for i in parallel(n, if_=n - 100)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from tilewright.core.arith.expr import IntExpr


@dataclass(frozen=True, slots=True)
class ParallelIf:
    """Threads share a parallel loop where ``condition``, in the function's dims, is above 0
    (:mod:`tilewright.tensor_ir.analysis.parallel_if`)."""

    condition: IntExpr


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Each step fetches some of what will be read of ``buffers``, or what a step so many ``steps`` later reads
    (:mod:`tilewright.tensor_ir.analysis.prefetching`). In texts and traces ``"B"``, or ``"B, C + 3"``."""

    buffers: tuple[str, ...]
    steps: int = 0

    @staticmethod
    def parse(text: str) -> Prefetch:
        """The hint whose text that is."""
        names, _, steps = text.partition(" + ")
        return Prefetch(tuple(names.split(", ")), int(steps) if steps.isdecimal() else 0)

    def __str__(self) -> str:
        return ", ".join(self.buffers) + (f" + {self.steps}" if self.steps else "")


@dataclass(frozen=True, slots=True)
class Stream:
    """Stores into ``buffer`` go past the caches (:mod:`tilewright.tensor_ir.analysis.streaming`). On a nest that an
    intrinsic runs: what it reads of ``buffer`` passes through the first-level cache without staying there."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """The code of the intrinsic called ``name`` runs an opaque loop."""

    name: str


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The copies of an unrolled loop store neighbours: they are one store
    (:mod:`tilewright.codegen.prepare.interleave_stores`)."""


@dataclass(frozen=True, slots=True)
class Joined:
    """``most`` copies of the block in an unrolled nest, or less, compute at once
    (:mod:`tilewright.codegen.prepare.join_calls`)."""

    most: int


@dataclass(frozen=True, slots=True)
class Rolled:
    """No steps of a serial loop are written out (:mod:`tilewright.codegen.prepare.limit_unrolling`)."""


@dataclass(frozen=True, slots=True)
class Trails:
    """``slices`` steps of a loop nest, or less, follow each step of the products in the loop before it, whose sums it
    finishes (:mod:`tilewright.codegen.prepare.trail_sums`)."""

    slices: int


TRAILED_BLOCKS = 3
"""Blocks of sums, at least, that what finishes them trails: of fewer, half of it or more comes after the last one."""

Hint: TypeAlias = ParallelIf | Prefetch | Stream | Intrinsic | Interleaved | Joined | Rolled | Trails
H = TypeVar("H", bound=Hint)

WORDS: Mapping[str, type[Hint]] = {
    "if_": ParallelIf, "interleaved": Interleaved, "intrinsic": Intrinsic, "joined": Joined, "prefetch": Prefetch,
    "rolled": Rolled, "stream": Stream, "trails": Trails,
}  # fmt: skip


def find_hint(hints: Sequence[Hint], kind: type[H]) -> H | None:
    """The hint of that kind, if there is one."""
    return next((h for h in hints if isinstance(h, kind)), None)


def with_hint(hints: Sequence[Hint], new: Hint) -> tuple[Hint, ...]:
    """``hints`` with ``new`` in place of one of its kind, in the order of their words."""
    return tuple(sorted((*without_hint(hints, type(new)), new), key=lambda h: list(WORDS.values()).index(type(h))))


def without_hint(hints: Sequence[Hint], kind: type[Hint]) -> tuple[Hint, ...]:
    return tuple(h for h in hints if not isinstance(h, kind))
