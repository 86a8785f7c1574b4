"""Kernels and plans to callable code: one entry function for each native segment, everything in one library."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import require_runs_here
from tilewright.codegen.llvm.jit import Library, cached_object
from tilewright.codegen.native.checks import CHECKS, check_imports
from tilewright.codegen.native.entry import EntryStep, emit_entry, entry_imports
from tilewright.codegen.native.loop_driver import loop_driver_text
from tilewright.core.dtypes import DType
from tilewright.core.plan import (
    CheckStep,
    ControlStep,
    KernelStep,
    NativeStep,
    Plan,
    Segment,
    all_steps,
    require_bound,
    segments,
)
from tilewright.kernels.build import Kernel
from tilewright.lowering.workspaces import with_scheduled
from tilewright.machine.target import Target
from tilewright.runtime.executor import PlanCode

_LOOP_DRIVER = "loop_driver"


def finished_plan(plan: Plan, kernels: Mapping[str, Kernel]) -> Plan:
    """The plan of a lowered model with what its kernels turned out to need. Raises InternalError for a symbol that
    nothing binds."""
    plan = with_scheduled(plan, {name: k.facts() for name, k in kernels.items()})
    require_bound(plan)
    return plan


@dataclass(frozen=True, slots=True)
class PlanObjects:
    """Object code of a plan and its bodies, by symbol, and the symbols of the entries by where each segment is.
    ``checked``: element types that checks look at."""

    objects: Mapping[str, bytes]
    entries: Mapping[str, str]
    checked: frozenset[DType]


def plan_objects(
    plan: Plan, kernels: Mapping[str, Kernel], target: Target, cache: ObjectCache | None
) -> PlanObjects:  # fmt: skip
    """Code of the kernels of a plan, and of an entry function for each segment."""
    parts = list(_segments(plan, "m"))
    entries = {key: _entry(inside, steps, kernels, target, plan.flushes) for key, inside, steps in parts}
    objects: dict[str, bytes] = {k.symbol: k.code for k in kernels.values()} if entries else {}
    for text, symbol in entries.values():
        if symbol not in objects:
            objects[symbol] = cached_object(text, target, 0, cache, passes=False)
    checked: set[DType] = set()
    for _, inside, steps in parts:
        checked |= {inside.slots[s.slot].dtype for s in steps if isinstance(s, CheckStep)}
    return PlanObjects(objects, {key: symbol for key, (_, symbol) in entries.items()}, frozenset(checked))


def link_plan(
    plan: Plan, kernels: Mapping[str, Kernel], target: Target, cache: ObjectCache | None
) -> tuple[PlanCode, Library | None]:
    """Code of the plan and its bodies. The addresses are valid as long as the library lives (None: no native step).

    Raises TargetError for a target whose code this machine cannot execute.
    """
    require_runs_here(target, plan.name)
    linked = plan_objects(plan, kernels, target, cache)
    if not linked.entries:
        return _code(plan, "m", {}, 0), None
    objects, exports = dict(linked.objects), set(linked.entries.values())
    if any(isinstance(s, ControlStep) and s.op != "If" for s in all_steps(plan)):
        objects[_LOOP_DRIVER] = cached_object(loop_driver_text(_LOOP_DRIVER, target), target, 1, cache)
        exports.add(_LOOP_DRIVER)
    library = Library(objects.values(), exports, entry_imports(target) | check_imports(linked.checked, cache))
    addresses = {k: library.addresses[s] for k, s in linked.entries.items()}
    return _code(plan, "m", addresses, library.addresses.get(_LOOP_DRIVER, 0)), library


def _segments(plan: Plan, path: str) -> Iterator[tuple[str, Plan, tuple[NativeStep, ...]]]:
    """Every native segment of a plan and its bodies, under a name that says where it is, with the plan it is in."""
    for w in segments(plan):
        if isinstance(w, Segment):
            steps = plan.steps[w.start : w.stop]
            yield f"{path}.{w.start}", plan, tuple(s for s in steps if isinstance(s, NativeStep))
        else:
            step = plan.steps[w]
            if isinstance(step, ControlStep):
                for b, body in enumerate(step.bodies):
                    yield from _segments(body, f"{path}.{w}.{b}")


def _code(plan: Plan, path: str, addresses: Mapping[str, int], loop_driver: int) -> PlanCode:
    bodies = {
        i: tuple(_code(body, f"{path}.{i}.{b}", addresses, loop_driver) for b, body in enumerate(step.bodies))
        for i, step in enumerate(plan.steps)
        if isinstance(step, ControlStep)
    }
    own = tuple(addresses[f"{path}.{w.start}"] for w in segments(plan) if isinstance(w, Segment))
    return PlanCode(own, bodies, loop_driver)


def _entry(
    plan: Plan, steps: tuple[NativeStep, ...], kernels: Mapping[str, Kernel], target: Target, flushes: bool
) -> tuple[str, str]:
    """Text and symbol of a segment's entry function."""
    calls = [
        EntryStep(kernels[s.kernel].symbol, len(s.args), len(s.dims), same=s.same) if isinstance(s, KernelStep)
        else EntryStep(CHECKS[plan.slots[s.slot].dtype.name], 2, len(s.dims), is_check=True)
        for s in steps
    ]  # fmt: skip
    digest = hashlib.sha256(repr((calls, target.legality_key())).encode()).hexdigest()[:24]
    symbol = f"flushing_{digest}" if flushes else f"entry_{digest}"
    return emit_entry(symbol, calls, target, flushes), symbol
