"""Tuning a model: its kernels become tasks weighted by their share of the run time, the tuner works through them, and
at the end the whole network is timed with what was found and without it.

Example::

    >>> import tilewright
    >>> database = tilewright.tune("resnet18.onnx", database="resnet18.jsonl", time_budget_s=60)  # doctest: +SKIP
    >>> model = tilewright.compile("resnet18.onnx", database=database)                             # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Unpack

import numpy as np

from tilewright.autotune.base.space import Space
from tilewright.autotune.base.stopwatch import Stopwatch
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.cost_model.xgboost_model import default_model
from tilewright.autotune.lookup.apply_best import choose_schedules
from tilewright.autotune.lookup.implementations import (
    Tunable,
    find_tunable,
    other_implementations,
    recorded_implementations,
)
from tilewright.autotune.lookup.workloads import kernel_steps, networks_of, workload_hashes, workloads_of
from tilewright.autotune.measure.measurer import EvaluatorConfig, LocalMeasurer, Measurer
from tilewright.autotune.network.end_to_end import NetworkCheck, Variant, assemble, check_end_to_end
from tilewright.autotune.network.feeds import random_feed
from tilewright.autotune.network.options import TuneKeywords, TuneOptions
from tilewright.autotune.network.precision import Chosen, choose_precision, confirm_precision
from tilewright.autotune.network.provenance import session_of
from tilewright.autotune.network.time_parts import (
    IMPLEMENTATIONS,
    NETWORK,
    PRECISION,
    REST,
    SEARCH,
    UNTUNED,
    TimedMeasurer,
    parts_text,
)
from tilewright.autotune.records.database import (
    Database,
    DatabaseLike,
    JSONDatabase,
    MemoryDatabase,
    active_database,
    open_database,
)
from tilewright.autotune.records.session import Session
from tilewright.autotune.search.scheduler import TaskScheduler, TuneResult
from tilewright.autotune.search.tuner import TaskTuner, TunerConfig
from tilewright.autotune.search.warm_start import warm_start
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import parse_target, require_runs_here, with_threads
from tilewright.compile import ModelLike, compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import BroadcastError
from tilewright.core.html.pieces import code, fragment
from tilewright.core.options import require_path
from tilewright.core.plan import Plan
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import Wanted, with_implementations
from tilewright.lowering.plan import LoweredGroups, LoweredModel, fuse_and_lower
from tilewright.machine.target import Target
from tilewright.options import Broadcasting
from tilewright.runtime.coverage import Coverage, measured_coverage
from tilewright.runtime.model import CompiledModel
from tilewright.schedule.default import before_default
from tilewright.schedule.rules.base import ScheduleRule

LOGGER = logging.getLogger("tilewright")

_FIRST_SHARE = 0.35
"""At most this share of the time budget goes into measuring every task's default before the search."""
_LAST_SHARE = 0.1
"""At most this share of it is kept for the defaults of tasks that had no turn until then."""
_TRIAL_SECONDS = 0.5
_CHECK_SHARE = 0.25
"""At most this share of the time budget is kept for timing the whole network at the end."""
_CHECK_RUNS = 150
_BUILD_SECONDS = 0.3
"""What building a task's best records anew takes, about."""
_PROFILED_RUNS = 5
_HOPEFUL = 1.3
"""Another implementation is tuned if it takes at most this ratio of the time that the own one takes, both untuned."""


@dataclass(frozen=True, slots=True)
class ModelTuning:
    """What tuning a model ended with. ``network`` None: the whole network was not timed. ``model``: built with what was
    found. ``precision``: what was found of it, if that was asked for. ``spent``: seconds by what they went into; their
    sum is what all of it took."""

    database: Database
    result: TuneResult
    network: NetworkCheck | None
    model: CompiledModel
    coverage: Coverage
    precision: Chosen | None = None
    spent: Mapping[str, float] = field(default_factory=dict)

    def account(self) -> str:
        """What was gained, what was dropped, and what is left."""
        r = self.result
        lines = [f"{r.trials} trials in {r.elapsed:.1f} s; stopped: {r.stopped}"]
        failures: dict[str, int] = {}
        for t in r.tasks:
            for kind, n in t.failures.items():
                failures[kind] = failures.get(kind, 0) + n
        if failures:
            lines.append("failures: " + ", ".join(f"{n} {k}" for k, n in sorted(failures.items())))
        lines.append(f"expected to gain {100 * r.remaining_gain:.1f} % more")
        if self.network is not None:
            lines.append(str(self.network))
        if self.precision is not None:
            lines.append(str(self.precision))
        if self.spent:
            lines.append(f"time: {parts_text(self.spent)}")
        return "\n".join(lines)

    def summary(self) -> str:
        """:meth:`account`, and which kernel uses which record and how much of the run time is tuned."""
        return f"{self.account()}\n\n{self.coverage}"

    def _repr_html_(self) -> str:
        return fragment(*self.result.pieces(), code(self.account()), *self.coverage.pieces())


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model before tuning. ``graph``: after its passes. ``tunable``: its nodes with several implementations.
    ``variants``: the untuned build first, then builds with other implementations. ``seconds``: of all calls by kernel,
    untuned. ``tasks``: the heaviest first. ``lower``: fuses and lowers the graph with other implementations, of which
    only what is new."""

    graph: Graph
    lower: Callable[[Graph], LoweredModel]
    tunable: tuple[Tunable, ...]
    variants: tuple[Variant, ...]
    target: Target
    feed: Mapping[str, np.ndarray]
    seconds: Mapping[str, float]
    tasks: tuple[Task, ...]

    @property
    def lowered(self) -> LoweredModel:
        """The untuned build, lowered."""
        return self.variants[0].lowered

    def relower(self, implementations: Mapping[str, str]) -> LoweredModel:
        """The model with given implementations (by node; its own for the others), lowered."""
        if not implementations:
            return self.lowered
        changed = self.lower(with_implementations(self.graph, implementations))
        return dataclasses.replace(changed, known_as=networks_of(self.lowered))


def tune(
    model: ModelLike,
    options: TuneOptions | None = None,
    *,
    database: DatabaseLike | None = None,
    work_dir: str | Path | None = None,
    measurer: Measurer | None = None,
    **more: Unpack[TuneKeywords],
) -> Database:
    """Search faster schedules for the kernels of a model on this machine (docs/tuning.md). Gives the database of
    records, for ``compile(model, database=...)``.

    ``model``: as :func:`tilewright.compile` takes it. ``database``: where records are looked up and added: a database,
    or the path of a log, which is made if it is missing. ``work_dir``: a directory for the log instead. Without both it
    is the database of the ``with database:`` block around the call, or one in memory. ``measurer``: what times
    candidates (default: worker processes on this machine).

    ``options`` and keywords: :class:`tilewright.TuneOptions` says what they mean. A keyword (``time_budget_s=60``,
    ``max_trials=100``, ``effort="quick"``) counts before what ``options`` says.

    Raises TargetError if the target's code does not run here, InputError for sizes that are missing.

    >>> options = tilewright.TuneOptions(sizes={"batch": 4}, max_trials=2, time_budget_s=None)
    >>> log = tilewright.tune("model.onnx", options, database="model.jsonl")
    >>> len(log.records()) >= 2
    True
    >>> model = tilewright.compile("model.onnx", database="model.jsonl", input_shapes={"batch": 4})
    >>> [row.calls for row in model.coverage().rows]
    [1, 1]
    """
    return tune_model(model, database, work_dir, measurer, TuneOptions.of("tune", options, more)).database


def tune_model(
    model: ModelLike, database: DatabaseLike | None = None, work_dir: str | Path | None = None,
    measurer: Measurer | None = None, options: TuneOptions | None = None, clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
) -> ModelTuning:  # fmt: skip
    """:func:`tune` with the whole account of it."""
    watch = Stopwatch(clock)
    with watch.part(REST):
        done = _tuned_model(model, database, work_dir, measurer, options or TuneOptions(), watch, clock, wall_clock)
    return dataclasses.replace(done, spent=watch.seconds)


def _tuned_model(
    model: ModelLike, database: DatabaseLike | None, work_dir: str | Path | None, measurer: Measurer | None,
    o: TuneOptions, watch: Stopwatch, clock: Callable[[], float], wall_clock: Callable[[], float],
) -> ModelTuning:  # fmt: skip
    records = _records(database, work_dir)
    chosen: Chosen | None = None
    if o.feed is None and o.samples:
        o = dataclasses.replace(o, feed=o.samples[0], samples=o.samples[1:])
    if o.precision == "auto":
        _say(o, "comparing precisions", ())
        with watch.part(PRECISION):
            chosen = choose_precision(model, records, o)
        o = dataclasses.replace(o, precision=chosen.precision)
    _say(o, "compiling and profiling the untuned network", ())
    prepared = prepare(model, o, watch)
    session = session_of(model, o, wall_clock())
    with nullcontext(measurer) if measurer is not None else LocalMeasurer(EvaluatorConfig()) as used:
        timed = TimedMeasurer(used, watch)
        done = _tuned(prepared, records, timed, o, clock, session, watch)
        timed.split()
    if chosen is None or chosen.precision == "fp32":
        return dataclasses.replace(done, precision=chosen)
    _say(o, "timing the tuned network against float32", ())
    with watch.part(PRECISION):
        chosen, built = confirm_precision(model, records, o, chosen, done.model, prepared.feed)
    if built is not done.model:
        done = dataclasses.replace(done, network=None, model=built, coverage=built.coverage(prepared.feed))
    return dataclasses.replace(done, precision=chosen)


def extract_tasks(model: ModelLike, options: TuneOptions | None = None, **more: Unpack[TuneKeywords]) -> list[Task]:
    """The tasks of a model, equal kernels merged, the heaviest first; weights are measured shares of the run time."""
    return list(prepare(model, TuneOptions.of("extract_tasks", options, more)).tasks)


def prepare(model: ModelLike, o: TuneOptions, watch: Stopwatch | None = None) -> PreparedModel:
    """Build a model untuned, profile it, and make its tasks: those of the version that runs the sizes at hand.
    ``watch``: told what takes how long."""
    watch = watch or Stopwatch()
    with watch.part(UNTUNED):
        try:
            return _prepare(model, o, watch, "lazy")
        except BroadcastError:
            return _prepare(model, o, watch, "only")


def _prepare(model: ModelLike, o: TuneOptions, watch: Stopwatch, broadcasting: Broadcasting) -> PreparedModel:
    target = with_threads(parse_target(o.target), o.threads)
    require_runs_here(target, "tune")
    wanted = Wanted.of(o.implementations, broadcasting != "only", o.operators)
    graph = compile(model, stop_after="passes", broadcasting=broadcasting, **o.build_keywords())
    groups = LoweredGroups()
    lower = partial(
        fuse_and_lower, target=target, disabled=o.disabled_pass, out_of_range=o.out_of_range, table=wanted.table,
        known=groups,
    )  # fmt: skip
    lowered = lower(graph)
    tunable = find_tunable(graph, lowered, target, o.disabled_pass, wanted.table, wanted.names)
    own = {x.node: x.own for x in tunable}
    variants = [_built(own, lowered, target, o)]
    feed = o.feed if o.feed is not None else random_feed(variants[0].lowered.plan, o.sizes, o.seed)
    env = variants[0].model.symbols(feed)
    seconds = _kernel_seconds(variants[0].model, feed)
    total = sum(seconds.values())
    tasks = {t.workload: t for t in make_tasks(variants[0].lowered, target, env, seconds, total, own)}
    for implementations in other_implementations(tunable):
        with watch.part(IMPLEMENTATIONS):
            changed = with_implementations(graph, implementations)
            v = _built({**own, **implementations}, lower(changed), target, o)
            variants.append(v)
            hopeful = _hopeful(v, _kernel_seconds(v.model, feed), variants[0], seconds)
        for t in make_tasks(v.lowered, target, env, hopeful, total, v.implementations):
            if t.weight > 0:
                tasks.setdefault(t.workload, t)
    ordered = tuple(sorted(tasks.values(), key=lambda t: (-t.weight, t.name)))
    return PreparedModel(graph, lower, tunable, tuple(variants), target, feed, seconds, ordered)


def _built(implementations: Mapping[str, str], lowered: LoweredModel, target: Target, o: TuneOptions) -> Variant:
    model = assemble(lowered, target, choose_schedules(lowered, target, None, rules=_rules(o)), _cache(o))
    return Variant(implementations, lowered, model)


def _kernel_seconds(model: CompiledModel, feed: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Of all calls, by kernel."""
    out: dict[str, float] = {}
    for k in model.profile(feed, _PROFILED_RUNS).kernels:
        out[k.kernel] = out.get(k.kernel, 0.0) + k.seconds
    return out


def _hopeful(
    v: Variant, seconds: Mapping[str, float], own: Variant, own_seconds: Mapping[str, float]
) -> dict[str, float]:
    """The times of the kernels in which ``v`` has another implementation and is not far slower than ``own``."""
    before = _seconds_by_nodes(own.lowered.plan, own_seconds)
    after = _seconds_by_nodes(v.lowered.plan, seconds)
    out: dict[str, float] = {}
    for step in kernel_steps(v.lowered.plan):
        differs = any(v.implementations.get(n) != own.implementations.get(n) for n in step.nodes)
        if differs and after[step.nodes] <= _HOPEFUL * before.get(step.nodes, 0.0):
            out[step.kernel] = seconds[step.kernel]
    return out


def _seconds_by_nodes(plan: Plan, seconds: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """The time of each kernel call, by the nodes that it computes. ``seconds``: of all calls, by kernel."""
    steps = kernel_steps(plan)
    calls = Counter(s.kernel for s in steps)
    return {s.nodes: seconds.get(s.kernel, 0.0) / calls[s.kernel] for s in steps}


def make_tasks(
    lowered: LoweredModel, target: Target, env: Mapping[str, int], seconds: Mapping[str, float],
    total: float | None = None, implementations: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Task, ...]:  # fmt: skip
    """A task for each workload whose sizes ``env`` determines. ``seconds``: run time by kernel; ``total``: what weights
    are shares of (default: all of it). ``implementations``: of nodes that have a choice."""
    total = total or sum(seconds.values()) or 1.0
    weights: dict[str, float] = {}
    best: dict[str, tuple[float, str, dict[str, int], tuple[int, ...]]] = {}
    footprint = sum(a.nbytes for a in lowered.plan.constants.values())
    workloads = workloads_of(lowered)
    nodes: dict[str, tuple[str, ...]] = {}
    for step in kernel_steps(lowered.plan):
        nodes.setdefault(step.kernel, step.nodes)
        func = lowered.funcs[step.kernel]
        if any(not d.free_vars() <= env.keys() for d in step.dims):
            continue
        named = canonical(func)
        workload = workloads[step.kernel].hash
        dims = dict(zip(named.dims, (d.evaluate(env) for d in step.dims), strict=True))
        known = step.flops is not None and step.flops.free_vars() <= env.keys()
        work = float(step.flops.evaluate(env)) if known and step.flops is not None else 0.0
        if workload not in best or work > best[workload][0]:
            slots = [lowered.plan.slots.get(a) for a in step.args[: len(func.params) - func.outputs]]
            streamed = tuple(i for i, s in enumerate(slots) if s is not None and s.kind == "constant")
            best[workload] = (work, step.kernel, dims, streamed)
    for name, described in workloads.items():
        weights[described.hash] = weights.get(described.hash, 0.0) + seconds.get(name, 0.0) / total
    tasks = [
        Task(
            canonical(lowered.funcs[kernel]),
            target,
            dims,
            weights[workload],
            kernel,
            streamed,
            footprint,
            workloads[kernel].former,
            ", ".join(dict.fromkeys(implementations[n] for n in nodes[kernel] if n in implementations)),
        )
        for workload, (_, kernel, dims, streamed) in best.items()
        if all(n > 0 for n in dims.values())
    ]
    return tuple(sorted(tasks, key=lambda t: (-t.weight, t.name)))


def _tuned(
    p: PreparedModel, records: Database, measurer: Measurer, o: TuneOptions, clock: Callable[[], float],
    session: Session, watch: Stopwatch,
) -> ModelTuning:  # fmt: skip
    begin = clock()
    training_set = TrainingSet(default_model(o.seed) if o.cost_model is None else o.cost_model)
    warm_start(training_set, records, p.target, {h for t in p.tasks for h in t.described.hashes()})
    config = TunerConfig(o.strategy, o.strategy_params)
    tuners = [
        TaskTuner(
            t, Space(t.func, t.target, rules=_rules(o)), measurer, training_set=training_set, database=records,
            config=config, seed=o.seed, clock=clock, callbacks=o.on_trial, session=session,
        )
        for t in p.tasks
    ]  # fmt: skip
    budget = o.time_budget_s
    reserve = 0.0
    if budget is not None:
        check = 2.0 + _CHECK_RUNS * sum(p.seconds.values()) + _BUILD_SECONDS * len(tuners)
        reserve = min(_CHECK_SHARE * budget, check) if o.check_network else 0.0
    _say(o, "measuring the default schedules", tuners)
    stop_at = None if budget is None else begin + _FIRST_SHARE * budget
    interrupted = _measure_defaults(tuners, stop_at, o.max_trials, clock)
    measured = sum(t.trials for t in tuners)
    used = clock() - begin
    if budget is not None:
        untried = sum(not t.history.trials for t in tuners)
        used += min(_LAST_SHARE * budget, _TRIAL_SECONDS * untried)
    scheduler = TaskScheduler(
        tuners,
        time_budget_s=0.0 if interrupted else None if budget is None else max(0.0, budget - reserve - used),
        max_trials=None if o.max_trials is None else max(o.max_trials, measured),
        effort=o.effort,
        clock=clock,
        on_progress=o.on_progress,
    )
    _say(o, "searching", tuners)
    with watch.part(SEARCH):
        result = scheduler.run()
    result = dataclasses.replace(result, elapsed=clock() - begin)
    if o.cost_model is not None and not training_set.fitted:
        LOGGER.warning("tune: the cost model was never fitted: %s", training_set.waiting)
    if not (interrupted or result.interrupted) and o.max_trials is None:
        interrupted = _measure_defaults(tuners, None if budget is None else begin + budget - reserve, None, clock)
    if interrupted:
        result = dataclasses.replace(result, stopped="interrupted", interrupted=True)
    cache = _cache(o)
    network: NetworkCheck | None = None
    if o.check_network:
        _say(o, "timing the whole network with what was found and without", tuners)
        with watch.part(NETWORK):
            network, model = check_end_to_end(p.variants, p.relower, p.target, records, p.feed, cache, rules=_rules(o))
    final = p.relower(recorded_implementations(p.tunable, p.target, records, networks_of(p.lowered)))
    if not (interrupted or result.interrupted) and o.max_trials is None:
        hashes = set(workload_hashes(final).values())  # an implementation chosen in place may have no record
        _measure_defaults([t for t in tuners if t.task.workload in hashes], None, None, clock)
    chosen = choose_schedules(final, p.target, records, "exact", rules=_rules(o))
    if network is None:
        model = assemble(final, p.target, chosen, cache)
    coverage = measured_coverage(final.plan, chosen.tuning, _kernel_seconds(model, p.feed))
    return ModelTuning(records, result, network, model, coverage)


def _say(o: TuneOptions, stage: str, tuners: Sequence[TaskTuner]) -> None:
    if o.on_stage is not None:
        o.on_stage(stage, tuners)


def _measure_defaults(
    tuners: Iterable[TaskTuner], stop_at: float | None, most: int | None, clock: Callable[[], float]
) -> bool:
    """The default schedule of every task, so that every kernel has a record; True if interrupted."""
    done = 0
    try:
        for t in tuners:
            if (stop_at is not None and clock() >= stop_at) or (most is not None and done >= most):
                break
            if not t.history.trials:
                t.step(1)
                done += 1
    except KeyboardInterrupt:
        return True
    return False


def _records(database: DatabaseLike | None, work_dir: str | Path | None) -> Database:
    if database is not None:
        return open_database(database, create=True)
    if work_dir is not None:
        folder = require_path("work_dir", work_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return JSONDatabase(folder)
    found = active_database()
    return MemoryDatabase() if found is None else found  # an empty one is false


def _rules(o: TuneOptions) -> tuple[ScheduleRule, ...]:
    return before_default(o.schedule_rules)


def _cache(o: TuneOptions) -> ObjectCache | None:
    return ObjectCache.open() if o.cache else None
