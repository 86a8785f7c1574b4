"""The tables that one native call reads: addresses of buffers, and the sizes that its kernels take.

Most of a table is the same in every call. What is not is found once: the places of addresses that move with the arena,
and of sizes, by the formula that gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InternalError, ResourceError
from tilewright.core.plan import KernelStep, NativeStep, Step, step_slots
from tilewright.runtime.resources.arena import Values
from tilewright.runtime.resources.arrays import address

_TOO_LARGE = 1 << 62

Positions = tuple[tuple[int, int], ...]
"""Places in a table, and how many bytes behind the beginning of its buffer each address lies."""


@dataclass(slots=True)
class Table:
    """The pointer and dimension tables of one segment for one binding of the symbols. ``patches``: slots outside the
    arena, with the positions of their addresses, their shapes and element types."""

    pointers: np.ndarray
    dims: np.ndarray
    patches: tuple[tuple[str, Positions, tuple[int, ...], np.dtype], ...]
    arena_base: int
    pointers_address: int
    dims_address: int


class TableMaker:
    """Makes the tables of the steps of one segment. ``root``: of slots; ``constants``: addresses by slot."""

    def __init__(self, plan: str, steps: Sequence[Step], root: Mapping[str, str], constants: Mapping[str, int]) -> None:
        self._plan = plan
        self._roots: list[str] = []
        self._constants = constants
        dims: list[IntExpr] = []
        self._inside: list[tuple[int, IntExpr]] = []
        for step in steps:
            if not isinstance(step, NativeStep):
                raise InternalError(f"plan {plan}: a segment holds a step that is not native")
            at = len(self._roots)
            self._roots += [root[name] for name in step_slots(step)[0]]
            if isinstance(step, KernelStep):
                self._inside += [(at + k, offset) for k, offset in step.offsets]
            dims += step.dims
        places: dict[IntExpr, list[int]] = {}
        for k, d in enumerate(dims):
            places.setdefault(d, []).append(k)
        self._dims = [(d, np.array(at)) for d, at in places.items()]
        self._count = len(dims)
        self._placed: tuple[Mapping[str, int], int, np.ndarray, tuple[tuple[str, tuple[int, ...]], ...]] | None = None

    def make(
        self, offsets: Mapping[str, int], arena_base: int, values: Values,
        array_of: Callable[[str], tuple[tuple[int, ...], np.dtype]],
    ) -> Table:  # fmt: skip
        """The table for temporaries at ``offsets`` of the arena. ``array_of``: shape and element type of a slot that is
        outside. Raises ResourceError for a size beyond int64."""
        fixed, outside = self._addresses(offsets, arena_base)
        pointers, dims = fixed.copy(), np.empty(self._count, np.int64)
        inside = {k: values[offset] for k, offset in self._inside}
        for k, by in inside.items():
            if self._roots[k] in offsets:
                pointers[k] += np.uint64(by)
        for d, at in self._dims:
            value = values[d]
            if abs(value) >= _TOO_LARGE:
                raise ResourceError(f"{self._plan}: expected sizes below 2**62, got {value}")
            dims[at] = value
        patches = tuple((name, tuple((k, inside.get(k, 0)) for k in at), *array_of(name)) for name, at in outside)
        return Table(pointers, dims, patches, arena_base, address(pointers), address(dims))

    def _addresses(
        self, offsets: Mapping[str, int], arena_base: int
    ) -> tuple[np.ndarray, tuple[tuple[str, tuple[int, ...]], ...]]:
        """Addresses before what :attr:`_inside` adds, 0 for slots outside the arena, and the places of these."""
        if self._placed is None or self._placed[0] is not offsets or self._placed[1] != arena_base:
            pointers: list[int] = []
            outside: dict[str, list[int]] = {}
            for k, root in enumerate(self._roots):
                at = offsets.get(root)
                if at is not None:
                    pointers.append(arena_base + at)
                elif root in self._constants:
                    pointers.append(self._constants[root])
                else:
                    outside.setdefault(root, []).append(k)
                    pointers.append(0)
            frozen = tuple((name, tuple(at)) for name, at in outside.items())
            self._placed = offsets, arena_base, np.array(pointers, np.uint64), frozen
        return self._placed[2:]
