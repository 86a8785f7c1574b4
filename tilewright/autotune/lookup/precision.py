"""The precision that a log has found for a network on this machine, and for each node of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import cast

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.lookup.workloads import kernel_steps, networks_of, workloads_of
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Choice, NodeChoice
from tilewright.lowering.plan import LoweredModel
from tilewright.lowering.precision.choose_precision import NodePrecision, OfNode, Precisions
from tilewright.machine.target import Target

MIXED = "mixed"
"""In a choice: each node has the precision that ``nodes`` says."""

_REDUCED = ("bf16", "bf16x3")


def recorded_choice(
    records: Database, lowered: LoweredModel, target: Target, workloads: Mapping[str, Workload] | None = None
) -> Choice | None:
    """The latest choice of precision for the network; None without one. ``lowered``: in float32. ``workloads``: as
    :func:`workloads_of` gives them, if they are known."""
    networks = networks_of(lowered, workloads)
    return records.choice(networks[0], target, networks)


def precision_of(
    choice: Choice | None, lowered: LoweredModel, workloads: Mapping[str, Workload] | None = None
) -> Precisions:
    """What a choice asks for: one precision, ``fp32`` also without a choice, or one for each node of ``lowered``."""
    if choice is None or choice.implementation not in (*_REDUCED, MIXED):
        return "fp32"
    if choice.implementation != MIXED:
        return cast(Precisions, choice.implementation)
    places = node_places(lowered, workloads)
    found = {node: choice.nodes[place] for node, place in places.items() if place in choice.nodes}
    return {n: NodePrecision(_precision(c), _measured(c), strict=False) for n, c in found.items()}


def _precision(c: NodeChoice) -> OfNode:
    return cast(OfNode, c.implementation) if c.implementation in _REDUCED else "fp32"


def account(choice: Choice, each: bool = True) -> str:
    """What was compared, and what of it is used; for ``each`` node, too."""
    parts = [
        f"{k} {s * 1e3:.3f} ms" + (f", off by {choice.errors[k]:.1e}" if k in choice.errors else "")
        for k, s in choice.seconds.items()
    ]
    kinds = Counter(n.implementation for n in choice.nodes.values())
    lines = [f"precision {choice.implementation}: {'; '.join(parts) or 'no product gains on bfloat16'}"]
    if choice.nodes:
        lines[0] += f"; {kinds['bf16']} of {len(choice.nodes)} products on bfloat16"
        if kinds["bf16x3"]:
            lines[0] += f", {kinds['bf16x3']} on two for each operand"
    if each:
        lines += [f"  {n.name}: {n.implementation}; {_measured(n)}" for n in choice.nodes.values()]
    return "\n".join(lines)


def _measured(c: NodeChoice) -> str:
    """What was measured of a node."""
    parts = [f"{s * 1e6:.1f} us in {precision}" for precision, s in c.seconds.items()]
    if c.error is not None:
        parts.append(f"results off by {c.error:.1e} with it alone on bfloat16")
    return f"by a record: {', '.join(parts) or 'not measured'}"


def node_places(lowered: LoweredModel, workloads: Mapping[str, Workload] | None = None) -> dict[str, str]:
    """The place of each node that kernels compute, by its name: one that does not depend on names. It is the hash of
    the kernel's workload, and a number among the nodes of all calls of such kernels."""
    workloads = workloads or workloads_of(lowered)
    numbers: Counter[str] = Counter()
    out: dict[str, str] = {}
    for step in kernel_steps(lowered.plan):
        workload = workloads[step.kernel].hash
        for node in step.nodes:
            out[node] = f"{workload} {numbers[workload]}"
            numbers[workload] += 1
    return out
