"""Which kernels give numbers that are nearly zero, for which some CPUs take a hundred times as long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core.plan import CheckStep, KernelStep, Plan, Step, root_slot, step_slots


@dataclass(frozen=True, slots=True)
class DenormalCount:
    """``count`` denormal numbers among the ``elements`` of what ``kernel`` gave for ``nodes``: a kernel, or an operator
    that runs on the host or is a loop or a branch; "" for an input of the model or a constant, which is then the only
    name in ``nodes``."""

    kernel: str
    nodes: tuple[str, ...]
    count: int
    elements: int

    def __str__(self) -> str:
        where = f"{self.kernel} ({', '.join(self.nodes)[:60]})" if self.kernel else f"{self.nodes[0]!r}"
        return f"{self.count:,} of {self.elements:,} in {where}"


def count_denormals(value: object) -> int:
    """The denormal numbers in an array of float32 or float64; 0 for others."""
    if not isinstance(value, np.ndarray) or value.dtype not in (np.float32, np.float64):
        return 0
    sizes = np.abs(value)
    return int(np.count_nonzero((sizes < np.finfo(value.dtype).tiny) & (sizes > 0)))


def made_by_steps(plan: Plan) -> dict[int, tuple[str, ...]]:
    """By position of a step, the slots that it makes and others read: none of what only it uses (workspaces), and none
    of a kernel that reads nothing, which is the border around what others make later."""
    last: dict[str, int] = {}
    for i, step in enumerate(plan.steps):
        for name in (n for group in step_slots(step) for n in group):
            last[root_slot(plan, name)] = i
    kept = {root_slot(plan, o) for o in plan.outputs}
    met = {*plan.inputs, *plan.captures, *plan.constants}
    out: dict[int, tuple[str, ...]] = {}
    for i, step in enumerate(plan.steps):
        names = [n for group in step_slots(step) for n in group if n not in met]
        met.update(names)
        if not isinstance(step, CheckStep) and not (isinstance(step, KernelStep) and len(step.args) == 1):
            out[i] = tuple(n for n in names if (root := root_slot(plan, n)) in kept or last[root] > i)
    return out


def named(step: Step) -> tuple[str, tuple[str, ...]]:
    """The kernel of a step, or its operator, and its nodes."""
    if isinstance(step, CheckStep):
        return "", ()
    return (step.kernel, step.nodes) if isinstance(step, KernelStep) else (step.op, (step.node,))


def counts_of(values: Mapping[str, object]) -> list[DenormalCount]:
    """Of inputs or constants, by name; those without denormal numbers are left out."""
    found = [(name, count_denormals(v), np.asarray(v).size) for name, v in values.items()]
    return [DenormalCount("", (name,), count, size) for name, count, size in found if count]
