"""The memory of a compiled model: its weights, and its arena from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.console import bytes_text, table
from tilewright.core.plan import CheckStep, ControlStep, Plan, all_steps
from tilewright.runtime.denormals import named
from tilewright.runtime.resources.arena import Placement, Values, lifetimes, nbytes, require_sizes, size_of

_SHOWN = 8
"""Steps that the text has: those that hold the most."""


@dataclass(frozen=True, slots=True)
class StepMemory:
    """A step of the plan: its kernel or operator, its nodes, and the bytes of the arena that are in use then."""

    step: str
    nodes: tuple[str, ...]
    live_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """In bytes. ``str()`` is the text, :meth:`to_json` the same as objects, lists and numbers.

    ``weights``: constants as the model has them; ``packed``: those that were rearranged for kernels. ``arena``: where
    the temporaries of a call lie; each of several calls at once has one. ``outputs``: new arrays of a call. ``steps``:
    what is in use of the arena, in the order of the run. The last three are None and empty where sizes are not known:
    those of ``missing``. Bodies of loops and branches count with their constants; ``bodies`` is their arenas.
    """

    weights: int
    packed: int
    arena: int | None
    outputs: int | None
    bodies: int | None
    steps: tuple[StepMemory, ...]
    missing: tuple[str, ...] = ()

    @property
    def peak(self) -> StepMemory | None:
        """The step with the most bytes in use; None if there is no step or sizes are not known."""
        return max(self.steps, key=lambda s: s.live_bytes, default=None)

    @property
    def total(self) -> int:
        """All that is known."""
        return self.weights + self.packed + (self.arena or 0) + (self.outputs or 0) + (self.bodies or 0)

    def to_json(self) -> dict[str, Any]:
        """Under the keys of ``memory`` in docs/json-output.md."""
        return {
            "weight_bytes": self.weights, "packed_bytes": self.packed, "arena_bytes": self.arena,
            "output_bytes": self.outputs, "body_bytes": self.bodies, "total_bytes": self.total,
            "peak_live_bytes": None if self.peak is None else self.peak.live_bytes,
            "missing": list(self.missing),
            "steps": [{"step": s.step, "nodes": list(s.nodes), "live_bytes": s.live_bytes} for s in self.steps],
        }  # fmt: skip

    def __str__(self) -> str:
        rows = [
            ("weights as the model has them", bytes_text(self.weights)),
            ("weights rearranged for kernels", bytes_text(self.packed)),
        ]
        if self.arena is not None:
            rows += [("arena of a call", bytes_text(self.arena)), ("outputs of a call", bytes_text(self.outputs or 0))]
        if self.bodies:
            rows.append(("arenas of bodies", bytes_text(self.bodies)))
        parts = [table(("memory", " size"), [*rows, ("total", bytes_text(self.total))])]
        if self.arena is None:
            parts.append(f"the arena depends on the sizes of {', '.join(self.missing)}")
        elif self.steps:
            most = {id(s) for s in sorted(self.steps, key=lambda s: -s.live_bytes)[:_SHOWN]}
            shown = [(k, s) for k, s in enumerate(self.steps) if id(s) in most]
            cells = [(str(k), s.step, bytes_text(s.live_bytes), ", ".join(s.nodes)[:60]) for k, s in shown]
            parts.append(table((" step", "kernel", " in use", "nodes"), cells))
        return "\n\n".join(parts)


def memory_report(plan: Plan, env: Mapping[str, int]) -> MemoryReport:
    """Of ``plan`` for sizes of the symbols in ``env``. Raises InputError for negative sizes."""
    weights, packed = _constant_bytes(plan)
    needed = {
        v for s in plan.slots.values() if s.kind in ("temp", "output") for d in s.shape or () for v in d.free_vars()
    }
    late = {b.symbol for b in plan.bindings if plan.slots[b.slot].kind not in ("input", "constant")}
    missing = tuple(sorted(needed - env.keys() - late))
    if missing:
        return MemoryReport(weights, packed, None, None, None, (), missing)
    known, values = frozenset(env), Values(env)
    sizes = {}
    for name in lifetimes(plan):
        if plan.slots[name].shape is not None:
            each, dims, symbols = size_of(plan.slots[name])
            if symbols <= known:
                sizes[name] = nbytes(require_sizes(name, tuple(values[d] for d in dims)), each)
    arena = Placement(plan).place(known, values).size
    outputs = 0
    for slot in (plan.slots[o] for o in plan.outputs):
        if slot.kind == "output" and slot.shape is not None:
            each, dims, symbols = size_of(slot)
            outputs += nbytes(tuple(values[d] for d in dims), each) if symbols <= known else 0
    bodies = sum(memory_report(b, env).arena or 0 for s in plan.steps if isinstance(s, ControlStep) for b in s.bodies)
    return MemoryReport(weights, packed, arena, outputs, bodies, tuple(_steps(plan, sizes)))


def _constant_bytes(plan: Plan) -> tuple[int, int]:
    """Bytes of constants of the plan and its bodies, as the model has them and rearranged; shared ones count once."""
    found: dict[int, tuple[int, bool]] = {}
    for p in (plan, *(b for s in all_steps(plan) if isinstance(s, ControlStep) for b in s.bodies)):
        for name, content in p.constants.items():
            key = content.__array_interface__["data"][0] if isinstance(content, np.ndarray) else id(content)
            found[key] = content.nbytes, name in p.packed
    return sum(n for n, made in found.values() if not made), sum(n for n, made in found.values() if made)


def _steps(plan: Plan, sizes: Mapping[str, int]) -> Iterator[StepMemory]:
    lives = lifetimes(plan)
    for i, step in enumerate(plan.steps):
        if not isinstance(step, CheckStep):
            live = sum(n for name, n in sizes.items() if lives[name].first <= i <= lives[name].last)
            yield StepMemory(*named(step), live)
