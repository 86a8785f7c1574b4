"""Tuned kernels where they are used: a network timed with its records and without them, in turns.

A record that is faster alone may not be faster between its neighbours, whose data it finds in other caches. So the
best few records of each kernel are tried in the network. The fastest gets a verdict in the database: builds of this
network use it, or keep the default schedule where even that one does not help.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tilewright.autotune.lookup.apply_best import ChosenSchedules, choose_schedules, ranked_schedules
from tilewright.autotune.lookup.workloads import kernel_of_node, networks_of, workload_hashes
from tilewright.autotune.measure.interleaved_timing import interleave
from tilewright.autotune.measure.noise_monitor import STORED, noise_monitor_of
from tilewright.autotune.measure.peaks import measure_peaks
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Choice, Verdict, VerdictScope, time_after
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.kernels.build import build_kernels
from tilewright.kernels.link import finished_plan, link_plan
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.runtime.model import BuildInfo, CompiledModel
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.schedule.default import DEFAULT_RULES
from tilewright.schedule.rules.base import ScheduleRule

_ROUNDS = 5
_LEAST_ROUNDS = 3
_PROFILED_RUNS = 3
_PROFILE_SECONDS = 5.0
_TRIED = 3
"""So many of the best records of a kernel are tried in the network."""
_WORTH = 0.99
"""A kernel must take at most this share of the default's time in the network."""
_NETWORK_SECONDS = 2.0
_SLOWER = 1.003
"""A network counts as slower beyond this ratio, twice in a row; less cannot be told from noise."""
_SLOW_SECONDS = 0.05
"""A network that takes longer is run a fixed number of times."""
_SLOW_RUNS = 8


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds with records and without."""

    tuned: float
    default: float

    @property
    def ratio(self) -> float:
        """Tuned time as a share of the default's."""
        return self.tuned / self.default


@dataclass(frozen=True, slots=True)
class NetworkCheck:
    """``network``: median seconds of one inference. ``kept``, ``dropped``: kernels whose record is used or not, with
    the times that decided: the kernel's own in the network, or those of the whole. ``implementations``: nodes that use
    another one than without records."""

    network: Times
    kept: Mapping[str, Times]
    dropped: Mapping[str, Times]
    implementations: Mapping[str, str] = field(default_factory=dict)

    @property
    def speedup(self) -> float:
        """Default time divided by tuned time."""
        return 1.0 / self.network.ratio

    def __str__(self) -> str:
        lines = [
            f"network: {self.network.default * 1e3:.3f} ms -> {self.network.tuned * 1e3:.3f} ms "
            f"({self.speedup:.2f}x); records used in {len(self.kept)} kernels"
        ]
        lines += [f"  {node}: {implementation}" for node, implementation in self.implementations.items()]
        lines += [f"  {name}: default kept, {t.ratio:.2f}x the time in the network" for name, t in self.dropped.items()]
        return "\n".join(lines)


def assemble(
    lowered: LoweredModel, target: Target, chosen: ChosenSchedules, cache: ObjectCache | None
) -> CompiledModel:
    """A compiled model of a lowered one: what :func:`tilewright.compile.compile` does after the look-up."""
    kernels = build_kernels(chosen.funcs, target, cache, chosen.given(target))
    plan = finished_plan(lowered.plan, kernels)
    code, library = link_plan(plan, kernels, target, cache)
    info = BuildInfo(
        lambda: "built by the tuner", {}, measure_peaks=lambda n: measure_peaks(target, n), tuning=chosen.tuning
    )
    return CompiledModel(plan, code, PoolHandle(target.threads, thread_pool_code()), info, library)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """The network with one assignment of implementations (by node), lowered, and built with default schedules."""

    implementations: Mapping[str, str]
    lowered: LoweredModel
    model: CompiledModel


def check_end_to_end(
    variants: Sequence[Variant], relower: Callable[[Mapping[str, str]], LoweredModel], target: Target,
    database: Database, feed: Mapping[str, object], cache: ObjectCache | None,
    clock: Callable[[], float] = time.time, rules: Sequence[ScheduleRule] = DEFAULT_RULES,
) -> tuple[NetworkCheck, CompiledModel]:  # fmt: skip
    """Time the network with the best few records of each kernel in ``database`` and without, and with each
    implementation; keep what helps; append verdicts and choices.

    ``variants``: the network as it is without records first, then with other implementations. ``relower``: the network
    with given implementations. ``rules``: what the default schedules are made by. Returns what was found and the model
    to use.
    """
    own = variants[0]
    judge = _Judge(own, target, database, clock, rules)
    for v in variants:
        judge.try_records(v, feed, cache)
    judge.choose_implementation(variants)
    tried = {n: judge.times[h] for n, h in workload_hashes(own.lowered).items() if h in judge.candidates}
    dropped = {n: t for n, t in tried.items() if t.ratio > _WORTH}
    while True:
        lowered = relower(judge.implementations) if judge.implementations else own.lowered
        chosen = choose_schedules(lowered, target, database, "exact", rules=rules)
        gains = judge.gains(lowered, chosen)
        if not gains:
            alone = _median_seconds(own.model, feed)
            return NetworkCheck(Times(alone, alone), {}, dropped), own.model
        model = assemble(lowered, target, chosen, cache)
        whole = _network_times(own.model, model, feed)
        if whole.ratio <= _SLOWER:
            return NetworkCheck(whole, gains, dropped, dict(judge.implementations)), model
        # what gains least goes first, half of it at a time
        for name in sorted(gains, key=lambda n: -gains[n].ratio)[: (len(gains) + 1) // 2]:
            judge.give_up(lowered, name, whole)
            dropped[name] = whole


def kernel_times(
    default: CompiledModel, tuned: Sequence[CompiledModel], feed: Mapping[str, object], rounds: int = _ROUNDS
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Seconds of a call of each kernel in the default model and in every other one, profiled in turns."""
    models = (default, *tuned)
    samples: list[dict[str, list[float]]] = [{} for _ in models]
    noise = noise_monitor_of(default.threads)
    noise.grant(_PROFILE_SECONDS / STORED)
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= _LEAST_ROUNDS and time.perf_counter() - begin > _PROFILE_SECONDS:
            break
        for i in range(len(models)):
            at = (i + done) % len(models)
            calls: dict[str, list[float]] = {}
            for k in noise.take(partial(models[at].profile, feed, _PROFILED_RUNS)).kernels:
                calls.setdefault(k.kernel, []).append(k.seconds)
            for name, seconds in calls.items():
                samples[at].setdefault(name, []).append(statistics.fmean(seconds))
    own, *others = [{n: statistics.median(x) for n, x in found.items()} for found in samples]
    return own, others


class _Judge:
    """What was found in the network, and the verdicts and choices that follow from it.

    ``times``: of a call, by workload. ``candidates``: the records that were tried, the best by workload.
    """

    def __init__(
        self, own: Variant, target: Target, database: Database, clock: Callable[[], float],
        rules: Sequence[ScheduleRule] = DEFAULT_RULES,
    ) -> None:  # fmt: skip
        self.own, self.target, self.database, self.clock, self.rules = own, target, database, clock, rules
        self.network = networks_of(own.lowered)
        self.times: dict[str, Times] = {}
        self.implementations: dict[str, str] = {}
        self.candidates: dict[str, str] = {}
        self._by_implementation: dict[str, dict[str, float]] = {}
        self._own_nodes = kernel_of_node(own.lowered)
        self._own_hashes = workload_hashes(own.lowered)

    def try_records(self, v: Variant, feed: Mapping[str, object], cache: ObjectCache | None) -> None:
        """Times of the kernels of a variant with the default schedule and with the best few records; verdicts."""
        hashes = workload_hashes(v.lowered)
        new = {n for n, h in hashes.items() if h not in self.times}
        ranked = ranked_schedules(v.lowered, self.target, self.database, _TRIED, new, self.rules)
        models = [assemble(v.lowered, self.target, r.chosen, cache) for r in ranked]
        default, others = kernel_times(v.model, models, feed)
        for name in sorted(new & default.keys()):
            tried = [(o[name], r.candidates[name]) for r, o in zip(ranked, others, strict=True) if name in r.candidates]
            if not tried:
                self.times[hashes[name]] = Times(default[name], default[name])
                continue
            seconds, candidate = min(tried)
            self.times[hashes[name]] = times = Times(seconds, default[name])
            self.candidates[hashes[name]] = candidate
            self._decide(hashes[name], times, times.ratio <= _WORTH, "kernel")

    def choose_implementation(self, variants: Sequence[Variant]) -> None:
        """The fastest implementation of each kernel that has several, with its best schedule."""
        names = dict.fromkeys(n for v in variants for n in v.implementations)
        sums: dict[str, dict[str, list[float]]] = {}
        for v in variants:
            kernels, hashes = kernel_of_node(v.lowered), workload_hashes(v.lowered)
            for node in names:
                t = self.times.get(hashes[kernels[node]]) if node in kernels else None
                if t is not None:
                    workload = self._own_hashes[self._own_nodes[node]]
                    of_kernel = sums.setdefault(workload, {})
                    of_kernel.setdefault(v.implementations[node], []).append(min(t.tuned, t.default))
        for workload, found in sums.items():
            seconds = {a: statistics.fmean(x) for a, x in found.items()}
            self._by_implementation[workload] = seconds
            own = self._own_implementation(workload)
            best = min(seconds, key=lambda a: (seconds[a], a))
            self._choose(workload, best if seconds[best] <= _WORTH * seconds[own] else own)

    def gains(self, lowered: LoweredModel, chosen: ChosenSchedules) -> dict[str, Times]:
        """The kernels that are not as the network has them without records, with their times there."""
        out: dict[str, Times] = {}
        own_workloads = self._own_workloads(lowered)
        for name, h in workload_hashes(lowered).items():
            workload = own_workloads.get(name, "")
            if self._is_other_implementation(h, workload):
                seconds = self._by_implementation[workload]
                own = seconds[self._own_implementation(workload)]
                t = self.times.get(h)
                out[name] = Times(min(t.tuned, t.default) if t is not None else own, own)
            elif name in chosen.traces:
                out[name] = self.times.get(h, Times(1.0, 1.0))
        return out

    def give_up(self, lowered: LoweredModel, name: str, whole: Times) -> None:
        """Back to the default for a kernel that made the network slower."""
        h, workload = workload_hashes(lowered)[name], self._own_workloads(lowered).get(name, "")
        if self._is_other_implementation(h, workload):
            self._choose(workload, self._own_implementation(workload))
        else:
            self._decide(h, whole, False, "network")

    # -- lines of the log ------------------------------------------------------------------------------------------
    def _choose(self, workload: str, implementation: str) -> None:
        own = self._own_implementation(workload)
        for node in self._nodes_of(workload):
            if implementation == own:
                self.implementations.pop(node, None)
            else:
                self.implementations[node] = implementation
        before = self.database.choice(workload, self.target, self.network)
        now = time_after(before, self.clock())
        seconds = self._by_implementation[workload]
        self.database.append(Choice(workload, self.network[0], self.target, implementation, seconds, now))

    def _decide(self, workload: str, times: Times, helps: bool, scope: VerdictScope) -> None:
        records = self.database.top_k(workload, 1 << 30, self.target, "exact")
        before = self.database.verdict(workload, self.target, self.network)
        now = max([time_after(before, self.clock()), *(r.time for r in records)])
        candidate = self.candidates.get(workload) or (records[0].candidate if records else "")
        self.database.append(
            Verdict(workload, self.network[0], self.target, candidate, helps, times.tuned, times.default, now, scope)
        )

    # -- who is who ------------------------------------------------------------------------------------------------
    def _is_other_implementation(self, workload: str, own: str) -> bool:
        """True if ``workload`` stands where the network without records has ``own``, with another implementation."""
        return workload != own and own in self._by_implementation

    def _nodes_of(self, workload: str) -> list[str]:
        return [n for n in self.own.implementations if self._own_hashes[self._own_nodes[n]] == workload]

    def _own_implementation(self, workload: str) -> str:
        return self.own.implementations[self._nodes_of(workload)[0]]

    def _own_workloads(self, lowered: LoweredModel) -> dict[str, str]:
        """By kernel of ``lowered``: the workload that stands in its place in the network without records."""
        out: dict[str, str] = {}
        for node, kernel in kernel_of_node(lowered).items():
            if node in self._own_nodes:
                out.setdefault(kernel, self._own_hashes[self._own_nodes[node]])
        return out


def _network_times(default: CompiledModel, tuned: CompiledModel, feed: Mapping[str, object]) -> Times:
    """Median seconds of an inference; if the tuned one looks slower, those of a second attempt, twice as long."""
    start = time.perf_counter()
    default.run(feed)
    slow = time.perf_counter() - start > _SLOW_SECONDS
    contenders = {"default": lambda: default.run(feed), "tuned": lambda: tuned.run(feed)}
    noise = noise_monitor_of(default.threads)
    out = Times(1.0, 1.0)
    for more in (1, 2):
        runs = _SLOW_RUNS * more if slow else None
        found = interleave(contenders, _NETWORK_SECONDS * more, runs, noise=noise)
        out = Times(found["tuned"].median, found["default"].median)
        if out.ratio <= _SLOWER:
            break
    return out


def _median_seconds(model: CompiledModel, feed: Mapping[str, object]) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        model.run(feed)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)
