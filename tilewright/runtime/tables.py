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
        self._root_at = np.empty(at, np.intp)
        for k, places in enumerate(self._at.values()):
            self._root_at[list(places)] = k
        of_dims: dict[IntExpr, list[int]] = {}
        for k, d in enumerate(dims):
            of_dims.setdefault(d, []).append(k)
        self._dims = [(d, np.array(places)) for d, places in of_dims.items()]
        self._count = len(dims)
        self._placed: tuple[Mapping[str, int], int, np.ndarray, tuple[str, ...]] | None = None

    def places(self, root: str) -> tuple[int, ...]:
        """Where the table has the addresses of a slot."""
        return self._at.get(root, ())

    def make(
        self, offsets: Mapping[str, int], arena_base: int, values: Values,
        array_of: Callable[[str], tuple[tuple[int, ...], np.dtype]],
    ) -> Table:  # fmt: skip
        """The table for temporaries at ``offsets`` of the arena. ``array_of``: shape and element type of a slot that is
        outside. Raises ResourceError for a size beyond int64."""
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
        patches = tuple([(n, tuple([(k, inside.get(k, 0)) for k in self._at[n]]), *array_of(n)) for n in outside])
        return Table(pointers, dims, patches, arena_base, address(pointers), address(dims))

    def _addresses(self, offsets: Mapping[str, int], arena_base: int) -> tuple[np.ndarray, tuple[str, ...]]:
        """Addresses before what :attr:`_inside` adds, 0 for slots outside the arena, and these."""
        if self._placed is None or self._placed[0] is not offsets or self._placed[1] != arena_base:
            outside = tuple([n for n in self._at if n not in offsets and n not in self._constants])
            found = [arena_base + offsets[n] if n in offsets else self._constants.get(n, 0) for n in self._at]
            self._placed = offsets, arena_base, np.array(found, np.uint64)[self._root_at], outside
        return self._placed[2:]
