"""What the time of a tuning went into."""

from __future__ import annotations

import itertools

import pytest

from tilewright.autotune.base.stopwatch import Stopwatch
from tilewright.autotune.measure.measurer import LocalMeasurer, TableMeasurer
from tilewright.autotune.measure.worker_pool import BUILDING, REFERENCE, RUNNING, WAITING
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.time_parts import (
    IMPLEMENTATIONS,
    MEASURING,
    NETWORK,
    REST,
    SEARCH,
    UNTUNED,
    TimedMeasurer,
    parts_text,
)
from tilewright.autotune.network.tune_network import tune_model
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.tests.api.models import convolution
from tilewright.tests.autotune.measure.measuring import QUICK, split, task
from tilewright.tests.autotune.records.log_helper import mlp_model


def test_the_parts_are_disjoint_and_their_sum_is_the_whole() -> None:
    """Of a clock that goes on by one each time it is read."""
    ticks = itertools.count()
    options = TuneOptions(time_budget_s=None, max_trials=8, threads=1)
    measurer = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16))
    done = tune_model(
        mlp_model(), MemoryDatabase(), measurer=measurer, options=options, clock=lambda: float(next(ticks))
    )
    assert done.spent.keys() == {REST, UNTUNED, MEASURING, SEARCH, NETWORK}
    assert all(s > 0 for s in done.spent.values())
    assert sum(done.spent.values()) <= next(ticks)
    assert f"time: {sum(done.spent.values()):.1f} s: " in done.summary()


def test_other_implementations_are_a_part_of_their_own() -> None:
    options = TuneOptions(time_budget_s=None, max_trials=1, threads=1, check_network=False)
    done = tune_model(convolution(12), MemoryDatabase(), measurer=TableMeasurer(lambda c: 1.0), options=options)
    assert done.spent[IMPLEMENTATIONS] > 0
    assert NETWORK not in done.spent


def test_workers_say_what_they_did() -> None:
    watch = Stopwatch()
    with LocalMeasurer(QUICK) as inner, watch.part(REST):
        timed = TimedMeasurer(inner, watch)
        timed.measure(task(), [split(task(), 4)])
        timed.split()
    found = watch.seconds
    assert {REFERENCE, BUILDING, RUNNING, WAITING} <= found.keys()
    assert found[MEASURING] == pytest.approx(0.0, abs=1e-9)
    assert all(found[part] > 0 for part in (REFERENCE, BUILDING, RUNNING, REST))
    assert found[WAITING] >= 0


def test_text() -> None:
    spent = {REST: 1.0, BUILDING: 10.0, RUNNING: 30.2, WAITING: 0.01}
    assert parts_text(spent) == "41.2 s: running candidates 30.2 s, building candidates 10.0 s, the rest 1.0 s"
    assert parts_text({REST: 0.01}) == "0.0 s"
