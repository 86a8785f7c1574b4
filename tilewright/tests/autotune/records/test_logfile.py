"""Logs are recognised, appended to as a whole, and rewritten in one step; other files are left alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.logfile import START, append_made, reading, require_log, rewrite_lines
from tilewright.autotune.records.record import RecordWarning
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record
from tilewright.tests.autotune.records.test_log_versions import SAMPLE

FIRST, SECOND = SAMPLE.read_bytes().splitlines()[:2]
FOREIGN = {
    "model": mlp_model().SerializeToString(),
    "text": b"Dear log,\nnothing happened.\n",
    "json": b'{"workload": 1}\n{"seconds": 2}\n',
    "schema of text": b'{"schema": "http://json-schema.org/draft-07/schema#"}\n',
    "schema of flags": b'{"schema": true}\n',
    "json array": b'[{"schema": 1}]',
    "spaces, then text": b" " * 100 + b"text\n",
    "a late line": b"# A page about logs\n" * 8 + FIRST + b"\n",
    "nested": b"[" * 100_000,
    "no newline": bytes(range(256)) * 100_000,
}
OURS = {
    "empty": b"",
    "blank": b"\n \n",
    "a newer version": b'{"schema":3,"x":1}\n',
    "other order": b'{"kind": "weather", "schema": 1}\n',
    "byte order mark": b"\xef\xbb\xbf" + FIRST + b"\n",
    "carriage returns": FIRST + b"\r\n" + SECOND + b"\r\n",
    "killed at once": b'{"sch',
    "killed at once, then continued": b'{"sch\n' + FIRST + b"\n",
    "damaged at the beginning": bytes(4096) + b"\n" + FIRST + b"\n",
}


def append_lines(path: Path, lines: list[bytes]) -> None:
    """Lines as they are, whatever is in the file."""
    append_made(path, START, lambda tail: lines)


@pytest.mark.parametrize("name", FOREIGN)
def test_another_file_is_left_alone(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(FOREIGN[name])
    with pytest.raises(InputError, match="file: expected a tuning log, found another kind of file; it stays as it is"):
        append_lines(path, [FIRST])
    with pytest.raises(InputError, match="expected a tuning log"):
        rewrite_lines(path, lambda lines: {})
    with pytest.raises(InputError, match="expected a tuning log"), reading(path):
        pass
    with pytest.raises(InputError, match="expected a tuning log"):
        JSONDatabase(path)
    assert path.read_bytes() == FOREIGN[name]


@pytest.mark.filterwarnings("ignore::tilewright.autotune.records.record.RecordWarning")
@pytest.mark.parametrize("name", OURS)
def test_a_log_is_taken(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OURS[name])
    count = len(JSONDatabase(path))
    append_lines(path, [SECOND])
    assert path.read_bytes().startswith(OURS[name])
    assert len(JSONDatabase(path)) == count + 1


def test_utf_16_is_named(tmp_path: Path) -> None:
    for n, encoding in enumerate(("utf-16", "utf-16-le", "utf-16-be")):
        path = tmp_path / f"log{n}"
        path.write_text(SAMPLE.read_text(), encoding=encoding)
        with pytest.raises(InputError, match="expected a tuning log, found UTF-16 text; store it as UTF-8"):
            JSONDatabase(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_no_log(tmp_path: Path) -> None:
    """And nobody waits for what comes out of it."""
    os.mkfifo(tmp_path / "pipe")
    for use in (
        JSONDatabase,
        require_log,
        lambda p: append_lines(p, [FIRST]),
        lambda p: rewrite_lines(p, lambda lines: {}),
    ):
        with pytest.raises(InputError, match="expected a tuning log, found a pipe or a device"):
            use(tmp_path / "pipe")


def test_a_file_that_takes_the_place_of_the_log_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    database = JSONDatabase(path)
    one = record(dense(), candidates(dense(), HERE, 1)[0], 1.0)
    database.append(one)
    path.write_bytes(FOREIGN["model"])
    for use in (len, JSONDatabase.prune, lambda d: d.append(one)):
        with pytest.raises(InputError, match="found another kind of file"):
            use(database)
    assert path.read_bytes() == FOREIGN["model"]


@pytest.mark.parametrize("written", [0, 1, 50])
def test_an_append_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    path = tmp_path / "log"
    before = FIRST + b'\n{"schema":1,"torn'
    path.write_bytes(before)
    real, left = os.write, [written]

    def full(descriptor: int, data: bytes) -> int:
        count = min(left[0], len(data))
        left[0] -= count
        if count == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:count])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left on device") as raised:
        append_lines(path, [SECOND, SECOND])
    assert raised.value.filename == str(path)
    assert path.read_bytes() == before


def test_a_rewrite_keeps_what_was_chosen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f'{{"schema":3,"n":{n}}}'.encode() for n in range(5)]
    path.write_bytes(b"\n\n" + b"\n".join(lines))
    seen: list[bytes] = []

    def choose(found):  # type: ignore[no-untyped-def]
        seen.extend(found)
        return {0: None, 3: b"changed", 4: None}

    link = tmp_path / "link"
    link.symlink_to(path)
    before = path.read_bytes()
    rewrite_lines(link, choose, dry_run=True)
    rewrite_lines(link, choose, tmp_path / "other")
    assert path.read_bytes() == before
    seen.clear()
    rewrite_lines(link, choose)
    assert seen == lines
    assert path.read_bytes() == b"\n".join([lines[0], b"changed", lines[4]]) + b"\n"
    assert (tmp_path / "other").read_bytes() == path.read_bytes()
    assert link.is_symlink()
    with pytest.raises(InputError, match="other: expected no file or an empty one, found one; it stays as it is"):
        rewrite_lines(link, choose, tmp_path / "other")


def test_a_missing_log_is_not_made_by_a_prune(tmp_path: Path) -> None:
    assert JSONDatabase(tmp_path / "none").prune() == 0
    assert list(tmp_path.iterdir()) == []


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "log"
    append_lines(path, [FIRST])
    with reading(path) as tail:
        assert ([raw for _, raw in tail.lines], tail.is_new, tail.torn) == ([FIRST], True, b"")
        first = tail.end
    append_lines(path, [SECOND])
    with path.open("ab") as f:
        f.write(b"torn")
    with reading(path, first) as tail:
        places = list(tail.lines)
        assert ([raw for _, raw in places], tail.is_new, tail.torn) == ([SECOND], False, b"torn")
        assert tail.read(0, len(FIRST)) == FIRST


def test_a_file_edited_in_place_is_read_again(tmp_path: Path) -> None:
    """Some editors keep the file and write over its contents."""
    path = tmp_path / "log"
    append_lines(path, [FIRST, SECOND])
    with reading(path) as tail:
        end = tail.end
    with path.open("r+b") as f:
        f.write(SECOND[:-1] + b" }\n" + FIRST + b"\n" + FIRST + b"\n")
    with reading(path, end) as tail:
        assert tail.is_new
        assert len(list(tail.lines)) == 3
    assert START.at == 0


def test_warnings_are_one_and_say_which_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\n".join([FIRST, b"{", b"[]", SECOND, b"}", b"x", b'{"schema":1}', b'{"schema"']))
    database = JSONDatabase(path)
    with pytest.warns(RecordWarning) as warned:
        assert len(database) == 2
    (one,) = warned
    parts = str(one.message).removeprefix(f"{path}: ").split("; ")
    assert parts[0].startswith("lines 5, 6: not JSON")
    assert parts[1] == "skipped"
    assert parts[2].startswith("line 2: not JSON")
    assert parts[4].startswith("line 3: expected an object with an integer 'schema'")
    assert parts[6].startswith("line 7: record: missing or malformed field")
    assert parts[-2:] == ["the last line is cut off in the middle", "skipped"]
    assert [x.split(":")[0] for x in database.skipped] == ["line 2", "line 3", "line 5", "line 6", "line 7"]


def test_thousands_of_damaged_lines_are_one_short_warning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(FIRST + b"\n" + b"".join(b'{"schema":1,"n":%d}\n{%d\n[%d]\n' % (n, n, n) for n in range(1000)))
    with pytest.warns(RecordWarning) as warned:
        assert len(JSONDatabase(path)) == 1
    (one,) = warned
    assert "lines 2, 5, 8 and 997 more: record: missing or malformed field" in str(one.message)
    assert "lines 3, 6, 9 and 997 more: not JSON" in str(one.message)
    assert len(str(one.message)) < 600
