"""The symbols of a plan: read from the arrays of a call, and compared with what the plan takes for granted of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.assumptions import Assumption, Sizes
from tilewright.core.errors import BroadcastError, InputError, InternalError
from tilewright.core.plan import Binding, Plan

_MAX_KNOWN = 16


def bind(b: Binding, value: object, env: dict[str, int]) -> None:
    """Set the symbol of ``b`` from the contents of its slot. Raises InternalError for other than an array."""
    if not isinstance(value, (np.ndarray, np.generic)):
        raise InternalError(f"symbol {b.symbol}: expected an array, got {type(value).__name__}")
    got = value.shape[b.axis] if b.axis is not None else int(np.asarray(value).reshape(-1)[b.element or 0])
    env[b.symbol] = got


class Symbols:
    """``constants``: arrays by slot. ``around``: the symbols of the plans around a body, set before each run.
    ``bindings``: those of inputs and constants."""

    def __init__(self, plan: Plan, constants: Mapping[str, np.ndarray]) -> None:
        self._plan, self._constants = plan, constants
        self.around: Mapping[str, int] = {}
        self.bindings = [b for b in plan.bindings if plan.slots[b.slot].kind in ("input", "constant")]
        bound = {b.symbol for b in plan.bindings} | set(plan.symbols)
        self._assumptions = [a for a in plan.assumptions if a.symbols() <= bound]
        self._around_assumptions = [a for a in plan.assumptions if not a.symbols() <= bound]
        self._sized = self._sized_inputs()
        self._known: dict[tuple[tuple[int, ...], ...], dict[str, int]] = {}

    def _sized_inputs(self) -> tuple[int, ...] | None:
        """Positions of the inputs whose shapes alone decide the symbols; None if a value of an input does."""
        order = (*self._plan.inputs, *self._plan.captures)
        given = [b for b in self.bindings if self._plan.slots[b.slot].kind == "input"]
        if any(b.axis is None or b.slot not in order for b in given):
            return None
        return tuple(sorted({order.index(b.slot) for b in given}))

    def of_inputs(self, inputs: Sequence[object]) -> dict[str, int]:
        """The symbols that the inputs alone determine, and those that a body takes from the plan around it."""
        if self._plan.symbols:
            return {s: self.around[s] for s in self._plan.symbols} | self._own(inputs)
        return self._own(inputs)

    def _own(self, inputs: Sequence[object]) -> dict[str, int]:
        if not self.bindings:
            return {}
        if self._sized is None:
            return self._read(inputs)
        shapes = tuple([inputs[i].shape for i in self._sized])  # type: ignore[attr-defined]
        env = self._known.get(shapes)
        if env is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            env = self._known[shapes] = self._read(inputs)
        return dict(env)

    def _read(self, inputs: Sequence[object]) -> dict[str, int]:
        env: dict[str, int] = {}
        arrays = self.by_name(inputs)
        for b in self.bindings:
            bind(b, arrays[b.slot] if b.slot in arrays else self._constants[b.slot], env)
        return env

    def by_name(self, inputs: Sequence[object]) -> dict[str, object]:
        """The arrays of a call by slot."""
        return dict(zip((*self._plan.inputs, *self._plan.captures), inputs, strict=True))

    # -- what must hold ---------------------------------------------------------------------------------------------
    def check(self, env: Mapping[str, int], known: frozenset[str] = frozenset()) -> None:
        """Compare the sizes whose symbols are bound now, but were not all ``known`` before. Raises BroadcastError and
        InputError."""
        self._compare(self._assumptions, env, known)

    def check_with_around(self, env: Mapping[str, int]) -> None:
        """The same for sizes with symbols of the plans around this body."""
        if self._around_assumptions:
            self._compare(self._around_assumptions, {**self.around, **env}, frozenset())

    def _compare(self, assumptions: Sequence[Assumption], env: Mapping[str, int], known: frozenset[str]) -> None:
        """Sizes that broadcast where the plan takes them to be equal come before those that do not fit: what follows
        from the former is wrong."""
        unfit: str | None = None
        for a in assumptions:
            free = a.symbols()
            if not free <= env.keys() or (known and free <= known):
                continue
            sizes = a.met_by(env)
            if sizes is Sizes.BROADCAST and not self._plan.broadcasts:
                raise BroadcastError(a.refusal(env))
            if sizes is Sizes.UNFIT and unfit is None:
                unfit = a.refusal(env)
        if unfit is not None:
            raise InputError(unfit)

    def violation(self, known: frozenset[str], env: Mapping[str, int]) -> str | None:
        """The message of a requirement that does not hold, of those that can be judged now but not by ``known``."""
        for r in self._plan.requirements:
            free = r.free_vars()
            if free <= env.keys() and (not known or not free <= known) and (message := r.violation(env)) is not None:
                return message
        return None
