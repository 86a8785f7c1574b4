"""Tuned kernels where they are used: a network timed with its records and without them, in turns.

A record that is faster alone may not be faster between its neighbours, whose data it finds in other caches. So the
best few records of each kernel are tried in place. The fastest gets a verdict in the database: builds of this network
use it, or keep the default schedule where even that one does not help.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.autotune.compare import interleave
from tilewright.autotune.database import Database
from tilewright.autotune.peaks import measure_peaks
from tilewright.autotune.records import Verdict, VerdictScope
from tilewright.autotune.workload import workload_of
from tilewright.build import build_kernels
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.team import team_code
from tilewright.core.target import Target
from tilewright.link import link_plan
from tilewright.lowering.plan import LoweredModel, require_bound
from tilewright.lowering.workspaces import with_scheduled
from tilewright.runtime.model import BuildInfo, CompiledModel
from tilewright.runtime.team import Crew
from tilewright.tuned import ChosenSchedules, RankedSchedules, choose_schedules, network_of, ranked_schedules

_ROUNDS = 5
_LEAST_ROUNDS = 3
_PROFILED_RUNS = 3
_PROFILE_SECONDS = 5.0
_TRIED = 3
"""So many of the best records of a kernel are tried in place."""
_WORTH = 0.99
"""A kernel must take at most this share of the default's time in place."""
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
    the times that decided: the kernel's own in place, or the network's."""

    network: Times
    kept: Mapping[str, Times]
    dropped: Mapping[str, Times]

    @property
    def speedup(self) -> float:
        """Default time divided by tuned time."""
        return 1.0 / self.network.ratio

    def __str__(self) -> str:
        lines = [
            f"network: {self.network.default * 1e3:.3f} ms -> {self.network.tuned * 1e3:.3f} ms "
            f"({self.speedup:.2f}x); records used in {len(self.kept)} kernels"
        ]
        lines += [f"  {name}: default kept, {t.ratio:.2f}x the time in place" for name, t in self.dropped.items()]
        return "\n".join(lines)


def assemble(
    lowered: LoweredModel, target: Target, chosen: ChosenSchedules, cache: ObjectCache | None
) -> CompiledModel:
    """A compiled model of a lowered one: what :func:`tilewright.compile.compile` does after the look-up."""
    kernels = build_kernels(chosen.funcs, target, cache, chosen.traces)
    plan = with_scheduled(lowered.plan, {name: k.facts() for name, k in kernels.items()})
    require_bound(plan)
    code, library = link_plan(plan, kernels, target, cache)
    info = BuildInfo(
        lambda: "built by the tuner", {}, measure_peaks=lambda n: measure_peaks(target, n), tuning=chosen.tuning
    )
    return CompiledModel(plan, code, Crew(target.threads, team_code()), info, library)


def check_in_place(
    lowered: LoweredModel, target: Target, database: Database, feed: Mapping[str, object], default: CompiledModel,
    cache: ObjectCache | None, clock: Callable[[], float] = time.time,
) -> tuple[NetworkCheck, CompiledModel]:  # fmt: skip
    """Time the network with the best few records of each kernel in ``database`` and without; keep what helps; append
    verdicts.

    Returns what was found and the model to use.
    """
    judge = _Judge(lowered, target, database, clock)
    ranked = ranked_schedules(lowered, target, database, _TRIED)
    models = [assemble(lowered, target, r.chosen, cache) for r in ranked]
    best = _best_in_place(ranked, kernel_times(default, models, feed))
    times = {name: t for name, (_, t) in best.items()}
    dropped = {name: t for name, t in times.items() if t.ratio > _WORTH}
    for name, (candidate, t) in best.items():
        judge.decide(name, candidate, t, name not in dropped, "kernel")
    model, changed = judge.build(cache)
    whole: Times | None = None
    while changed:
        whole = _network_times(default, model, feed)
        if whole.ratio <= _SLOWER:
            break
        # the kernels that gain least go first, half of them at a time
        order = sorted(changed, key=lambda n: -times[n].ratio if n in times else -1.0)
        for name in order[: (len(order) + 1) // 2]:
            judge.decide(name, judge.candidate_of(name, best), whole, False, "network")
            dropped[name] = whole
        model, changed = judge.build(cache)
    if not changed or whole is None:
        alone = _median_seconds(default, feed)
        return NetworkCheck(Times(alone, alone), {}, dropped), default
    return NetworkCheck(whole, {n: times.get(n, whole) for n in changed}, dropped), model


def _best_in_place(
    ranked: Sequence[RankedSchedules], times: Sequence[Mapping[str, Times]]
) -> dict[str, tuple[str, Times]]:
    """For each kernel the record that took least there, and its times."""
    best: dict[str, tuple[str, Times]] = {}
    for r, found in zip(ranked, times, strict=True):
        for name, candidate in r.candidates.items():
            if name in found and (name not in best or found[name].tuned < best[name][1].tuned):
                best[name] = (candidate, found[name])
    return best


def kernel_times(
    default: CompiledModel, tuned: Sequence[CompiledModel], feed: Mapping[str, object], rounds: int = _ROUNDS
) -> list[dict[str, Times]]:
    """Seconds of all calls of each kernel in every model and in the default one, profiled in turns."""
    models = (default, *tuned)
    samples: list[dict[str, list[float]]] = [{} for _ in models]
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= _LEAST_ROUNDS and time.perf_counter() - begin > _PROFILE_SECONDS:
            break
        for i in range(len(models)):
            at = (i + done) % len(models)
            sums: dict[str, float] = {}
            for k in models[at].profile(feed, _PROFILED_RUNS).kernels:
                sums[k.kernel] = sums.get(k.kernel, 0.0) + k.seconds
            for name, seconds in sums.items():
                samples[at].setdefault(name, []).append(seconds)
    own, *others = [{n: statistics.median(x) for n, x in found.items()} for found in samples]
    return [
        {n: Times(t, own[n]) for n, t in found.items() if t > 0 and own.get(n, 0.0) > 0} for found in others
    ]


class _Judge:
    """Builds with the database as it is, and writes verdicts to it."""

    def __init__(
        self, lowered: LoweredModel, target: Target, database: Database, clock: Callable[[], float]
    ) -> None:
        self.lowered, self.target, self.database, self.clock = lowered, target, database, clock
        self.network = network_of(lowered)
        self.chosen: ChosenSchedules | None = None

    def build(self, cache: ObjectCache | None) -> tuple[CompiledModel, list[str]]:
        """The model with its exact records, and the kernels that they change."""
        self.chosen = choose_schedules(self.lowered, self.target, self.database, "exact")
        return assemble(self.lowered, self.target, self.chosen, cache), list(self.chosen.traces)

    def candidate_of(self, name: str, best: Mapping[str, tuple[str, Times]]) -> str:
        """The record that the last build used for a kernel."""
        if name in best:
            return best[name][0]
        records = self.database.top_k(workload_of(self.lowered.funcs[name]), 1, self.target, "exact")
        return records[0].candidate if records else ""

    def decide(self, name: str, candidate: str, times: Times, helps: bool, scope: VerdictScope) -> None:
        """Append a verdict on a kernel's record, with the times that it rests on."""
        workload = workload_of(self.lowered.funcs[name])
        records = self.database.top_k(workload, 1 << 30, self.target, "exact")
        # after all records it is about and the verdict before it, also where a clock is ahead or stands still
        now = max([self.clock(), *(r.time for r in records)])
        before = self.database.verdict(workload, self.target, self.network)
        if before is not None:
            now = max(now, math.nextafter(before.time, math.inf))
        self.database.append(
            Verdict(
                workload.hash, self.network, self.target, candidate, helps, times.tuned, times.default, now, scope
            )
        )


def _network_times(default: CompiledModel, tuned: CompiledModel, feed: Mapping[str, object]) -> Times:
    """Median seconds of an inference; if the tuned one looks slower, those of a second attempt, twice as long."""
    start = time.perf_counter()
    default.run(feed)
    slow = time.perf_counter() - start > _SLOW_SECONDS
    contenders = {"default": lambda: default.run(feed), "tuned": lambda: tuned.run(feed)}
    out = Times(1.0, 1.0)
    for more in (1, 2):
        found = interleave(contenders, _NETWORK_SECONDS * more, _SLOW_RUNS * more if slow else None)
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
