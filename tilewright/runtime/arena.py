"""Offsets of temporaries in one arena: greedy by size, first fit among what is free during the whole lifetime.

Source: the "greedy by size for offset calculation" strategy of Pisarchyk and Lee, Efficient Memory Management for Deep
Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.plan import Plan, root_slot, step_slots

ALIGN = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """First and last step (inclusive) at which a root slot is used."""

    first: int
    last: int


def lifetimes(plan: Plan) -> dict[str, Lifetime]:
    """Root slots of kind temp, with the steps between which their contents must stay."""
    out: dict[str, Lifetime] = {}
    for i, step in enumerate(plan.steps):
        for name in (n for group in step_slots(step) for n in group):
            root = root_slot(plan, name)
            if plan.slots[root].kind == "temp":
                old = out.get(root)
                out[root] = Lifetime(i if old is None else old.first, i)
    return out


def place(sizes: Mapping[str, int], lives: Mapping[str, Lifetime]) -> tuple[dict[str, int], int]:
    """Byte offsets of the named temporaries, and the arena's size. Overlapping lifetimes never overlap in space."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, Lifetime]] = []  # offset, end, lifetime; sorted by offset
    total = 0
    for name in sorted(sizes, key=lambda n: (-sizes[n], lives[n].first, n)):
        size = -(-max(sizes[name], 1) // ALIGN) * ALIGN
        live = lives[name]
        at = 0
        for lo, hi, other in placed:
            if other.first <= live.last and live.first <= other.last:
                if lo - at >= size:
                    break
                at = max(at, hi)
        offsets[name] = at
        placed.append((at, at + size, live))
        placed.sort(key=lambda p: p[0])
        total = max(total, at + size)
    return offsets, total
