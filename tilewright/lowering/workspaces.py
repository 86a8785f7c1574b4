"""What scheduling adds to a plan: workspaces of the scheduled functions, and which kernels run on all threads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.core.plan import ControlStep, KernelStep, Plan, Slot, Step
from tilewright.tensor_ir.ir import Alloc, Buffer, Func, Loop, Stmt, walk


def workspaces_of(func: Func) -> tuple[Buffer, ...]:
    """The global buffers allocated at the root of a scheduled function, outermost first: its extra arguments."""
    out: list[Buffer] = []
    stmt: Stmt = func.body
    while isinstance(stmt, Alloc):
        if stmt.buffer.scope == "global":
            out.append(stmt.buffer)
        stmt = stmt.body
    return tuple(out)


def is_parallel(func: Func) -> bool:
    """True if some loop of the function runs on all threads."""
    return any(isinstance(s, Loop) and s.kind == "parallel" for s in walk(func.body))


def with_scheduled(plan: Plan, scheduled: Mapping[str, Func]) -> Plan:
    """``plan`` with a temp slot for every workspace and the ``parallel`` flags of the scheduled functions."""
    slots = dict(plan.slots)
    steps: list[Step] = []
    for i, step in enumerate(plan.steps):
        if isinstance(step, KernelStep):
            func = scheduled[step.kernel]
            env = dict(zip(func.dims, step.dims, strict=True))
            names = []
            for b in workspaces_of(func):
                name = f"{b.name}@{i}"
                slots[name] = Slot(name, b.dtype, tuple(d.substitute(env) for d in b.shape), "temp")
                names.append(name)
            steps.append(dataclasses.replace(step, args=(*step.args, *names), parallel=is_parallel(func)))
        elif isinstance(step, ControlStep):
            bodies = tuple(with_scheduled(b, scheduled) for b in step.bodies)
            steps.append(dataclasses.replace(step, bodies=bodies))
        else:
            steps.append(step)
    return dataclasses.replace(plan, slots=slots, steps=tuple(steps))
