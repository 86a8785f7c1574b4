"""Sizes of temporaries and their offsets in one arena: greedy by size, first fit among what is free during a lifetime.

Source: the "greedy by size for offset calculation" strategy of Pisarchyk and Lee, Efficient Memory Management for Deep
Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr
from tilewright.core.plan import Plan, Slot, root_slot, step_slots
from tilewright.machine.memory import LINE_BYTES


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


class Values(dict[IntExpr, int]):
    """The values of expressions under a binding of the symbols; many slots and kernels have the same."""

    def __init__(self, env: Mapping[str, int]) -> None:
        super().__init__()
        self._env = env

    def __missing__(self, d: IntExpr) -> int:
        value = self[d] = d.evaluate(self._env)
        return value


def size_of(slot: Slot) -> tuple[int, tuple[IntExpr, ...], frozenset[str]]:
    """The bytes of a slot: a number, the sizes that it is to be multiplied with, and their symbols."""
    dims = slot.shape or ()
    fixed = nbytes(tuple(v for d in dims if (v := d.value()) is not None), slot.dtype.itemsize)
    varying = tuple(d for d in dims if d.value() is None)
    return fixed, varying, frozenset().union(*(d.free_vars() for d in varying))


def nbytes(shape: tuple[int, ...], itemsize: int) -> int:
    """``itemsize`` times all sizes."""
    n = itemsize
    for d in shape:
        n *= d
    return n


def conflicts(lives: Mapping[str, Lifetime]) -> dict[str, tuple[str, ...]]:
    """For each name those whose lifetimes overlap its own."""
    out: dict[str, list[str]] = {n: [] for n in lives}
    alive: list[str] = []
    for name in sorted(lives, key=lambda n: lives[n].first):
        alive = [n for n in alive if lives[n].last >= lives[name].first]
        for other in alive:
            out[other].append(name)
        out[name].extend(alive)
        alive.append(name)
    return {n: tuple(others) for n, others in out.items()}


def place(
    sizes: Mapping[str, int], lives: Mapping[str, Lifetime], others: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], int]:
    """Byte offsets of the named temporaries, and the arena's size. Overlapping lifetimes never overlap in space.

    ``others``: the :func:`conflicts` of the lifetimes, which are the same for all sizes.
    """
    offsets: dict[str, int] = {}
    ends: dict[str, int] = {}
    total = 0
    for name in sorted(sizes, key=lambda n: (-sizes[n], lives[n].first, n)):
        size = -(-max(sizes[name], 1) // LINE_BYTES) * LINE_BYTES
        at = 0
        for lo, hi in sorted((offsets[o], ends[o]) for o in others[name] if o in offsets):
            if lo - at >= size:
                break
            at = max(at, hi)
        offsets[name], ends[name] = at, at + size
        total = max(total, at + size)
    return offsets, total
