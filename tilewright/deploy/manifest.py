"""What an artifact says of itself, as JSON."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.core.plan import ControlStep, HostStep, KernelStep, Plan
from tilewright.machine.target import Target
from tilewright.runtime.coverage import KernelTuning, Status
from tilewright.runtime.signature import TensorSpec

FORMAT = 1
"""Of the manifest and of what it is in."""
BEGIN = b'{"tilewright":"'
"""How a manifest begins, in any artifact."""


def manifest(
    plan: Plan, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], target: Target,
    tuning: Mapping[str, KernelTuning], weights: tuple[int, int, int], features: Sequence[str],
) -> str:  # fmt: skip
    """The text. The same build gives the same: no dates, no paths."""
    kernels = [s for s in _steps(plan) if isinstance(s, KernelStep)]
    names = dict.fromkeys(s.kernel for s in kernels)
    hits = sum(1 for n in names if n in tuning and tuning[n].status is Status.HIT)
    said: dict[str, Any] = {
        "tilewright": importlib.metadata.version("tilewright"), "format": FORMAT, "model": plan.name,
        "target": {"triple": target.triple, "cpu": target.cpu, "threads": target.threads, "features": list(features)},
        "weights": {"bytes": weights[0], "digest": f"{weights[1]:016x}{weights[2]:016x}"},
        "inputs": [_spec(s) for s in inputs], "outputs": [_spec(s) for s in outputs],
        "in_place": {o: i for o, i in plan.in_place},
        "kernels": len(names), "tuned_kernels": hits,
        "steps": [_step(s) for s in plan.steps],
    }  # fmt: skip
    return json.dumps(said, separators=(",", ":"), ensure_ascii=True)


def _spec(s: TensorSpec) -> dict[str, Any]:
    return {"name": s.name, "type": s.dtype.name, "shape": None if s.shape is None else list(s.shape)}


def _steps(plan: Plan) -> list[Any]:
    out: list[Any] = []
    for s in plan.steps:
        out.append(s)
        if isinstance(s, ControlStep):
            for b in s.bodies:
                out += _steps(b)
    return out


def _step(step: object) -> str:
    if isinstance(step, KernelStep):
        return step.kernel
    if isinstance(step, HostStep | ControlStep):
        return step.op
    return "check"
