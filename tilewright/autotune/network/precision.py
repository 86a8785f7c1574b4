"""``precision="auto"``: builds of a network compared, by what they give and by how long they take.

The fastest whose results differ from float32's by no more than the budget is used: float32 itself, all products that
should gain on bfloat16, all that should gain on two such numbers for each operand, or some of these and some of those.
The log says so: times, errors and choice, for the network and for each node. None of the builds is tuned, so that the
one that is used is tuned with all of the time; then it is compared with float32 once more, both with all that the log
has.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tilewright.autotune.lookup.precision import MIXED, account, node_places, precision_of
from tilewright.autotune.lookup.workloads import networks_of
from tilewright.autotune.measure.interleaved_timing import interleave
from tilewright.autotune.measure.noise_monitor import noise_monitor_of
from tilewright.autotune.network.feeds import random_feed
from tilewright.autotune.network.mixed_precision import Build, Builds, Errors, Feed, node_seconds, nodes_within
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Choice, NodeChoice, time_after
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.compile import ModelLike, compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import BroadcastError
from tilewright.lowering.precision.choose_precision import OfNode, Precisions, reduced_nodes, split_nodes
from tilewright.runtime.model import CompiledModel

Contenders = Mapping[str, Callable[[], object]]
NodeSeconds = Callable[[Build, Build, Sequence[str], Feed], Mapping[str, tuple[float, float]]]

_SPLIT: OfNode = "bf16x3"

_FEEDS = 4
"""Random inputs on which results are compared."""
_SECONDS = 2.0
_WORTH = 0.98
"""The share of float32's time that another build may take at most."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """``precision``: what to build with. ``choice``: as the log has it."""

    precision: Precisions
    choice: Choice

    def __str__(self) -> str:
        return account(self.choice, each=False)


def medians(contenders: Contenders, threads: int) -> dict[str, float]:
    """The median seconds of each, run in turns."""
    found = interleave(dict(contenders), _SECONDS, noise=noise_monitor_of(threads))
    return {k: v.median for k, v in found.items()}


def choose_precision(
    model: ModelLike, records: Database, o: TuneOptions,
    measure: Callable[[Contenders, int], Mapping[str, float]] = medians, profile: NodeSeconds = node_seconds,
) -> Chosen:  # fmt: skip
    """The fastest precision within ``o.max_error``; appended to ``records``. ``measure``: seconds of each contender;
    ``profile``: of the kernels of nodes in float32 and on bfloat16."""
    target = with_threads(parse_target(o.target), o.threads)
    builds = Builds(model, o, target)
    own = builds.build("fp32")
    lowered, feeds = own.lowered, _feeds(own.model, o)
    try:
        own.model.run(feeds[0])
    except BroadcastError:  # the choice is one for the network as builds know it first
        builds = Builds(model, o, target, "only")
        own = builds.build("fp32")
    found = _compare(builds, own, feeds, o.max_error, measure, profile)
    networks = networks_of(lowered)
    now = time_after(records.choice(networks[0], target, networks), time.time())
    nodes = {place: found.nodes[n] for n, place in node_places(lowered).items() if n in found.nodes}
    choice = Choice(networks[0], networks[0], target, found.best, found.seconds, now, errors=found.errors, nodes=nodes)
    records.append(choice)
    return Chosen(precision_of(choice, lowered), choice)


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a choice says, nodes by name."""

    best: str = "fp32"
    seconds: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, NodeChoice] = field(default_factory=dict)


def _compare(
    builds: Builds, own: Build, feeds: Sequence[Feed], max_error: float,
    measure: Callable[[Contenders, int], Mapping[str, float]], profile: NodeSeconds,
) -> _Compared:  # fmt: skip
    other = builds.build("bf16")
    nodes = reduced_nodes(other.graph)
    if not nodes:
        return _Compared()
    errors = Errors(own.model.run, feeds, max_error)
    models, ways = {"fp32": own.model, "bf16": other.model}, {"bf16": dict.fromkeys(nodes, "bf16")}
    allowed = {"bf16"} if errors.are_within(other.model.run) else set[str]()
    times: dict[str, Mapping[str, float]] = {**_node_times(own, other, nodes, feeds[0], profile)}
    alone: Mapping[str, float] = {}
    if allowed:
        part = [n for n in nodes if n not in times or times[n]["bf16"] < times[n]["fp32"]]
        ways[MIXED] = dict.fromkeys(part, "bf16")
    else:
        third = builds.build(_SPLIT)
        split = split_nodes(third.graph)
        if split:
            models[_SPLIT], ways[_SPLIT] = third.model, dict.fromkeys(split, _SPLIT)
            for n, taken in _node_times(own, third, split, feeds[0], profile).items():
                times[n] = {**taken, **times.get(n, {})}
            allowed |= {_SPLIT} if errors.are_within(third.model.run) else set()
        faster = [n for n in split if _SPLIT in allowed and _gain(times.get(n, {}), _SPLIT) > 0]
        gains = {n: s.get(_SPLIT if n in faster else "fp32", 0.0) - s["bf16"] for n, s in times.items() if "bf16" in s}
        part, alone = nodes_within(builds, errors, gains, faster)
        ways[MIXED] = {**dict.fromkeys(faster, _SPLIT), **dict.fromkeys(part, "bf16")}
    if ways[MIXED] and all(ways[MIXED] != w for k, w in ways.items() if k != MIXED):
        models[MIXED] = builds.build(ways[MIXED]).model
        allowed |= {MIXED} if errors.are_within(models[MIXED].run) else set()
    seconds = measure({k: partial(m.run, feeds[0]) for k, m in models.items()}, own.model.threads)
    fast = [k for k in allowed if seconds[k] <= _WORTH * seconds["fp32"]]
    best = min(fast, key=lambda k: (seconds[k], k), default="fp32")
    chosen = ways.get(best, {})
    return _Compared(
        best, seconds, _finite({k: errors.of(m.run) for k, m in models.items() if k != "fp32"}),
        {
            n: NodeChoice(n, chosen.get(n, "fp32"), times.get(n, {}), _finite(alone).get(n))
            for n in dict.fromkeys(n for w in ways.values() for n in w)
        },
    )  # fmt: skip


def _node_times(
    own: Build, other: Build, nodes: Sequence[str], feed: Feed, profile: NodeSeconds
) -> dict[str, dict[str, float]]:
    """Seconds of each node's kernel in both builds, by precision; without nodes in bodies."""
    outside = {n.name for n in other.graph.nodes}
    found = profile(own, other, [n for n in nodes if n in outside], feed)
    return {n: {own.precision: before, other.precision: after} for n, (before, after) in found.items()}


def _gain(seconds: Mapping[str, float], precision: str) -> float:
    return seconds["fp32"] - seconds[precision] if precision in seconds else 0.0


def _finite(errors: Mapping[str, float]) -> dict[str, float]:
    """Those that a log can hold."""
    return {k: e for k, e in errors.items() if math.isfinite(e)}


def confirm_precision(
    model: ModelLike, records: Database, o: TuneOptions, chosen: Chosen, tuned: CompiledModel, feed: Feed,
    measure: Callable[[Contenders, int], Mapping[str, float]] = medians,
) -> tuple[Chosen, CompiledModel]:  # fmt: skip
    """``chosen``, of which ``tuned`` is the build, if it is as fast as float32, both with the records that there are;
    else float32. Appended to ``records``; with the model to use."""
    plain = dataclasses.replace(o, precision="fp32")
    own = compile(
        model, database=records, policy="exact", near_misses="ignore", progress=False, **plain.build_keywords()
    )
    before = chosen.choice
    models = {"fp32": own, before.implementation: tuned}
    seconds = measure({k: partial(m.run, feed) for k, m in models.items()}, own.threads)
    choice = dataclasses.replace(before, seconds=seconds, time=time_after(before, time.time()))
    if seconds[before.implementation] <= seconds["fp32"]:
        records.append(choice)
        return dataclasses.replace(chosen, choice=choice), tuned
    nodes = {k: dataclasses.replace(n, implementation="fp32") for k, n in before.nodes.items()}
    choice = dataclasses.replace(choice, implementation="fp32", nodes=nodes)
    records.append(choice)
    return Chosen("fp32", choice), own


def _feeds(own: CompiledModel, o: TuneOptions) -> list[Feed]:
    """What results are compared on, what times are taken with first."""
    given = [*([] if o.feed is None else [o.feed]), *o.samples]
    return given or [random_feed(own.plan, o.sizes, o.seed + n) for n in range(_FEEDS)]
