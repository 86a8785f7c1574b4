"""The account of a build: target, time, passes, rules and fusions with their reasons, kernels, host operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.autotune.lookup.apply_best import ChosenSchedules
from tilewright.core.plan import CheckStep, ControlStep, HostStep, KernelStep, Plan, Step
from tilewright.graph_ir.pipeline import PassReport
from tilewright.kernels.build import Kernel
from tilewright.machine.target import Target
from tilewright.schedule.default import explained_default
from tilewright.schedule.rules.base import ScheduleRule

_OUT_OF_RANGE = {"error": "an error of the run", "clamp": "the nearest element is taken"}


def explain_build(
    target: Target, report: PassReport, fusion: PassReport, plan: Plan, kernels: Mapping[str, Kernel],
    laps: Sequence[tuple[str, float]],
) -> str:  # fmt: skip
    """Plain text, a section each."""
    lines = [f"target: {target.key()}", ""]
    lines += ["build time:", *(f"  {name:<16} {seconds:7.3f} s" for name, seconds in laps), ""]
    lines += ["graph passes (what fired, what was refused and why):", *_indent(report.explain()), ""]
    lines += ["fusion and placement (what was kept apart and why; what was fused stands with the kernels below):"]
    lines += [*_indent(fusion.explain()), ""]
    steps = list(_all_steps(plan))
    calls: dict[str, list[str]] = {}
    for s in steps:
        if isinstance(s, KernelStep):
            calls.setdefault(s.kernel, []).append("+".join(s.nodes))
    native = sum(isinstance(s, KernelStep) for s in steps)
    host = [s for s in steps if isinstance(s, HostStep)]
    control = [s for s in steps if isinstance(s, ControlStep)]
    lines.append(
        f"plan: {native} native kernel calls of {len(calls)} kernels, {len(host)} host operators, "
        f"{len(control)} control operators"
    )
    checks = sum(isinstance(s, CheckStep) for s in steps)
    lines.append(f"  indices out of range: {_OUT_OF_RANGE[plan.out_of_range]} ({checks} native checks)")
    if pairs := [f"{output} of {name}" for output, name in plan.in_place]:
        more = f", ... ({len(pairs)})" if len(pairs) > 4 else ""
        lines.append(f"  outputs that may be the memory of an input: {', '.join(pairs[:4])}{more}")
    lines += [f"  host {s.op} ({s.node}): {s.reason}" for s in host]
    lines += [f"  control {s.op} ({s.node}): loop on the host around native bodies" for s in control]
    lines.append("")
    lines.append("kernels (default trace unless a record was used):")
    for name, nodes in calls.items():
        k = kernels[name]
        source = "object cache" if k.cached else "compiled"
        lines.append(
            f"  {name}: {len(nodes)} call(s), {source}, {'all threads' if k.parallel else '1 thread'}, "
            f"{len(k.trace)} schedule steps, {len(k.code)} bytes"
        )
        lines.append(f"    nodes: {'; '.join(nodes[:4])}{' ...' if len(nodes) > 4 else ''}")
    return "\n".join(lines)


def _all_steps(plan: Plan) -> Iterator[Step]:
    for s in plan.steps:
        yield s
        if isinstance(s, ControlStep):
            for body in s.bodies:
                yield from _all_steps(body)


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def explain_schedule_rules(chosen: ChosenSchedules, target: Target, rules: Sequence[ScheduleRule]) -> str:
    """Which nests of which kernels the rules of a user scheduled; "" without such rules."""
    if not rules:
        return ""
    names = {r.name for r in rules}
    lines = []
    for kernel, func in chosen.funcs.items():
        if kernel in chosen.traces:
            lines.append(f"  {kernel}: by a record")
            continue
        taken = explained_default(func, target, chosen.rules)[1]
        found = [f"{rule} ({block})" for block, rule in taken.items() if rule in names]
        lines.append(f"  {kernel}: {', '.join(found) or 'none of them'}")
    return "\n".join(["\n\nschedule rules of yours:", *lines])
