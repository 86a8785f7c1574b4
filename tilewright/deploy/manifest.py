"""What an artifact says of itself, as JSON."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.core.plan import ControlStep, HostStep, KernelStep, Plan, all_steps
from tilewright.machine.target import Target
from tilewright.runtime.coverage import KernelTuning, Status, estimated_coverage
from tilewright.runtime.signature import TensorSpec

FORMAT = 1
"""Of the manifest and of what it is in."""
BEGIN = b'{"tilewright":"'
"""How a manifest begins, in any artifact."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a build was made of. ``graph``: the text of the model's graph, without its weights. ``implementations``: by
    node, of those that can be computed in several ways. ``tuning``: what the records had for each kernel."""

    graph: Callable[[], str]
    implementations: Callable[[], Mapping[str, str]]
    tuning: Mapping[str, KernelTuning]


def manifest(
    plan: Plan, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], target: Target, origin: Origin,
    weights: tuple[int, int, int], features: Sequence[str],
) -> str:  # fmt: skip
    """The text. The same build gives the same: no dates, no paths."""
    kernels = dict.fromkeys(s.kernel for s in all_steps(plan) if isinstance(s, KernelStep))
    names = {o: s.name for o, s in zip(plan.outputs, outputs, strict=True)}
    said: dict[str, Any] = {
        "tilewright": importlib.metadata.version("tilewright"), "format": FORMAT, "model": plan.name,
        "graph": hashlib.sha256(origin.graph().encode()).hexdigest(),
        "target": {"triple": target.triple, "cpu": target.cpu, "threads": target.threads, "features": list(features)},
        "weights": {"bytes": weights[0], "digest": f"{weights[1]:016x}{weights[2]:016x}"},
        "inputs": [s.to_json() for s in inputs], "outputs": [s.to_json() for s in outputs],
        "in_place": {names[o]: i for o, i in plan.in_place},
        "kernels": len(kernels), "tuning": _tuning(plan, origin.tuning), "implementations": origin.implementations(),
        "steps": [_step(s) for s in plan.steps],
    }  # fmt: skip
    return json.dumps(said, separators=(",", ":"), ensure_ascii=True)


def _tuning(plan: Plan, tuning: Mapping[str, KernelTuning]) -> dict[str, Any]:
    """How many kernels have a record, the share of the run time that they are estimated to take, and which they are."""
    coverage = estimated_coverage(plan, tuning)
    return {
        **{s.name.lower(): coverage.count(s) for s in Status},
        "share": round(coverage.share(Status.HIT), 4),
        "records": {r.kernel: r.reason for r in coverage.rows if r.status is Status.HIT},
    }


def _step(step: object) -> str:
    if isinstance(step, KernelStep):
        return step.kernel
    if isinstance(step, HostStep | ControlStep):
        return step.op
    return "check"
