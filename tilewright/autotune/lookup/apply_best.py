"""The schedules of a model's kernels from a tuning database: hits, near misses, and the account of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tilewright.autotune.base.workload import Workload, canonical
from tilewright.autotune.lookup.lookup import Match, best_traces, look_up
from tilewright.autotune.lookup.workloads import networks_of, workloads_of
from tilewright.autotune.measure.ab_timing import time_ratio
from tilewright.autotune.records.database import Database, Policy
from tilewright.codegen.detect_cpu import runs_here
from tilewright.core.errors import CoverageError
from tilewright.core.plan import Plan
from tilewright.lowering.flops import func_bytes
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.runtime.coverage import KernelTuning, Status, estimated_coverage
from tilewright.schedule.default import DEFAULT_RULES, default_trace
from tilewright.schedule.rules.base import ScheduleRule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func

NearMisses: TypeAlias = Literal["measure", "replay", "ignore"]
"""What a build does with a near miss: time it against the default and use the faster, use it untimed, or not at all."""

_TIMING_SECONDS = 0.03
_MOST_BYTES = 4 << 30
"""Parameters of a kernel that is timed in a build."""


@dataclass(frozen=True, slots=True)
class ChosenSchedules:
    """``funcs``: the functions to build, under the names that ``traces`` use; kernels without a trace get the default,
    by ``rules``.

    ``tuning``: status and reason of every kernel.
    """

    funcs: Mapping[str, Func]
    traces: Mapping[str, Trace]
    tuning: Mapping[str, KernelTuning]
    rules: Sequence[ScheduleRule] = DEFAULT_RULES

    def trace_of(self, name: str, target: Target) -> Trace:
        """The schedule of a kernel."""
        found = self.traces.get(name)
        return default_trace(self.funcs[name], target, self.rules) if found is None else found

    def given(self, target: Target) -> Mapping[str, Trace]:
        """The schedules that a build cannot find by itself: all of them with rules that it does not have."""
        own = self.rules is not DEFAULT_RULES
        return {n: self.trace_of(n, target) for n in self.funcs} if own else self.traces


@dataclass(frozen=True, slots=True)
class RankedSchedules:
    """``candidates``: which record each kernel's trace is from."""

    chosen: ChosenSchedules
    candidates: Mapping[str, str]


def choose_schedules(
    lowered: LoweredModel,
    target: Target,
    database: Database | None,
    policy: Policy = "any",
    near_misses: NearMisses = "measure",
    workloads: Mapping[str, Workload] | None = None,
    rules: Sequence[ScheduleRule] = DEFAULT_RULES,
) -> ChosenSchedules:
    """Look up every kernel of a model. ``workloads``: by kernel, if they are known. ``rules``: what the default
    schedules are made by."""
    if database is None:
        none = KernelTuning(Status.MISS, "no database was given")
        return ChosenSchedules(lowered.funcs, {}, dict.fromkeys(lowered.funcs, none), rules)
    workloads = workloads or workloads_of(lowered)
    network = networks_of(lowered, workloads)
    funcs, traces, tuning = dict(lowered.funcs), {}, {}
    for name, func in lowered.funcs.items():
        match = look_up(func, target, database, policy, network, workloads[name], rules)
        if match.status is Status.NEAR_MISS and match.trace is not None:
            match = _tried(func, match, target, near_misses, rules)
        if match.trace is not None:
            funcs[name], traces[name] = match.func, match.trace
        tuning[name] = _tuning(match)
    return ChosenSchedules(funcs, traces, tuning, rules)


def ranked_schedules(
    lowered: LoweredModel, target: Target, database: Database, k: int, names: Collection[str],
    rules: Sequence[ScheduleRule] = DEFAULT_RULES,
) -> list[RankedSchedules]:  # fmt: skip
    """What to try in the network: entry n has the n-th best record of every kernel in ``names`` that has so many."""
    workloads = workloads_of(lowered)
    found = {
        n: best_traces(f, target, database, k, workloads[n], rules) for n, f in lowered.funcs.items() if n in names
    }
    out = []
    for n in range(max(map(len, found.values()), default=0)):
        funcs, traces, candidates = dict(lowered.funcs), {}, {}
        for name, records in found.items():
            if n < len(records):
                candidates[name], funcs[name], traces[name] = records[n]
        out.append(RankedSchedules(ChosenSchedules(funcs, traces, {}, rules), candidates))
    return out


def require_tuned_share(plan: Plan, tuning: Mapping[str, KernelTuning], least: float) -> None:
    """Raises CoverageError, with the table, if hits are less than ``least`` of the run time."""
    coverage = estimated_coverage(plan, tuning)
    if coverage.tuned < least - 1e-9:
        raise CoverageError(
            f"require_tuned: expected {100 * least:g} % of the run time in tuned kernels, "
            f"got {100 * coverage.tuned:.1f} %\n{coverage}"
        )


def _tuning(match: Match) -> KernelTuning:
    seconds = match.record.seconds if match.status is Status.HIT and match.record is not None else None
    return KernelTuning(match.status, match.reason, seconds)


def _tried(func: Func, match: Match, target: Target, near_misses: NearMisses, rules: Sequence[ScheduleRule]) -> Match:
    """A near miss after its trial against the default schedule."""

    def keep(note: str) -> Match:
        return replace(match, reason=f"{match.reason}; {note}")

    def drop(note: str) -> Match:
        return replace(match, reason=f"{match.reason}; {note}", func=func, trace=None)

    if near_misses == "ignore":
        return drop("near misses are ignored: default kept")
    if near_misses == "replay":
        return keep("replayed, not timed against the default")
    if not runs_here(target):
        return drop("cannot be timed on this machine: default kept")
    dims = _dims(match)
    if dims is None:
        return drop("cannot be timed without sizes: default kept")
    if match.trace is None:
        return match
    needed = func_bytes(match.func).evaluate(dims)
    if needed > _MOST_BYTES:
        return drop(f"cannot be timed at its sizes, which take {needed >> 30} GiB: default kept")
    own = canonical(func)
    ratio = time_ratio(match.func, match.trace, own, default_trace(own, target, rules), target, dims, _TIMING_SECONDS)
    if ratio > 1.0:
        return drop(f"took {ratio:.2f}x the time of the default: default kept")
    return keep(f"replayed: {ratio:.2f}x the time of the default")


def _dims(match: Match) -> dict[str, int] | None:
    """Sizes for the symbolic dims of a function: those that the record was measured with."""
    recorded = dict(match.dims or ({} if match.record is None else match.record.dims))
    if not match.func.dims:
        return {}
    return {d: recorded[d] for d in match.func.dims} if set(match.func.dims) <= set(recorded) else None
