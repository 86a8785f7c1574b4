"""The numbers that a plan's parts have in its native form: symbols, values, and slots of the arena.

A value is a slot with memory of its own outside the arena: an input or capture, an output, what a host or control step
gives, and a temporary whose size is known only in the middle of a run. Symbols stand in the order in which they become
known: those of the plans around, those of inputs and constants, of steps that run once, and the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr
from tilewright.core.assumptions import Assumption
from tilewright.core.plan import Binding, ControlStep, HostStep, KernelStep, NativeStep, Plan, root_slot, step_slots
from tilewright.runtime.resources.arena import lifetimes


@dataclass(frozen=True, slots=True)
class Numbering:
    """``symbols``: numbers; the first ``early`` are known before the first step, ``given`` without any step.
    ``outer``: symbols of the plans around, as how many plans out and which number there. ``values``, ``arena``: numbers
    of root slots. ``roots``: of slots. ``results``: the value of each output. ``late``: bindings by the step behind
    which they are made; ``once``: the steps that run once for a layout."""

    plan: Plan
    symbols: Mapping[str, int]
    given: int
    early: int
    outer: Mapping[str, tuple[int, int]]
    assumptions: tuple[Assumption, ...]
    around_assumptions: tuple[Assumption, ...]
    roots: Mapping[str, str]
    values: Mapping[str, int]
    arena: Mapping[str, int]
    results: tuple[int, ...]
    early_bindings: tuple[Binding, ...]
    late: Mapping[int, tuple[Binding, ...]]
    once: tuple[int, ...]

    def symbols_before(self, count: int) -> frozenset[str]:
        """The first ``count`` symbols."""
        return frozenset(s for s, k in self.symbols.items() if k < count)


def number(plan: Plan, around: Sequence[Numbering]) -> Numbering:
    """The numbers of a plan inside the plans ``around`` it, the nearest first."""
    own = [b for b in plan.bindings if plan.slots[b.slot].kind in ("input", "constant")]
    others = [b for b in plan.bindings if plan.slots[b.slot].kind not in ("input", "constant")]
    once = tuple(i for i, s in enumerate(plan.steps) if isinstance(s, HostStep) and s.once is not None)
    first = {o for i in once for o in step_slots(plan.steps[i])[1]}
    bound = {b.symbol for b in plan.bindings} | set(plan.symbols)
    plain = tuple(a for a in plan.assumptions if a.symbols() <= bound)
    wider = tuple(a for a in plan.assumptions if not a.symbols() <= bound)
    outer: dict[str, tuple[int, int]] = {}
    for s in (*plan.symbols, *(s for a in wider for s in sorted(a.symbols() - bound))):
        found = next(((k, n.symbols[s]) for k, n in enumerate(around) if s in n.symbols), None)
        if found is not None:
            outer[s] = found
    given = list(dict.fromkeys([*outer, *(b.symbol for b in own)]))
    early = list(dict.fromkeys([*given, *(b.symbol for b in others if b.slot in first)]))
    symbols = {s: k for k, s in enumerate(dict.fromkeys([*early, *(b.symbol for b in others)]))}

    roots = {name: root_slot(plan, name) for name in plan.slots}
    lives = lifetimes(plan)
    arena = [n for n in lives if _is_known(plan.slots[n].shape, frozenset(early))]
    places = {n: k for k, n in enumerate(arena)}
    values = dict.fromkeys((*plan.inputs, *plan.captures))
    values |= dict.fromkeys(n for n in plan.outputs if _has_own_memory(plan, n))
    for step in plan.steps:
        if not isinstance(step, NativeStep):
            values |= dict.fromkeys(roots[o] for o in step_slots(step)[1])
    values |= dict.fromkeys(n for n in lives if n not in places)
    values |= dict.fromkeys(n for n in roots.values() if plan.slots[n].kind in ("host", "output"))
    numbers = {n: k for k, n in enumerate(values)}
    results: list[int] = []
    for n in plan.outputs:
        is_first = _has_own_memory(plan, n) and numbers[n] not in results
        results.append(numbers[n] if is_first else len(numbers) + sum(r >= len(numbers) for r in results))
    written: dict[int, list[Binding]] = {}
    for b in others:
        at = next(i for i, s in enumerate(plan.steps) if b.slot in _written(s))
        written.setdefault(at, []).append(b)
    return Numbering(
        plan, symbols, len(given), len(early), outer, plain, wider, roots, numbers, places, tuple(results), tuple(own),
        {i: tuple(b) for i, b in written.items()}, once,
    )  # fmt: skip


def _written(step: object) -> tuple[str, ...]:
    if isinstance(step, KernelStep):
        return step.args
    return step_slots(step)[1] if isinstance(step, HostStep | ControlStep) else ()


def _has_own_memory(plan: Plan, name: str) -> bool:
    slot = plan.slots[name]
    return slot.kind == "output" and slot.alias is None


def _is_known(shape: tuple[IntExpr, ...] | None, symbols: frozenset[str]) -> bool:
    return shape is not None and all(d.free_vars() <= symbols for d in shape)
