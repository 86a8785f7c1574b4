"""Logs of past versions stay readable: one sample log per version, never changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tilewright.autotune.base.workload import workload_of
from tilewright.autotune.lookup.lookup import look_up
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.definitions import is_definition
from tilewright.autotune.records.reading import from_line
from tilewright.autotune.records.record import Record, Verdict, to_line
from tilewright.autotune.records.session import Session
from tilewright.runtime.coverage import Status
from tilewright.tests.autotune.records.log_helper import HERE, dense

SAMPLE = Path(__file__).with_name("log_v1.txt")
SAMPLE_2 = Path(__file__).with_name("log_v2.txt")


def test_version_1_is_read_and_used(tmp_path: Path) -> None:
    path = tmp_path / "log"
    shutil.copy(SAMPLE, path)
    database = JSONDatabase(path)
    kinds = [type(x) for x in database.lines()]
    assert kinds == [Record, Record, Record, Verdict]
    match = look_up(dense(), HERE, database)
    assert (match.status, match.reason) == (Status.HIT, "1000.0 us when tuned")
    assert match.trace is not None
    match.trace.apply(match.func)


def test_version_1_is_written_as_it_was_read() -> None:
    for text in SAMPLE.read_text().splitlines():
        line = from_line(text)
        assert line is not None
        assert json.loads(to_line(line)) == json.loads(text)


def test_workload_hashes_of_version_1_stay() -> None:
    """A change here makes every log miss: the canonical form and the text of the IR are part of the format."""
    from_sample = {json.loads(x)["workload"]["hash"] for x in SAMPLE.read_text().splitlines()}
    assert from_sample == {workload_of(dense()).hash}
    assert from_sample == {"72af664b893a93860cd079f7ff7c1e855e597ca823905948d12d161da4b9cebd"}


def test_version_2_is_read_and_used(tmp_path: Path) -> None:
    """It holds what the sample of version 1 does, and a record of a session."""
    path = tmp_path / "log"
    shutil.copy(SAMPLE_2, path)
    database = JSONDatabase(path)
    *same, last = database.lines()
    assert [json.loads(to_line(x)) for x in same] == [json.loads(x) for x in SAMPLE.read_text().splitlines()]
    assert isinstance(last, Record)
    assert last.session == Session(
        "5d3c5f7c6c0e", "net.onnx", "ab" * 32, 1763715600.5, "0123456789abcdef", "builder", {"weather": "rain"}
    )
    match = look_up(dense(), HERE, database)
    assert (match.status, match.reason) == (Status.HIT, "1000.0 us when tuned")
    assert database.skipped == ()


def test_version_2_is_written_as_it_was_read(tmp_path: Path) -> None:
    """So that a log never has two definitions of one thing only because another release wrote it."""
    path = tmp_path / "log"
    shutil.copy(SAMPLE_2, path)
    lines = list(JSONDatabase(path).lines())
    size = path.stat().st_size
    writer = JSONDatabase(path)
    for x in lines:
        writer.append(x)
    added = path.read_bytes()[size:].splitlines()
    assert added == [x for x in SAMPLE_2.read_bytes().splitlines() if not is_definition(x)]
