"""``precision="auto"``: both builds of a network compared, by what they give and by how long they take.

The faster whose results differ from float32's by no more than the budget is used, and the log says so: times, error and
choice. Neither build is tuned, so that the one that is used is tuned with all of the time.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from tilewright.autotune.lookup.workloads import networks_of
from tilewright.autotune.measure.interleaved_timing import interleave
from tilewright.autotune.measure.noise_monitor import noise_monitor_of
from tilewright.autotune.network.feeds import random_feed
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Choice
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.compile import ModelLike, compile  # noqa: A004 - the name that users of compilers know
from tilewright.lowering.choose_precision import Precision
from tilewright.runtime.model import CompiledModel

_FEEDS = 3
"""Random inputs on which results are compared."""
_SECONDS = 2.0
_WORTH = 0.98
"""The share of float32's time that the other build may take at most."""


def medians(contenders: Mapping[str, Callable[[], object]], threads: int) -> dict[str, float]:
    """The median seconds of each, run in turns."""
    found = interleave(dict(contenders), _SECONDS, noise=noise_monitor_of(threads))
    return {k: v.median for k, v in found.items()}


def choose_precision(
    model: ModelLike, records: Database, o: TuneOptions,
    measure: Callable[[Mapping[str, Callable[[], object]], int], Mapping[str, float]] = medians,
) -> Precision:  # fmt: skip
    """``bf16`` if that is faster and within ``o.max_error``, else ``fp32``; appended to ``records``."""
    target = with_threads(parse_target(o.target), o.threads)
    plain = dataclasses.replace(o, precision="fp32")
    reduced = dataclasses.replace(o, precision="bf16")
    own, other = (compile(model, progress=False, **x.build_keywords()) for x in (plain, reduced))
    feeds = [o.feed] if o.feed is not None else [random_feed(own.plan, o.sizes, o.seed + n) for n in range(_FEEDS)]
    error = max(difference(own, other, f) for f in feeds)
    contenders = {"fp32": lambda: own.run(feeds[0]), "bf16": lambda: other.run(feeds[0])}
    seconds = measure(contenders, own.threads)
    best: Precision = "bf16" if error <= o.max_error and seconds["bf16"] <= _WORTH * seconds["fp32"] else "fp32"
    lowered = compile(model, stop_after="lower", progress=False, **plain.build_keywords())
    networks = networks_of(lowered)
    before = records.choice(networks[0], target, networks)
    now = time.time() if before is None else max(time.time(), math.nextafter(before.time, math.inf))
    records.append(Choice(networks[0], networks[0], target, best, seconds, now, errors={"bf16": error}))
    return best


def difference(own: CompiledModel, other: CompiledModel, feed: Mapping[str, np.ndarray]) -> float:
    """The root mean square by which the floating-point results of two builds differ, as a share of that of the first;
    infinity where only one of them is finite, and where other results differ at all."""
    wanted, got = own.run(feed), other.run(feed)
    worst = 0.0
    for name, x in wanted.items():
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            if not np.array_equal(np.asarray(x), np.asarray(got[name])):
                return math.inf
            continue
        a, b = x.astype(np.float64), np.asarray(got[name], np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return math.inf
        scale = float(np.mean(a[finite] ** 2)) if finite.any() else 0.0
        apart = float(np.mean((a[finite] - b[finite]) ** 2)) if finite.any() else 0.0
        worst = max(worst, math.sqrt(apart / scale) if scale else (0.0 if apart == 0 else math.inf))
    return worst
