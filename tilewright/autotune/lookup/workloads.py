"""The names under which records of a model's kernels are kept, and verdicts and choices of the model: those that this
version gives, and those that are in older logs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tilewright.autotune.base.workload import Workload, canonical, described, workload_of
from tilewright.core.plan import KernelStep, Plan, all_steps
from tilewright.lowering.plan import LoweredModel
from tilewright.lowering.subview import Places, moved
from tilewright.tensor_ir.ir import Func


def workloads_of(lowered: LoweredModel) -> dict[str, Workload]:
    """The workload of every kernel, by the kernel's name, with what it was formerly for each of its places."""
    places: dict[str, list[Places]] = {}
    for (kernel, _), where in lowered.places.items():
        places.setdefault(kernel, []).append(where)
    return {name: workload_at(f, places.get(name, ())) for name, f in lowered.funcs.items()}


def workload_at(func: Func, places: Iterable[Places]) -> Workload:
    """The workload that ``func`` is. Before November 2026 each of its ``places`` was one of its own: the text had the
    indices in the whole arrays."""
    nameless = canonical(func)
    return replace(described(nameless), former=tuple(described(moved(nameless, p)) for p in places))


def networks_of(lowered: LoweredModel, workloads: Mapping[str, Workload] | None = None) -> tuple[str, ...]:
    """The digest under which verdicts and choices in this model are kept, and the one that older logs have if it is
    another. ``workloads``: as :func:`workloads_of` gives them, if they are known."""
    if lowered.known_as:
        return lowered.known_as
    workloads = workloads or workloads_of(lowered)
    unused = {name: iter(w.former) for name, w in workloads.items()}
    former = {call: next(unused[call[0]]).hash for call in lowered.places}
    steps = kernel_steps(lowered.plan)
    names = [workloads[s.kernel].hash for s in steps]
    older = [former.get((s.kernel, s.offsets), name) for s, name in zip(steps, names, strict=True)]
    return tuple(dict.fromkeys((_digest(names), _digest(older))))


def workload_hashes(lowered: LoweredModel) -> dict[str, str]:
    """The hash of every kernel's workload, by the kernel's name."""
    return {name: workload_of(f).hash for name, f in lowered.funcs.items()}


def kernel_of_node(lowered: LoweredModel) -> dict[str, str]:
    """The kernel that computes each node."""
    return {node: step.kernel for step in kernel_steps(lowered.plan) for node in step.nodes}


def kernel_steps(plan: Plan) -> list[KernelStep]:
    """All kernel calls of a plan and of the bodies in it, in order."""
    return [s for s in all_steps(plan) if isinstance(s, KernelStep)]


def _digest(calls: Iterable[str]) -> str:
    """The name of a network: its workloads (by hash) and how often each is called."""
    text = "\n".join(f"{name} {n}" for name, n in sorted(Counter(calls).items()))
    return hashlib.sha256(text.encode()).hexdigest()
