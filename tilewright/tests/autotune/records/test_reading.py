"""Reading many lines fast is reading each by itself; a damaged one is one damaged one, whatever is wrong with it."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.autotune.base.workload import workload_of
from tilewright.autotune.records.database import JSONDatabase, UnionDatabase
from tilewright.autotune.records.reading import LineReader, TornLine, from_line
from tilewright.autotune.records.record import Record, RecordWarning, to_line
from tilewright.core.errors import ParseError
from tilewright.tests.api.test_build_time import calls_of
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, with_threads, wrong
from tilewright.tests.autotune.records.test_log_versions import SAMPLE


def _lines() -> list[str]:
    """Records of several workloads and machines, verdicts, unknown fields, a failure."""
    out: list[str] = []
    for m in (24, 30):
        made = enumerate(candidates(dense(m), HERE, 4))
        found = [record(dense(m), c, 1e-3 * (9 - i), time=float(i)) for i, c in made]
        out += [to_line(r) for r in found]
        out.append(to_line(with_threads(found[0], 8)))
        out.append(to_line(dataclasses.replace(found[1], extra={"predicted": 1.5, "default": True, "x": {"y": [1]}})))
        out.append(to_line(verdict(found[0], "net", True, 5.0)))
    return [*out, to_line(wrong(dense(), candidates(dense(), HERE, 1)[0])), *SAMPLE.read_text().splitlines()]


def _slow(text: str) -> str:
    """The same line in a form that nobody writes here."""
    data = json.loads(text)
    return json.dumps(dict(reversed(data.items())), indent=None)


def test_both_forms_are_read_alike() -> None:
    fast, slow = LineReader(), LineReader()
    for text in _lines():
        line = fast.read(text)
        assert line == slow.read(_slow(text))
        assert line is not None
        assert json.loads(to_line(line)) == json.loads(text)


def test_equal_parts_are_one_object() -> None:
    reader = LineReader()
    a, b = (reader.read(text) for text in _lines()[:2])
    assert isinstance(a, Record)
    assert isinstance(b, Record)
    assert a.workload is b.workload
    assert a.target is b.target
    assert a.versions is b.versions
    assert set(map(id, a.steps)) & set(map(id, b.steps))


def _data() -> dict[str, Any]:
    return json.loads(to_line(record(dense(), candidates(dense(), HERE, 2)[1], 1e-3)))


def _changed(change: Callable[[dict[str, Any]], object]) -> str:
    data = _data()
    change(data)
    return json.dumps(data, separators=(",", ":"))


def _replaced(old: str, new: str) -> str:
    text = json.dumps(_data(), separators=(",", ":"))
    assert old in text
    return text.replace(old, new, 1)


def _step(name: str, **args: object) -> Callable[[dict[str, Any]], object]:
    return lambda d: d["trace"].append({"primitive": name, "args": args})


DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED = {
    "nested deeply": (f'{{"schema":1,"x":{DEEP}}}', "nested too deeply"),
    "nested in an unknown field": (
        _changed(lambda d: d.update(x=json.loads("[" * 200 + "]" * 200))), "at most 64 levels of lists and objects"
    ),
    "nested in a trace": (_replaced('"args":{', f'"args":{{"z":{DEEP},'), "nested"),
    "text for a number in a trace": (_changed(_step("split", loop="i0", factors=[1, "8"])), "factors: expected whole"),
    "a number for text in a trace": (_changed(_step("vectorize", loop=3)), "loop: expected text, got 3"),
    "an argument that is missing": (_changed(_step("split", loop="i0")), r"split expects \(loop, factors\)"),
    "a step without arguments": (_changed(lambda d: d["trace"].append({"primitive": "split"})), "expected steps with"),
    "a trace of text": (_changed(lambda d: d.update(trace="split")), r"got `str` - at `..trace`"),
    "text for seconds": (_changed(lambda d: d.update(seconds="1e-3")), r"got `str` - at `..seconds`"),
    "NaN": (_replaced('"time":1.0', '"time":NaN'), "not JSON: JSON is malformed: invalid character"),
    "a time beyond floats": (_replaced('"time":1.0', '"time":1e999'), r"Number out of range - at `..time`"),
    "a huge number": (_changed(lambda d: d.update(time=10**400)), r"Number out of range - at `..time`"),
    "a time in the far future": (_changed(lambda d: d.update(time=1e18)), r"< 253402300800.0 - at `..time`"),
    "a number of 10,000 digits": (f'{{"schema":1,"time":{"9" * 10_000}}}', "malformed field"),
    "infinity in an unknown field": (_replaced('"time":1.0', '"time":1.0,"x":1e999'), "Number out of range"),
    "seconds of an age": (_changed(lambda d: d.update(seconds=1e300)), r"<= 1000000000000.0 - at `..seconds`"),
    "no seconds": (_changed(lambda d: d.update(seconds=0.0)), r">= 1e-12 - at `..seconds`"),
    "samples of an age": (_changed(lambda d: d.update(samples=[1.0, 1e300])), r"<= 1000000000000.0 - at `..samples\[1"),
    "samples of text": (_changed(lambda d: d.update(samples=["a"])), r"got `str` - at `..samples\[0\]`"),
    "samples that are one": (_changed(lambda d: d.update(samples=3)), r"got `int` - at `..samples`"),
    "half a surrogate pair": (_changed(lambda d: d.update(task="\ud800")), "not JSON"),
    "a target of text": (_changed(lambda d: d.update(target="znver4")), r"got `str` - at `..target`"),
    "threads of text": (_replaced('"threads":2', '"threads":"2"'), r"got `str` - at `..target.performance.threads`"),
    "a negative cache": (_replaced('"l1_bytes":', '"l1_bytes":-'), r">= 0 - at `..target.performance.l1_bytes`"),
    "a workload without a hash": (_changed(lambda d: d["workload"].pop("hash")), "field `hash` - at `..workload`"),
    "decisions of objects": (_changed(lambda d: d.update(decisions={"a": {}})), r"got `object` - at `..decisions"),
    "dims of text": (_changed(lambda d: d.update(dims={"n0": "4"})), r"got `str` - at `..dims"),
    "a seed of text": (_changed(lambda d: d.update(seed="0")), r"got `str` - at `..seed`"),
    "a failure of numbers": (_changed(lambda d: d.update(seconds=None, failure=7)), r"got `int` - at `..failure`"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_lines_say_what_is_wrong(name: str) -> None:
    text, reason = DAMAGED[name]
    with pytest.raises(ParseError, match=reason):
        from_line(text)


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_skipped_and_counted(name: str, tmp_path: Path) -> None:
    """Between two good ones of the same workload, and better than both if it counted."""
    text, reason = DAMAGED[name]
    good = [to_line(record(dense(), c, 1.0 + i)) for i, c in enumerate(candidates(dense(), HERE, 2))]
    path = tmp_path / "log"
    path.write_text("\n".join([good[0], text, good[1]]) + "\n")
    database = JSONDatabase(path)
    with pytest.warns(RecordWarning, match=f"line 2: .*{reason}"):
        assert len(database) == 2
    best = database.query(workload_of(dense()), HERE)
    assert best is not None
    assert best.seconds == 1.0
    assert len(database.skipped) == 1


def test_what_a_later_version_may_write_is_not_damaged() -> None:
    for change in (_step("tensorise_more", loop=[1, {"a": 2}]), _step("split", loop="i0", factors=[1, 2], ragged=True)):
        line = from_line(_changed(change))
        assert isinstance(line, Record)
        with pytest.raises(ParseError):
            line.trace  # noqa: B018 - replaying it is what fails


def test_a_prune_keeps_lines_that_it_does_not_understand(tmp_path: Path) -> None:
    path = tmp_path / "log"
    kept = [text for name, (text, _) in DAMAGED.items() if not _is_torn(text)]
    torn = [text for name, (text, _) in DAMAGED.items() if _is_torn(text)]
    good = to_line(record(dense(), candidates(dense(), HERE, 1)[0], 1.0))
    path.write_text("\n".join([good, *kept, *torn]) + "\n")
    assert JSONDatabase(path).prune() == len(torn)
    assert path.read_text().splitlines() == [good, *kept]


def _is_torn(text: str) -> bool:
    try:
        from_line(text)
    except TornLine:
        return True
    except ParseError:
        return False
    return False


# -- what is decoded when ------------------------------------------------------------------------------------------
class Counting(LineReader):
    """Counts the lines that it decodes."""

    count = 0

    def read(self, text: str) -> Any:
        Counting.count += 1
        return super().read(text)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> type[Counting]:
    monkeypatch.setattr("tilewright.autotune.records.loglines.LineReader", Counting)
    Counting.count = 0
    return Counting


def test_only_what_is_asked_for_is_decoded(tmp_path: Path, counting: type[Counting]) -> None:
    path = tmp_path / "log"
    lines = _lines()
    path.write_text("\n".join(lines) + "\n")
    database = JSONDatabase(path)
    assert HERE in database.targets()
    eager = counting.count
    assert eager <= 6, "verdicts, and records of a form that is not ours"
    assert database.query(workload_of(dense(30)), HERE) is not None
    assert counting.count == eager + 6
    assert database.query(workload_of(dense(30)), HERE) is not None
    assert counting.count == eager + 6, "once"
    assert list(map(to_line, database.lines())) == list(map(to_line, map(from_line, lines)))  # type: ignore[arg-type]
    assert counting.count == len(lines)


def test_a_line_that_nobody_asks_for_costs_little(tmp_path: Path) -> None:
    """50,000 records took 16 s and 1.5 GB to open: counted are the calls of Python and the bytes kept for each line."""
    path = tmp_path / "log"
    found = [to_line(record(dense(), c, 1.0 + n)) for n, c in enumerate(candidates(dense(), HERE, 50))]

    def opened(times: int) -> tuple[int, int]:
        path.write_text("\n".join(found * times) + "\n")
        database = JSONDatabase(path)
        calls = calls_of(database.targets)
        again = JSONDatabase(path)
        tracemalloc.start()
        again.targets()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return calls, kept

    small, large = opened(2), opened(12)
    calls, kept = ((b - a) / (10 * len(found)) for a, b in zip(small, large, strict=True))
    assert calls < 20
    assert kept < 400, f"of {len(found[0])} bytes"


def test_a_union_decodes_what_is_asked_for(tmp_path: Path, counting: type[Counting]) -> None:
    for n in range(2):
        (tmp_path / str(n)).write_text("\n".join(_lines()[:14]) + "\n")
    both = UnionDatabase(JSONDatabase(tmp_path / "0"), JSONDatabase(tmp_path / "1"))
    both.targets()
    eager = counting.count
    assert len(both.top_k(workload_of(dense(30)), 9, HERE)) == 4
    assert counting.count == eager + 12


def test_damage_in_the_middle_is_found_when_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / "log"
    best = to_line(record(dense(), candidates(dense(), HERE, 1)[0], 1e-6))
    at = best.index('"decisions"') - 40
    good = to_line(record(dense(), candidates(dense(), HERE, 2)[1], 1.0))
    path.write_text(f"{best[:at]}\x00{best[at + 1 :]}\n{good}\n")
    database = JSONDatabase(path)
    with pytest.warns(RecordWarning, match="line 1: not JSON"):
        assert database.query(workload_of(dense()), HERE).seconds == 1.0  # type: ignore[union-attr]
    assert len(database) == 1
