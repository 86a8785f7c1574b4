"""The tables that one native call reads: addresses of buffers, and the sizes that its kernels take.

Most of a table is the same in every call. What is not is found once: the places of addresses that move with the arena,
and of sizes, by the formula that gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InternalError, ResourceError
from tilewright.core.plan import KernelStep, NativeStep, Step, step_slots
from tilewright.runtime.resources.arena import Values
from tilewright.runtime.resources.arrays import address

_TOO_LARGE = 1 << 62

Positions = tuple[tuple[int, int], ...]
"""Places in a table, and how many bytes behind the beginning of its buffer each address lies."""
_Outside: TypeAlias = tuple[tuple[str, Positions], ...]


@dataclass(slots=True)
class Table:
    """The pointer and dimension tables of one segment for one binding of the symbols. ``patches``: slots outside the
    arena, with the positions of their addresses; ``shapes``: of those that had to be made so far."""

    pointers: np.ndarray
    dims: np.ndarray
    patches: tuple[tuple[str, Positions], ...]
    arena_base: int
    pointers_address: int
    dims_address: int
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)


class TableMaker:
    """Makes the tables of the steps of one segment. ``root``: of slots; ``constants``: addresses by slot; ``inputs``:
    of the plan. ``places_of_inputs``: which of them the table has the addresses of, and where."""

    def __init__(
        self, plan: str, steps: Sequence[Step], root: Mapping[str, str], constants: Mapping[str, int],
        inputs: Sequence[str],
    ) -> None:  # fmt: skip
        self._plan = plan
        self._constants = constants
        dims: list[IntExpr] = []
        roots: dict[str, list[int]] = {}
        self._inside: list[tuple[str, int, IntExpr]] = []
        at = 0
        for step in steps:
            if not isinstance(step, NativeStep):
                raise InternalError(f"plan {plan}: a segment holds a step that is not native")
            offsets = dict(step.offsets) if isinstance(step, KernelStep) else {}
            for k, name in enumerate(step_slots(step)[0]):
                roots.setdefault(root[name], []).append(at + k)
                if k in offsets:
                    self._inside.append((root[name], at + k, offsets[k]))
            at += len(step_slots(step)[0])
            dims += step.dims
        self._at = {name: tuple(places) for name, places in roots.items()}
        self._at_begin = {name: tuple((k, 0) for k in places) for name, places in roots.items()}
        """The places of addresses, where no step reads from inside of the slot."""
        self._read_inside = {root for root, _, _ in self._inside}
        self.places_of_inputs = tuple((k, self._at[n]) for k, n in enumerate(inputs) if n in self._at)
        self._root_at = np.empty(at, np.intp)
        for k, places in enumerate(self._at.values()):
            self._root_at[list(places)] = k
        of_dims: dict[IntExpr, list[int]] = {}
        for k, d in enumerate(dims):
            of_dims.setdefault(d, []).append(k)
        self._dims = [(d, np.array(places)) for d, places in of_dims.items()]
        self._count = len(dims)
        self._placed: tuple[Mapping[str, int], int, np.ndarray, _Outside] | None = None

    def make(self, offsets: Mapping[str, int], arena_base: int, values: Values) -> Table:
        """The table for temporaries at ``offsets`` of the arena. Raises ResourceError for a size beyond int64."""
        fixed, outside = self._addresses(offsets, arena_base)
        pointers, dims = fixed.copy(), np.empty(self._count, np.int64)
        inside: dict[int, int] = {}
        for root, k, offset in self._inside:
            inside[k] = values[offset]
            if root in offsets:
                pointers[k] += np.uint64(inside[k])
        for d, at in self._dims:
            value = values[d]
            if abs(value) >= _TOO_LARGE:
                raise ResourceError(f"{self._plan}: expected sizes below 2**62, got {value}")
            dims[at] = value
        patches = outside
        if self._read_inside:
            moved = {n: tuple([(k, inside.get(k, 0)) for k in self._at[n]]) for n in self._read_inside}
            patches = tuple([(n, moved.get(n, places)) for n, places in outside])
        return Table(pointers, dims, patches, arena_base, address(pointers), address(dims))

    def _addresses(self, offsets: Mapping[str, int], arena_base: int) -> tuple[np.ndarray, _Outside]:
        """Addresses before what :attr:`_inside` adds, 0 for slots outside the arena, and these."""
        if self._placed is None or self._placed[0] is not offsets or self._placed[1] != arena_base:
            moves = [(n, at) for n, at in self._at_begin.items() if n not in offsets and n not in self._constants]
            found = [arena_base + offsets[n] if n in offsets else self._constants.get(n, 0) for n in self._at]
            self._placed = offsets, arena_base, np.array(found, np.uint64)[self._root_at], tuple(moves)
        return self._placed[2:]
