"""Databases: policies, merging, pruning, and logs that were torn, copied, or written by several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tilewright.autotune.base.workload import workload_of
from tilewright.autotune.records.database import (
    JSONDatabase,
    MemoryDatabase,
    UnionDatabase,
    active_database,
    open_database,
)
from tilewright.autotune.records.record import Record, RecordWarning, to_line
from tilewright.core.errors import InputError
from tilewright.machine.target import Target
from tilewright.tests.autotune.records.log_helper import (
    HERE,
    candidates,
    dense,
    prune_often,
    record,
    verdict,
    with_threads,
    wrong,
)

FOREIGN = Target("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f", 512, 32, 32 << 10, 1 << 20, 0, 2)


def _records(count: int = 4, m: int = 24) -> list[Record]:
    found = candidates(dense(m), HERE, count)
    assert len(found) == count
    return [record(dense(m), c, 1e-3 * (count - i), time=float(i)) for i, c in enumerate(found)]


def _log(path: Path, records: list[Record]) -> JSONDatabase:
    database = JSONDatabase(path)
    for r in records:
        database.append(r)
    return database


def test_query_gives_the_best(tmp_path: Path) -> None:
    records = _records()
    for database in (MemoryDatabase(records), _log(tmp_path / "log", records)):
        best = database.query(workload_of(dense()), HERE)
        assert best == records[-1]
        assert database.query(workload_of(dense()).hash, HERE) == best
        assert [r.seconds for r in database.top_k(workload_of(dense()), 3, HERE)] == [1e-3, 2e-3, 3e-3]
        assert len(database) == 4


def test_the_latest_measurement_of_a_candidate_counts() -> None:
    a, b = candidates(dense(), HERE, 2)
    database = MemoryDatabase([record(dense(), a, 1e-3, time=1), record(dense(), b, 2e-3, time=1)])
    database.append(record(dense(), a, 5e-3, time=2))
    assert database.query(workload_of(dense()), HERE).candidate == b.key  # type: ignore[union-attr]


def test_a_wrong_candidate_never_comes_back() -> None:
    a, b = candidates(dense(), HERE, 2)
    lines = [wrong(dense(), a, time=1), record(dense(), a, 1e-6, time=9), record(dense(), b, 1e-3)]
    assert MemoryDatabase(lines).query(workload_of(dense()), HERE).candidate == b.key  # type: ignore[union-attr]


def test_policies() -> None:
    (r,) = _records(1)
    w, other = workload_of(dense()), workload_of(dense(30))
    near, far = HERE.with_threads(8), FOREIGN
    database = MemoryDatabase([r])
    assert database.query(w, HERE, "exact") == r
    assert database.query(w, near, "exact") is None
    assert database.query(w, near, "compatible") == r
    assert database.query(w, far, "compatible") is None
    assert database.query(w, far, "any") == r
    assert database.query(other, HERE, "compatible") is None
    assert database.query(other, HERE, "any") == r
    assert database.query(other.hash, HERE, "any") is None
    with pytest.raises(InputError, match="policy: expected one of exact, compatible, any, got 'fuzzy'"):
        database.query(w, HERE, "fuzzy")  # type: ignore[arg-type]


def test_the_nearest_comes_first() -> None:
    far, near = _records(2)
    database = MemoryDatabase([with_threads(far, 64), near])
    assert database.query(workload_of(dense()), HERE, "compatible") == near
    close, distant = _records(1, 25)[0], _records(1, 250)[0]
    assert MemoryDatabase([distant, close]).query(workload_of(dense()), HERE, "any") == close


def test_union() -> None:
    slow, fast = _records(2)
    first, second = MemoryDatabase([slow]), MemoryDatabase([fast])
    both = UnionDatabase(first, second)
    assert both.query(workload_of(dense()), HERE) == fast
    both.append(fast)
    assert (len(first), len(second)) == (2, 1)


def test_with_blocks_nest() -> None:
    assert active_database() is None
    outer, inner = MemoryDatabase(), MemoryDatabase()
    with outer:
        with inner:
            assert active_database() is inner
        assert active_database() is outer
    assert active_database() is None


def test_merge_adds_what_is_missing(tmp_path: Path) -> None:
    records = _records()
    a, b = _log(tmp_path / "a", records[:3]), _log(tmp_path / "b", records[1:])
    assert a.merge(b) == 1
    assert a.merge(b) == 0
    assert a.query(workload_of(dense()), HERE) == records[-1]


def test_prune_keeps_the_best_and_what_it_does_not_understand(tmp_path: Path) -> None:
    records = _records()
    database = _log(tmp_path / "log", records)
    bad = wrong(dense(), candidates(dense(), HERE, 6)[5])
    database.append(bad)
    database.append(verdict(records[0], "net", False, 3.0))
    unknown = {"schema": 1, "kind": "weather", "sun": True}
    extended = {**json.loads(to_line(_records(1, 40)[0])), "mood": "good"}
    with database.path.open("a") as f:
        f.write(json.dumps(unknown) + "\n" + json.dumps(extended) + "\n")
    with pytest.warns(RecordWarning, match="of a newer version or another kind; left alone"):
        assert len(database) == 7
    assert database.prune(1) == 2
    assert database.query(workload_of(dense()), HERE) == records[-1]
    text = database.path.read_text()
    assert json.dumps(unknown) in text
    assert json.dumps(extended) in text
    assert bad in database.records()
    with pytest.raises(InputError, match="prune: expected to keep at least 1 candidate, got 0"):
        database.prune(0)


def test_prune_in_memory() -> None:
    database = MemoryDatabase(_records())
    assert database.prune(2) == 1
    assert [r.seconds for r in database.records()] == [4e-3, 2e-3, 1e-3]


def test_a_directory_stands_for_its_log(tmp_path: Path) -> None:
    assert JSONDatabase(tmp_path).path == tmp_path / "tuning.jsonl"
    logs = [_log(tmp_path / n, _records(1)).path for n in ("a", "b")]
    assert isinstance(open_database(logs), UnionDatabase)
    with pytest.raises(InputError, match="expected at least one log"):
        open_database([])


@pytest.mark.parametrize("cut", [1, 40, 0.5, -1])
def test_a_torn_last_line_costs_that_line(tmp_path: Path, cut: float) -> None:
    records = _records()
    path = tmp_path / "log"
    database = _log(path, records[:3])
    line = to_line(records[3])
    at = int(len(line) * cut) if isinstance(cut, float) else cut
    with path.open("a") as f:
        f.write(line[:at])
    with pytest.warns(RecordWarning, match="cut off in the middle; skipped"):
        assert JSONDatabase(path).query(workload_of(dense()), HERE) == records[2]
    database.append(records[3])
    with pytest.warns(RecordWarning, match="not JSON"):
        assert JSONDatabase(path).query(workload_of(dense()), HERE) == records[3]


def test_a_line_without_its_end_is_complete_after_the_next_append(tmp_path: Path) -> None:
    """Killed between the last byte and the newline: the record is whole, and the next append does not spoil it."""
    records = _records(2)
    path = tmp_path / "log"
    path.write_text(to_line(records[0]))
    JSONDatabase(path).append(records[1])
    assert JSONDatabase(path).records() == records


def test_readers_follow_appends_and_rewrites(tmp_path: Path) -> None:
    records = _records()
    reader, writer = JSONDatabase(tmp_path / "log"), JSONDatabase(tmp_path / "log")
    assert len(reader) == 0
    for n, r in enumerate(records, 1):
        writer.append(r)
        assert len(reader) == n
    writer.prune(1)
    assert reader.records() == [records[0], records[-1]]
    writer.append(records[1])
    assert len(reader) == 3


def test_answers_do_not_depend_on_the_order(tmp_path: Path) -> None:
    records = [*_records(6), *_records(3, 30)]
    for seed in range(5):
        random.Random(seed).shuffle(records)
        found = MemoryDatabase(records)
        assert found.query(workload_of(dense()), HERE).seconds == 1e-3  # type: ignore[union-attr]
        assert found.query(workload_of(dense(29)), HERE, "any").seconds == 1e-3  # type: ignore[union-attr]


def _write(path: Path, lines: list[str], start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    database = JSONDatabase(path)
    for text in lines:
        r = json.loads(text)
        database.append(record(dense(), candidates(dense(), HERE, 1)[0], r["seconds"], time=r["time"]))


def test_several_processes_lose_nothing(tmp_path: Path) -> None:
    """Two writers, and one that rewrites the log meanwhile."""
    context = multiprocessing.get_context("spawn")
    path, start = tmp_path / "log", context.Event()
    parts = [[json.dumps({"seconds": 1.0 + n, "time": 100.0 * w + n}) for n in range(40)] for w in range(2)]
    writers = [context.Process(target=_write, args=(path, part, start)) for part in parts]
    for p in writers:
        p.start()
    start.set()
    for p in writers:
        p.join(60)
        assert p.exitcode == 0
    assert {r.time for r in JSONDatabase(path).records()} == {100.0 * w + n for w in range(2) for n in range(40)}


def test_a_rewrite_beside_a_writer_loses_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path, start = tmp_path / "log", context.Event()
    found = candidates(dense(), HERE, 1)[0]
    other = context.Process(target=prune_often, args=(path, start, 10))
    other.start()
    start.set()
    database = JSONDatabase(path)
    while other.is_alive():
        database.append(record(dense(), found, 1e-3, time=time.time()))
        last = database.records()[-1]
        time.sleep(1e-3)
    assert other.exitcode == 0
    assert database.query(workload_of(dense()), HERE) == last


def _write_forever(path: Path) -> None:
    database = JSONDatabase(path)
    found = candidates(dense(), HERE, 1)[0]
    n = 0
    while True:
        n += 1
        database.append(record(dense(), found, 1e-3, time=float(n)))


@pytest.mark.filterwarnings("ignore::tilewright.autotune.records.record.RecordWarning")
def test_a_killed_writer_leaves_a_usable_log(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path = tmp_path / "log"
    writer = context.Process(target=_write_forever, args=(path,))
    writer.start()
    deadline = time.monotonic() + 60
    while len(JSONDatabase(path)) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(writer.pid, signal.SIGKILL)  # type: ignore[arg-type]
    writer.join(10)
    written = [r.time for r in JSONDatabase(path).records()]
    assert written == [float(n) for n in range(1, len(written) + 1)]
    JSONDatabase(path).append(_records(1)[0])
    assert len(JSONDatabase(path)) == len(written) + 1
