"""Short lines: what they have in common is in the log once, whoever writes it, and what is missing costs no more."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import random
from pathlib import Path

import numpy as np
import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, Ok
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical, workload_of
from tilewright.autotune.records.compact import compact_line, lines_with_definitions
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.definitions import Definitions, MissingDefinition, id_of, is_definition
from tilewright.autotune.records.reading import LineReader
from tilewright.autotune.records.record import Line, Record, RecordWarning, make_record, to_line
from tilewright.autotune.records.session import make_session
from tilewright.core.errors import ParseError
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
from tilewright.tests.autotune.records.test_log_versions import SAMPLE

SESSION = make_session("net.onnx", "ab" * 32, 1763715600.5, 0)


def _lines() -> list[Line]:
    """One of each sort: unknown fields at every level, steps and kinds of failures of another version."""
    found = [record(dense(m), c, 1e-3 * (9 - i), time=float(i)) for m in (24, 30) for i, c in
             enumerate(candidates(dense(m), HERE, 4))]  # fmt: skip
    one = found[1]
    strange = (
        {"primitive": "tensorise_more", "args": {"x": [1]}},
        {"args": {"loop": "i"}, "primitive": "unroll", "why": 1},
    )
    return [
        *found,
        with_threads(one, 8),
        dataclasses.replace(one, session=SESSION),
        dataclasses.replace(one, session=dataclasses.replace(SESSION, extra={"mood": {"a": 1}})),
        dataclasses.replace(one, extra={"predicted": 1.5, "default": True, "like": 3, "x": {"y": [1]}, "weight": 0.1}),
        dataclasses.replace(one, extra={"workload": {"colour": 1}, "target": {"legality": {"sse": True}, "x": 2}}),
        dataclasses.replace(one, steps=(*one.steps, *strange), candidate="strange"),
        dataclasses.replace(one, steps=(), candidate="empty", decisions={}),
        dataclasses.replace(one, decisions={}),
        dataclasses.replace(one, decisions={**one.decisions, "more": "x"}, dims={"n0": 4}, function="def f():\n"),
        dataclasses.replace(one, workload=dataclasses.replace(one.workload, hash="0" * 64)),
        dataclasses.replace(one, workload=dataclasses.replace(one.workload, text="")),
        wrong(dense(), candidates(dense(), HERE, 5)[4]),
        dataclasses.replace(verdict(one, "net", True, 5.0), extra={"like": [1], "target": {"x": 1}}),
    ]


def _texts(lines: list[Line], known: set[str] | None = None) -> list[bytes]:
    return lines_with_definitions(map(compact_line, lines), known or set(), known or set())[0]


def _read(texts: list[bytes]) -> list[Line | None]:
    reader = LineReader()
    rest = [x for x in texts if not reader.define(x)]
    return [reader.read(x.decode()) for x in rest]


def _log(path: Path, lines: list[Line]) -> JSONDatabase:
    database = JSONDatabase(path)
    for x in lines:
        database.append(x)
    return database


# -- both forms ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("number", range(len(_lines())))
def test_a_short_line_is_the_long_one(number: int) -> None:
    line = _lines()[number]
    (again,) = _read(_texts([line]))
    assert again is not None
    assert again == LineReader().read(to_line(line))
    assert json.loads(to_line(again)) == json.loads(to_line(line))


def test_a_log_has_what_was_appended(tmp_path: Path) -> None:
    lines = _lines()
    database = _log(tmp_path / "log", lines)
    assert [json.loads(to_line(x)) for x in database.lines()] == [json.loads(to_line(x)) for x in lines]
    assert database.skipped == ()
    schemas = [json.loads(x)["schema"] for x in database.path.read_text().splitlines()]
    assert schemas.count(1) == 2, "those with an unknown field of the name that schema 2 needs"


def test_only_what_is_new_is_defined(tmp_path: Path) -> None:
    """Also by another writer, and after a reader's look."""
    records = _lines()[:4]
    database = _log(tmp_path / "log", records)
    size = database.path.stat().st_size
    for writer in (database, JSONDatabase(database.path)):
        writer.append(dataclasses.replace(records[0], time=77.0))  # type: ignore[arg-type]
        assert len(database.path.read_bytes()) - size < 200
        size = database.path.stat().st_size
    defined = [k for x in database.path.read_bytes().splitlines() if is_definition(x) for k in _names(x)]
    assert len(defined) == len(set(defined))


def _names(line: bytes) -> list[str]:
    found = Definitions()
    found.add(line)
    return list(found.texts())


def test_both_versions_in_any_order_in_any_number(tmp_path: Path) -> None:
    """Promise 4: what a build takes depends neither on the order of lines nor on repeated ones."""
    lines = [*_lines()[:8], *SAMPLE.read_text().splitlines()]
    texts = [*_texts(lines[:5]), *_texts(lines[3:8]), *(x.encode() for x in lines[8:])]  # type: ignore[list-item, union-attr]
    expected: set[str] | None = None
    for seed in range(6):
        shuffled = texts + random.Random(seed).sample(texts, 5)
        random.Random(seed).shuffle(shuffled)
        path = tmp_path / f"log{seed}"
        path.write_bytes(b"\n".join(shuffled) + b"\n")
        database = JSONDatabase(path)
        found = {to_line(x) for x in database.lines()}
        assert database.skipped == ()
        assert expected in (None, found)
        expected = found
        assert database.query(workload_of(dense()), HERE).seconds == 1e-3  # type: ignore[union-attr]


def test_merging_knows_a_record_in_both_forms(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(SAMPLE.read_bytes())
    new = JSONDatabase(tmp_path / "new")
    assert new.merge(JSONDatabase(old)) == 4
    assert new.merge(JSONDatabase(old)) == 0
    assert JSONDatabase(old).merge(new) == 0


# -- what is missing -----------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore::tilewright.autotune.records.record.RecordWarning")
def test_a_record_whose_definition_was_cut_away_is_skipped_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.autotune.records.writing._FAR", 3000)
    records = _lines()[:8]
    whole = _log(tmp_path / "log", records).path.read_bytes().splitlines(keepends=True)
    counts = []
    for cut in range(1, len(whole)):
        path = tmp_path / f"tail{cut}"
        path.write_bytes(b"".join(whole[cut:]))
        database = JSONDatabase(path)
        counts.append(len(database))
        assert counts[-1] + len(database.skipped) == sum(not is_definition(x) for x in whole[cut:])
        assert all("it needs a definition that the log does not have" in x for x in database.skipped)
        (tmp_path / "head").write_bytes(b"".join(whole[:cut]))
        assert JSONDatabase(tmp_path / "head").skipped == (), "definitions come first"
    assert 0 in counts
    assert max(counts) >= 4, "those of the other kernel are whole"


def test_a_definition_that_comes_later_is_found(tmp_path: Path) -> None:
    one = _lines()[0]
    define, text = _texts([one])
    path = tmp_path / "log"
    path.write_bytes(text + b"\n")
    database = JSONDatabase(path)
    with pytest.warns(RecordWarning, match="line 1: record: it needs a definition that the log does not have"):
        assert len(database) == 0
    assert len(database.skipped) == 1
    with path.open("ab") as f:
        f.write(define + b"\n")
    assert len(database) == 1
    assert database.skipped == ()


@pytest.mark.parametrize("part", ["objects", "steps"])
def test_a_damaged_definition_is_no_other(part: str, tmp_path: Path) -> None:
    """A digit that changed makes no record of another schedule; the next append writes the definition again."""
    one, two = _lines()[:2]
    define, text = _texts([one])
    data = json.loads(define)
    name = next(iter(data[part]))
    broken = json.dumps(data, separators=(",", ":")).replace(":" + json.dumps(data[part][name], separators=(",", ":")), ":[7]" if part == "steps" else ":{}")  # fmt: skip  # noqa: E501
    path = tmp_path / "log"
    path.write_bytes(broken.encode() + b"\n" + text + b"\n")
    database = JSONDatabase(path)
    with pytest.warns(RecordWarning, match="expected what the id is a digest of, got another text"):
        assert len(database) == 0
    database.append(dataclasses.replace(one, time=50.0))  # type: ignore[arg-type]
    assert len(database) == 2, "what waited for it is whole, too"
    database.append(two)
    assert len(database) == 3


def test_a_torn_definition_is_written_again(tmp_path: Path) -> None:
    """By the next writer, whoever was killed while it was written."""
    one = _lines()[0]
    define, _ = _texts([one])
    path = tmp_path / "log"
    for cut in (30, len(define) // 2, len(define) - 1):
        path.write_bytes(define[:cut])
        JSONDatabase(path).append(one)
        with pytest.warns(RecordWarning, match="not JSON"):
            assert len(JSONDatabase(path)) == 1


def test_definitions_are_what_they_say() -> None:
    one = _lines()[0]
    define, text = _texts([one])
    data = json.loads(define)
    for part in ("objects", "steps"):
        for name, value in data[part].items():
            assert name == id_of(json.dumps(value, separators=(",", ":")).encode())
    reader = LineReader()
    assert reader.define(json.dumps(data, indent=1).replace("\n", " ").encode()), "as other tools write JSON"
    assert reader.read(text.decode()) == LineReader().read(to_line(one))
    with pytest.raises(MissingDefinition, match=r"it needs a definition that the log does not have \(\S{10}\)"):
        LineReader().read(text.decode())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"like": 3}, "malformed reference"),
        ({"like": ["a", 1]}, "malformed reference"),
        ({"trace": ["nowhere"]}, "needs a definition"),
        ({"trace": [["split"]]}, "malformed reference"),
        ({"trace": [3]}, "malformed field"),
        ({"seconds": "fast"}, "malformed field"),
        ({"workload": 7}, "malformed field"),
        ({"session": {"id": 7}}, "malformed field"),
        ({"session": {"id": "x", "started": "now"}}, "malformed field"),
    ],
)
def test_damaged_short_lines(change: dict[str, object], reason: str) -> None:
    define, text = _texts([_lines()[0]])
    reader = LineReader()
    reader.define(define)
    with pytest.raises(ParseError, match=reason):
        reader.read(json.dumps({**json.loads(text), **change}))


def test_definitions_inside_each_other_end() -> None:
    """A chain of them deeper than anybody writes."""
    reader = LineReader()
    name = ""
    for n in range(40):
        text = json.dumps({"like": name, "n": n} if name else {"n": n}, separators=(",", ":")).encode()
        name = id_of(text)
        reader.define(b'{"schema":2,"kind":"define","objects":{"%b":%b}}' % (name.encode(), text))
    with pytest.raises(ParseError, match="expected another kind of definition"):
        reader.read(json.dumps({"schema": 2, "like": name}))


def test_definitions_that_double_each_other_end() -> None:
    """Twelve levels of ten: without a limit, 50 TB."""
    reader = LineReader()
    names = ['["unroll",{"loop":"i"}]']
    for _ in range(12):
        text = f"[{','.join(names[-1:] * 10)}]".encode()
        name = id_of(text)
        reader.define(b'{"schema":2,"kind":"define","steps":{"%b":%b}}' % (name.encode(), text))
        names.append(json.dumps(name))
    line = to_line(_lines()[0])
    text = json.dumps({**json.loads(line), "schema": 2, "trace": [json.loads(names[-1])]})
    with pytest.raises(ParseError, match="expected a trace of at most 4194304 bytes, got a longer one"):
        reader.read(text)


# -- rewriting and several writers ---------------------------------------------------------------------------------
def test_a_prune_keeps_the_definitions_that_are_needed(tmp_path: Path) -> None:
    records = _lines()[:8]
    database = _log(tmp_path / "log", records)
    strange = (
        b'{"schema":2,"kind":"weather","of":"%b"}' % _names(database.path.read_bytes().splitlines()[0])[3].encode()
    )
    lonely = b'{"schema":2,"like":"0123456789","seconds":1.0}'
    with database.path.open("ab") as f:
        f.write(strange + b"\n" + lonely + b"\n")
    writer = JSONDatabase(database.path)
    writer.append(dataclasses.replace(records[5], seconds=1.0))  # type: ignore[arg-type]
    with pytest.warns(RecordWarning):
        best = database.query(workload_of(dense()), HERE)
    before = len(database.path.read_bytes())
    assert database.prune() == 5
    kept = JSONDatabase(database.path)
    with pytest.warns(RecordWarning):
        assert kept.query(workload_of(dense()), HERE) == best
    assert len(kept) == 4
    text = kept.path.read_bytes()
    assert strange in text
    assert lonely in text
    assert len(text) < 0.75 * before
    defined = {k for x in text.splitlines() if is_definition(x) for k in _names(x)}
    assert _names_in(strange) <= defined
    for r in records:  # the writer's memory of what is defined is of the old file
        writer.append(r)
    with pytest.warns(RecordWarning):
        assert len(JSONDatabase(database.path)) == 12


def _names_in(line: bytes) -> set[str]:
    return {json.loads(line)["of"]}


def test_a_prune_drops_definitions_that_nothing_needs(tmp_path: Path) -> None:
    database = _log(tmp_path / "log", _lines()[:4])
    only = JSONDatabase(tmp_path / "only")
    assert database.prune() == 2
    only.merge(database)
    size = only.path.stat().st_size
    assert size <= database.path.stat().st_size < size + 200, "a line of definitions more"


def _append_often(path: Path, first: int, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    database = JSONDatabase(path)
    found = candidates(dense(), HERE, 12, seed=first)
    for n, c in enumerate(found):
        database.append(record(dense(), c, 1.0, time=100.0 * first + n))


def test_writers_and_a_rewriter_together_lose_no_definition(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path, start = tmp_path / "log", context.Event()
    workers = [context.Process(target=_append_often, args=(path, n, start)) for n in range(2)]
    workers.append(context.Process(target=prune_often, args=(path, start, 15)))
    for p in workers:
        p.start()
    start.set()
    for p in workers:
        p.join(60)
        assert p.exitcode == 0
    database = JSONDatabase(path)
    assert {r.time for r in database.records()} == {100.0 * w + n for w in range(2) for n in range(12)}
    assert database.skipped == ()


# -- size ----------------------------------------------------------------------------------------------------------
def test_a_record_takes_less_than_a_thousand_bytes(tmp_path: Path) -> None:
    """With real traces, nine samples, every tenth a failure, and the definitions of 10 kernels of 20 candidates each: a
    log of 10,000 such records has less than 10 MB. Measured like that in schema 1 it has 33."""
    rng = np.random.default_rng(0)
    lines: list[Line] = []
    for m in range(10):
        func = canonical(dense(64 + 8 * m, 96, 48))
        task = Task(func, HERE, name=f"k{m}_matmul", weight=0.01)
        for n, c in enumerate(candidates(func, HERE, 20, seed=m)):
            samples = tuple(rng.random(9).tolist())
            result = Failed(FailureKind.RUN_TIMEOUT, "no result after 10 s") if n % 10 == 9 else Ok(
                samples[4], samples, float(rng.random()), float(rng.random()))  # fmt: skip
            for again in range(2):
                made = make_record(task, c, result, "annealing", 0, 1763715600.0 + float(rng.random()), SESSION)
                extra = {"predicted": round(-20 * float(rng.random()), 6), "batch": 8, "elapsed": 3.806 + again}
                lines.append(dataclasses.replace(made, extra=extra))
    database = _log(tmp_path / "log", lines)
    assert len(lines) == 400
    assert database.path.stat().st_size < 1000 * len(lines)
    assert sum(len(to_line(x)) + 1 for x in lines) > 3000 * len(lines)
    assert [json.loads(to_line(x)) for x in JSONDatabase(database.path).lines()] == [
        json.loads(to_line(x)) for x in lines
    ]


def test_a_line_that_nobody_asks_for_is_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    _log(path, _lines()[:8])
    count = 0
    real = LineReader.read

    def counted(self: LineReader, text: str) -> Line | None:
        nonlocal count
        count += 1
        return real(self, text)

    monkeypatch.setattr(LineReader, "read", counted)
    database = JSONDatabase(path)
    assert database.targets() == [HERE]
    assert count == 0
    assert len(database.top_k(workload_of(dense(30)), 9, HERE)) == 4
    assert count == 4
    assert all(isinstance(x, Record) for x in database.lines())
    assert count == 8
