"""What scheduling adds to a plan: workspaces of the scheduled functions, and which kernels run on all threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.core.plan import ControlStep, KernelStep, Plan, Slot, Step


@dataclass(frozen=True, slots=True)
class Scheduled:
    """What a plan needs to know of a scheduled function: its dims, extra arguments, and whether it uses all threads."""

    dims: tuple[str, ...]
    workspaces: tuple[tuple[DType, tuple[IntExpr, ...]], ...]
    parallel: bool


def with_scheduled(plan: Plan, scheduled: Mapping[str, Scheduled]) -> Plan:
    """``plan`` with a temp slot for every workspace and the ``parallel`` flags of the scheduled functions."""
    slots = dict(plan.slots)
    steps: list[Step] = []
    for i, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            kernel = scheduled[step.kernel]
            env = dict(zip(kernel.dims, step.dims, strict=True))
            names = []
            for k, (dtype, shape) in enumerate(kernel.workspaces):
                name = f"workspace_{i}_{k}"
                slots[name] = Slot(name, dtype, tuple(d.substitute(env) for d in shape), "temp")
                names.append(name)
            steps.append(dataclasses.replace(step, args=(*step.args, *names), parallel=kernel.parallel))
        elif isinstance(step, ControlStep):
            bodies = tuple(with_scheduled(b, scheduled) for b in step.bodies)
            steps.append(dataclasses.replace(step, bodies=bodies))
        else:
            steps.append(step)
    return dataclasses.replace(plan, slots=slots, steps=tuple(steps))
