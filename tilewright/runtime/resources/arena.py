"""Sizes of temporaries and their offsets in one arena: greedy by size, first fit among what is free during a lifetime.

Source: the "greedy by size for offset calculation" strategy of Pisarchyk and Lee, Efficient Memory Management for Deep
Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InputError
from tilewright.core.plan import Plan, Slot, root_slot, step_slots
from tilewright.machine.memory import LINE_BYTES

_GROWTH = 8
"""Sizes that grew get an eighth more."""

_LEAST = 0.75
"""Of the bytes at hand that temporaries fill: with less, what is used lies further apart than it need."""


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


def require_sizes(name: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """``sizes``. Raises InputError for negative ones; code takes for granted that there are none."""
    if any(d < 0 for d in sizes):
        raise InputError(f"tensor {name!r}: the input shapes give it a negative size, {sizes}")
    return sizes


@dataclass(frozen=True, slots=True)
class Places:
    """Offsets of temporaries in an arena of ``size`` bytes, with ``room`` for so many bytes each, and ``sizes`` for
    which they were found."""

    offsets: Mapping[str, int]
    size: int
    room: Mapping[str, int]
    sizes: Mapping[str, int]


class Placement:
    """Places for the temporaries of a plan, for one binding of the symbols after another.

    The places for earlier sizes stay where later ones fit there and fill them well, and sizes that grow (a sequence, a
    token in each call) get some room to grow: most calls with new sizes find their places made.
    """

    def __init__(self, plan: Plan) -> None:
        self._lives = lifetimes(plan)
        self._conflicts = conflicts(self._lives)
        found = {name: size_of(plan.slots[name]) for name in self._lives if plan.slots[name].shape is not None}
        self._fixed = {name: size for name, (size, dims, _) in found.items() if not dims}
        self._varying = {name: of for name, of in found.items() if of[1]}
        self._last: Places | None = None

    def place(self, known: frozenset[str], values: Values) -> Places:
        """Places for the temporaries whose sizes follow from the ``known`` symbols. Raises InputError for negative
        sizes."""
        sizes = dict(self._fixed)
        for name, (each, dims, symbols) in self._varying.items():
            if symbols <= known:
                sizes[name] = nbytes(require_sizes(name, tuple([values[d] for d in dims])), each)
        last = self._last
        if last is None or last.room.keys() != sizes.keys() or not _fits(sizes, last.room):
            grows = last is not None and last.sizes.keys() == sizes.keys() and _grows(last.sizes, sizes)
            room = {n: s + s // _GROWTH if n in self._varying else s for n, s in sizes.items()} if grows else sizes
            offsets, size = place(room, self._lives, self._conflicts)
            self._last = last = Places(offsets, size, room, sizes)
        return last


def _fits(sizes: Mapping[str, int], room: Mapping[str, int]) -> bool:
    """True if all fit, and leave little room."""
    return all(s <= room[n] for n, s in sizes.items()) and _LEAST * sum(room.values()) <= sum(sizes.values())


def _grows(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    return all(before[n] <= s <= 2 * before[n] for n, s in after.items())


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
