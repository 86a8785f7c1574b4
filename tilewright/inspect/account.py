"""What a build did and refused, as a value: as text (``explain``), and as what JSON has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.core.plan import CheckStep, ControlStep, HostStep, KernelStep, Plan, all_steps
from tilewright.graph_ir.pipeline import PassRecord, PassReport
from tilewright.inspect.implementations import Candidate, Choice, explain_choices
from tilewright.kernels.build import Kernel
from tilewright.machine.target import Target
from tilewright.machine.vectors import target_text

_OUT_OF_RANGE = {"error": "an error of the run", "clamp": "the nearest element is taken"}


@dataclass(frozen=True, slots=True)
class BuildAccount:
    """``report`` and ``fusion``: of the graph passes and of those of fusion. ``laps``: seconds by stage. ``choices``:
    implementations, found when they are asked for. ``more``: further sections of the text."""

    target: Target
    report: PassReport
    fusion: PassReport
    plan: Plan
    kernels: Mapping[str, Kernel]
    laps: tuple[tuple[str, float], ...]
    choices: Callable[[], list[Choice]]
    more: Callable[[], list[str]] = field(default=list)

    def text(self) -> str:
        """Plain text, a section each."""
        lines = [f"target: {target_text(self.target)}", ""]
        lines += ["build time:", *(f"  {name:<16} {seconds:7.3f} s" for name, seconds in self.laps), ""]
        lines += ["graph passes (what fired, what was refused and why):", *_indent(self.report.explain()), ""]
        lines += ["fusion and placement (what was kept apart and why; what was fused stands with the kernels below):"]
        lines += [*_indent(self.fusion.explain()), "", *self._plan_lines(), "", *self._kernel_lines()]
        return "\n\n".join(["\n".join(lines), explain_choices(self.choices()), *self.more()])

    def to_json(self) -> dict[str, Any]:
        """The same as objects, lists, text and numbers: seconds, bytes, multiply-adds and counts."""
        steps, calls = list(all_steps(self.plan)), self._calls()
        return {
            "target": self.target.key(),
            "seconds": dict(self.laps),
            "passes": [_pass(r) for r in (self.report + self.fusion).records],
            "kernels": [
                {
                    "kernel": name, "nodes": nodes, "cached": (k := self.kernels[name]).cached, "parallel": k.parallel,
                    "schedule_steps": len(k.trace), "code_bytes": len(k.code),
                }
                for name, nodes in calls.items()
            ],
            "host_operators": [
                {"operator": s.op, "node": s.node, "reason": s.reason} for s in steps if isinstance(s, HostStep)
            ],
            "control_operators": [{"operator": s.op, "node": s.node} for s in steps if isinstance(s, ControlStep)],
            "out_of_range": self.plan.out_of_range,
            "index_checks": sum(isinstance(s, CheckStep) for s in steps),
            "in_place": dict(self.plan.in_place),
            "implementations": [_choice(c) for c in self.choices()],
        }  # fmt: skip

    def _calls(self) -> dict[str, list[str]]:
        """The nodes of each call, by kernel."""
        out: dict[str, list[str]] = {}
        for s in all_steps(self.plan):
            if isinstance(s, KernelStep):
                out.setdefault(s.kernel, []).append("+".join(s.nodes))
        return out

    def _plan_lines(self) -> list[str]:
        steps = list(all_steps(self.plan))
        native = sum(isinstance(s, KernelStep) for s in steps)
        host = [s for s in steps if isinstance(s, HostStep)]
        control = [s for s in steps if isinstance(s, ControlStep)]
        checks = sum(isinstance(s, CheckStep) for s in steps)
        lines = [
            f"plan: {native} native kernel calls of {len(self._calls())} kernels, {len(host)} host operators, "
            f"{len(control)} control operators",
            f"  indices out of range: {_OUT_OF_RANGE[self.plan.out_of_range]} ({checks} native checks)",
        ]
        if pairs := [f"{output} of {name}" for output, name in self.plan.in_place]:
            more = f", ... ({len(pairs)})" if len(pairs) > 4 else ""
            lines.append(f"  outputs that may be the memory of an input: {', '.join(pairs[:4])}{more}")
        lines += [f"  host {s.op} ({s.node}): {s.reason}" for s in host]
        return lines + [f"  control {s.op} ({s.node}): loop on the host around native bodies" for s in control]

    def _kernel_lines(self) -> list[str]:
        lines = ["kernels (default trace unless a record was used):"]
        for name, nodes in self._calls().items():
            k = self.kernels[name]
            source = "object cache" if k.cached else "compiled"
            lines.append(
                f"  {name}: {len(nodes)} call(s), {source}, {'all threads' if k.parallel else '1 thread'}, "
                f"{len(k.trace)} schedule steps, {len(k.code)} bytes"
            )
            lines.append(f"    nodes: {'; '.join(nodes[:4])}{' ...' if len(nodes) > 4 else ''}")
        return lines


def _pass(r: PassRecord) -> dict[str, Any]:
    fired: dict[str, int] = {}
    for f in r.log.fired:
        fired[f.what] = fired.get(f.what, 0) + 1
    refused = [{"rule": f.what, "node": f.node, "reason": f.reason} for f in r.log.refused]
    return {
        "name": r.name, "nodes_before": r.nodes_before, "nodes_after": r.nodes_after, "fired": fired,
        "notes": list(r.log.notes), "refused": refused,
    }  # fmt: skip


def _choice(c: Choice) -> dict[str, Any]:
    return {
        "node": c.node, "operator": c.operator, "chosen": c.chosen, "by": c.by,
        "candidates": [_candidate(x) for x in c.candidates],
        "refused": [{"name": name, "reason": why} for name, why in c.refused],
    }  # fmt: skip


def _candidate(x: Candidate) -> dict[str, Any]:
    return {"name": x.name, "cost": float(x.cost), "error": None if x.error is None else float(x.error)}


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]
