"""Look-ups: hits, near misses and misses, each with its reason."""

from __future__ import annotations

import dataclasses

from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.lookup.lookup import look_up
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.records.record import make_record
from tilewright.machine.target import Target
from tilewright.runtime.coverage import Status
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, with_threads

FOREIGN = Target("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f", 512, 32, 32 << 10, 1 << 20, 0, 2)


def test_a_hit_replays_under_other_names() -> None:
    chosen = candidates(dense(), HERE, 2)[1]
    match = look_up(dense(prefix="other_"), HERE, MemoryDatabase([record(dense(), chosen, 1e-3)]))
    assert (match.status, match.reason) == (Status.HIT, "1000.0 us when tuned")
    assert match.trace == chosen.trace
    assert match.trace.apply(match.func) == chosen.func


def test_the_default_may_be_the_best() -> None:
    default, other = candidates(dense(), HERE, 2)
    match = look_up(dense(), HERE, MemoryDatabase([record(dense(), default, 1e-3), record(dense(), other, 2e-3)]))
    assert (match.status, match.trace) == (Status.HIT, None)
    assert match.reason == "the default is the best found, 1000.0 us when tuned"


def test_another_machine_is_a_near_miss() -> None:
    r = with_threads(record(dense(), candidates(dense(), HERE, 2)[1], 1e-3), 8)
    match = look_up(dense(), HERE, MemoryDatabase([r]))
    assert match.status is Status.NEAR_MISS
    assert match.reason == "tuned on another machine (8 -> 2 threads); 1000.0 us when tuned"
    exact = look_up(dense(), HERE, MemoryDatabase([r]), "exact")
    assert (exact.status, exact.reason) == (
        Status.MISS, "tuned only on another machine, which policy 'exact' leaves out"
    )  # fmt: skip


def test_other_sizes_are_a_near_miss() -> None:
    chosen = candidates(dense(), HERE, 2)[1]
    database = MemoryDatabase([record(dense(), chosen, 1e-3)])
    match = look_up(dense(48), HERE, database)
    assert match.status is Status.NEAR_MISS
    assert match.reason.startswith("tuned for other sizes (24 -> 48)")
    if match.trace is not None:
        match.trace.apply(match.func)
    assert look_up(dense(48), HERE, database, "compatible").reason == (
        "tuned only for other sizes, which policy 'compatible' leaves out"
    )


def test_a_foreign_cpu_is_a_miss() -> None:
    database = MemoryDatabase([record(dense(), candidates(dense(), HERE, 2)[1], 1e-3)])
    match = look_up(dense(), FOREIGN, database)
    assert (match.status, match.trace) == (Status.MISS, None)
    assert match.reason == "tuned only for x86_64 256-bit x16 fma; this is x86_64 512-bit x32 fma"


def test_an_empty_database_and_an_unknown_computation() -> None:
    assert look_up(dense(), HERE, MemoryDatabase()).reason == "the database has no records"
    other = dataclasses.replace(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3))
    strange = dataclasses.replace(other, workload=dataclasses.replace(other.workload, hash="0", structure="1"))
    assert look_up(dense(), HERE, MemoryDatabase([strange])).reason == "no record of this computation at any size"


def test_a_trace_that_does_not_replay_is_passed_over() -> None:
    good, bad = candidates(dense(), HERE, 3)[1:]
    steps = ({"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}},)
    broken = dataclasses.replace(record(dense(), bad, 1e-6), steps=steps)
    unknown = ({"primitive": "teleport", "args": {}},)
    newer = dataclasses.replace(record(dense(), bad, 1e-7), steps=unknown, candidate="x")
    database = MemoryDatabase([broken, newer])
    match = look_up(dense(), HERE, database)
    assert match.status is Status.MISS
    assert match.reason.startswith("its record does not replay: ")
    database.append(record(dense(), good, 1e-3))
    assert look_up(dense(), HERE, database).trace == good.trace


def test_a_verdict_keeps_the_default_until_something_newer_is_measured() -> None:
    first, second, third = candidates(dense(), HERE, 4)[1:]
    r = record(dense(), first, 1e-3, time=1)
    database = MemoryDatabase([r, verdict(r, "net", False, 5.0)])
    match = look_up(dense(), HERE, database, network="net")
    assert (match.status, match.trace) == (Status.HIT, None)
    assert match.reason == "default kept: in this network the record took 2.00x its time"
    assert look_up(dense(), HERE, database, network="another").trace == first.trace
    database.append(record(dense(), second, 9e-4, time=6))
    assert look_up(dense(), HERE, database, network="net").trace == second.trace
    database.append(verdict(r, "net", True, 7.0))
    assert look_up(dense(), HERE, database, network="net").trace == first.trace
    database.append(record(dense(), third, 2e-3, time=8))
    assert look_up(dense(), HERE, database, network="net").trace == first.trace
    database.append(record(dense(), third, 8e-4, time=9))
    assert look_up(dense(), HERE, database, network="net").trace == third.trace


def test_a_record_with_names_of_its_own() -> None:
    func = dense(prefix="my_")
    space = Space(func, HERE)
    chosen = space.with_decisions(candidates(func, HERE, 1)[0].values())
    assert chosen is not None
    r = make_record(Task(func, HERE), chosen, Ok(1e-3, (1e-3,), 0.0, 0.1))
    match = look_up(dense(), HERE, MemoryDatabase([r]))
    assert match.status is Status.HIT
    other = dataclasses.replace(r, function=r.function.replace("24", "25"))
    assert look_up(dense(), HERE, MemoryDatabase([other])).status is Status.MISS
