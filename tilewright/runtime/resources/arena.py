"""Sizes of temporaries and their offsets in one arena: greedy by size, first fit among what is free during a lifetime.

Source: the "greedy by size for offset calculation" strategy of Pisarchyk and Lee, Efficient Memory Management for Deep
Neural Net Inference (2020).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InputError
from tilewright.core.plan import Plan, Slot, root_slot, step_slots
from tilewright.machine.memory import LINE_BYTES

_GROWTH = 8
"""Sizes that grew get an eighth more, and so may an arena for the sake of middles."""

_MOST = 2
"""Times the bytes that an arena took when all was placed together, until that is done again."""

_MIDDLES = 8
"""Tensors around whose middles others are laid."""

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


class Shapes:
    """The shapes of a plan's slots, of which many are the same."""

    def __init__(self, plan: Plan) -> None:
        numbers: dict[tuple[IntExpr, ...], int] = {}
        self._number = {n: numbers.setdefault(s.shape or (), len(numbers)) for n, s in plan.slots.items()}
        self._dims = tuple(numbers)

    def under(self, values: Values) -> Callable[[str], tuple[int, ...]]:
        """A function that gives the shape of a slot. It raises InputError for negative sizes."""
        found: dict[int, tuple[int, ...]] = {}

        def shape_of(name: str) -> tuple[int, ...]:
            k = self._number[name]
            shape = found.get(k)
            if shape is None:
                shape = found[k] = require_sizes(name, tuple([values[d] for d in self._dims[k]]))
            return shape

        return shape_of


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
    """Offsets of temporaries in an arena of ``size`` bytes, with ``room`` for so many bytes each."""

    offsets: Mapping[str, int]
    size: int
    room: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Temporaries of one size: ``each`` bytes times ``dims``."""

    each: int
    dims: tuple[IntExpr, ...]
    symbols: frozenset[str]
    names: list[str]


@dataclass(frozen=True, slots=True)
class _Last:
    """The ``places`` that were found last, for these ``sizes`` and with that ``room``, both by group of those alike.
    ``whole``: the bytes of the arena when all of them were placed together."""

    places: Places
    sizes: Mapping[int, int]
    room: Mapping[int, int]
    whole: int


class Placement:
    """Places for the temporaries of a plan, for one binding of the symbols after another.

    The places for earlier sizes stay where later ones fit there and fill them well, and sizes that grow (a sequence, a
    token in each call) get some room to grow: most calls with new sizes find their places made. Where they do not, what
    is of a fixed size stays, until the arena is twice as large as it was with all of them placed.
    """

    def __init__(self, plan: Plan) -> None:
        self._lives = lifetimes(plan)
        self._conflicts = conflicts(self._lives)
        self._fixed: dict[str, int] = {}
        alike: dict[tuple[int, tuple[IntExpr, ...]], _Alike] = {}
        for name in self._lives:
            if plan.slots[name].shape is not None:
                size, dims, symbols = size_of(plan.slots[name])
                if dims:
                    alike.setdefault((size, dims), _Alike(size, dims, symbols, [])).names.append(name)
                else:
                    self._fixed[name] = size
        self._alike = tuple(alike.values())
        varying = {n for x in self._alike for n in x.names}
        beside = sorted({o for n in varying for o in self._conflicts[n]} & self._fixed.keys())
        self._beside = [(n, _lines(self._fixed[n])) for n in beside]
        self._of_fixed = sum(self._fixed.values())
        self._last: _Last | None = None

    def place(self, known: frozenset[str], values: Values) -> Places:
        """Places for the temporaries whose sizes follow from the ``known`` symbols. Raises InputError for negative
        sizes."""
        sizes = {
            k: nbytes(require_sizes(x.names[0], tuple([values[d] for d in x.dims])), x.each)
            for k, x in enumerate(self._alike)
            if x.symbols <= known
        }
        last = self._last
        if last is None or not self._fits(sizes, last.room):
            grows = last is not None and _grows(last.sizes, sizes)
            room = {k: s + s // _GROWTH for k, s in sizes.items()} if grows else sizes
            self._last = last = self._placed(sizes, room, last if grows else None)
        return last.places

    def _placed(self, sizes: Mapping[int, int], room: Mapping[int, int], before: _Last | None) -> _Last:
        varying = {name: size for k, size in room.items() for name in self._alike[k].names}
        if before is not None:
            stays = before.places.offsets
            kept = {n: ((at := stays[n]), at + size) for n, size in self._beside}
            offsets, size = place(varying, self._lives, self._conflicts, kept)
            size = max(size, before.places.size)
            if size <= _MOST * before.whole:
                return _Last(Places({**stays, **offsets}, size, self._fixed | varying), sizes, room, before.whole)
        offsets, size = place(self._fixed | varying, self._lives, self._conflicts)
        return _Last(Places(offsets, size, self._fixed | varying), sizes, room, size)

    def _fits(self, sizes: Mapping[int, int], room: Mapping[int, int]) -> bool:
        """True if all fit, and leave little room."""
        if room.keys() != sizes.keys() or any(s > room[k] for k, s in sizes.items()):
            return False
        return _LEAST * (self._of_fixed + self._sum(room)) <= self._of_fixed + self._sum(sizes)

    def _sum(self, sizes: Mapping[int, int]) -> int:
        return sum(s * len(self._alike[k].names) for k, s in sizes.items())


def _grows(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    return before.keys() == after.keys() and all(before[k] <= s <= 2 * before[k] for k, s in after.items())


def place(
    sizes: Mapping[str, int], lives: Mapping[str, Lifetime], others: Mapping[str, tuple[str, ...]],
    kept: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> tuple[dict[str, int], int]:  # fmt: skip
    """Byte offsets of the named temporaries, and the arena's size. Overlapping lifetimes never overlap in space.

    Where it does not cost much, those that follow each other in one place have their middles together: threads share
    the rows of a tensor, and so find in the next one what their own processor has in its cache, to read and to write.

    ``others``: the :func:`conflicts` of the lifetimes, which are the same for all sizes. ``kept``: where further ones
    begin and end, which have their places.
    """
    order = sorted(sizes, key=lambda n: (-sizes[n], lives[n].first, n))
    lines = [(n, _lines(sizes[n])) for n in order]
    taken, total = _fitted(lines, others, kept, _MIDDLES)
    closely, least = _fitted(lines, others, kept, 0)
    if total > least + least // _GROWTH:
        taken, total = closely, least
    return {name: at for name, (at, _) in taken.items()}, total


def _fitted(
    sizes: Sequence[tuple[str, int]], others: Mapping[str, tuple[str, ...]], kept: Mapping[str, tuple[int, int]],
    most: int,
) -> tuple[dict[str, tuple[int, int]], int]:  # fmt: skip
    """Where each of ``sizes`` begins and ends, and the size of all: around the middle of one before it if that is free,
    of which ``most`` are tried; else where there is room first."""
    taken = dict(kept)
    total = max((end for _, end in kept.values()), default=0)
    middles: list[int] = []
    for name, size in sizes:
        busy = sorted([taken[o] for o in others[name] if o in taken])
        half = size // LINE_BYTES // 2 * LINE_BYTES
        around = (m - half for m in middles if m >= half and m - half + size <= total)
        at = next((a for a in around if all(hi <= a or lo >= a + size for lo, hi in busy)), None)
        if at is None:
            at = _first_gap(busy, size)
            if len(middles) < most:
                middles.append(at + half)
        taken[name] = at, at + size
        total = max(total, at + size)
    return taken, total


def _first_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    """Where ``size`` bytes fit first between or behind the ``busy`` ones, which are in order."""
    at = 0
    for lo, hi in busy:
        if lo - at >= size:
            break
        at = max(at, hi)
    return at


def _lines(size: int) -> int:
    """``size`` in whole lines, at least one."""
    return -(-max(size, 1) // LINE_BYTES) * LINE_BYTES
