"""The account of schedule rules that a user brought along."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.autotune.lookup.apply_best import ChosenSchedules
from tilewright.machine.target import Target
from tilewright.schedule.default import explained_default
from tilewright.schedule.rules.base import ScheduleRule


def explain_schedule_rules(chosen: ChosenSchedules, target: Target, rules: Sequence[ScheduleRule]) -> str:
    """Which nests of which kernels the rules of a user scheduled."""
    names = {r.name for r in rules}
    lines = []
    for kernel, func in chosen.funcs.items():
        if kernel in chosen.traces:
            lines.append(f"  {kernel}: by a record")
            continue
        taken = explained_default(func, target, chosen.rules)[1]
        found = [f"{rule} ({block})" for block, rule in taken.items() if rule in names]
        lines.append(f"  {kernel}: {', '.join(found) or 'none of them'}")
    return "\n".join(["schedule rules of yours:", *lines])
