"""A log as JSON and back, and as a table."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest

from tilewright.autotune.exchange.export import COLUMNS, from_json, to_csv, to_json
from tilewright.autotune.records.record import Line, to_line
from tilewright.autotune.records.session import make_session
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, wrong


def _lines() -> list[Line]:
    one = record(dense(), candidates(dense(), HERE, 2)[1], 1e-3)
    named = dataclasses.replace(
        one, session=make_session("a,b.onnx", "ab" * 32, 5.0), extra={"default": True, "x": {"y": 1}}, dims={"n0": 4}
    )
    return [one, named, wrong(dense(), candidates(dense(), HERE, 3)[2]), verdict(one, "net", True, 5.0)]


def test_json_and_back() -> None:
    lines, refused = from_json(to_json(_lines()))
    assert [json.loads(to_line(x)) for x in lines] == [json.loads(to_line(x)) for x in _lines()]
    assert refused == {}


def test_what_is_not_understood_is_counted() -> None:
    data = json.loads(to_json(_lines()))
    data["lines"] += [{"schema": 9}, {"schema": 1, "kind": "measurement"}, {"schema": 9}, 7]
    lines, refused = from_json(json.dumps(data))
    assert len(lines) == 4
    assert refused["of a newer version or another kind"] == 2
    assert sum(refused.values()) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "expected JSON"), ("[1]", "expected an object with format"), ('{"format": "x"}', "expected an object"),
     ('{"format": "tilewright tuning log", "version": 2, "lines": []}', "expected version 1 of the format, got 2")],
)  # fmt: skip
def test_other_documents(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        from_json(text)


def test_the_table() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(_lines()))))
    assert len(rows) == 3
    assert tuple(rows[0]) == COLUMNS
    assert (rows[1]["model"], rows[1]["default"], rows[1]["dims"]) == ("a,b.onnx", "1", "n0=4")
    assert float(rows[0]["seconds"]) == 1e-3
    assert [float(x) for x in rows[0]["samples"].split()] == [1e-3]
    assert (rows[2]["seconds"], rows[2]["failure"]) == ("", "wrong_result")
