"""Records as lines: they read back, and what this version does not know survives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.records.reading import from_line
from tilewright.autotune.records.record import isa_class, make_record, result_of, target_differences, to_line
from tilewright.core.errors import ParseError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, wrong


def _json(line: str) -> dict[str, Any]:
    return json.loads(line)


def test_a_record_reads_back() -> None:
    for r in (record(dense(), candidates(dense(), HERE, 2)[1], 1e-3), wrong(dense(), candidates(dense(), HERE, 1)[0])):
        line = to_line(r)
        assert "\n" not in line
        assert from_line(line) == r
        assert from_line(line).trace == r.trace  # type: ignore[union-attr]


def test_a_verdict_reads_back() -> None:
    v = verdict(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3), "net", False, 5.0)
    assert from_line(to_line(v)) == v


def test_the_fields_of_version_1() -> None:
    """The promise of docs/log-format.md: these names stay."""
    data = _json(to_line(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3)))
    assert list(data) == [
        "schema", "kind", "workload", "target", "trace", "decisions", "function", "candidate", "seconds", "samples",
        "error", "failure", "message", "compile_seconds", "dims", "versions", "time", "tuner", "seed", "task",
    ]  # fmt: skip
    assert data["schema"] == 1
    assert set(data["workload"]) == {"hash", "structure", "text"}
    assert set(data["target"]["legality"]) == {
        "isa", "triple", "features", "vector_bits", "vector_registers", "has_fma"
    }  # fmt: skip
    assert set(data["target"]["performance"]) == {"cpu", "l1_bytes", "l2_bytes", "l3_bytes", "threads"}
    assert {"tilewright", "llvmlite"} <= set(data["versions"])


def test_unknown_fields_survive_at_any_depth() -> None:
    data = _json(to_line(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3)))
    data["mood"] = {"good": True}
    data["target"]["performance"]["turbo_mhz"] = 5000
    data["workload"]["source"] = ["resnet", 3]
    again = _json(to_line(from_line(json.dumps(data))))  # type: ignore[arg-type]
    assert again == data


def test_decisions_replay() -> None:
    chosen = candidates(dense(), HERE, 3)[2]
    r = from_line(to_line(record(dense(), chosen, 1e-3)))
    found = Space(chosen_function(), HERE).with_decisions(r.choices())  # type: ignore[union-attr]
    assert found is not None
    assert found.key == chosen.key


def chosen_function():  # type: ignore[no-untyped-def]
    return Task(record(dense(), candidates(dense(), HERE, 1)[0], 1.0).scheduled_function(), HERE).func


def test_a_task_with_names_of_its_own_keeps_them() -> None:
    func = dense(prefix="my_")
    space = Space(func, HERE)
    r = make_record(Task(func, HERE), space.default(), Ok(1e-3, (1e-3,), 0.0, 0.1))
    assert r.scheduled_function() == func
    r.trace.apply(r.scheduled_function())
    assert r.workload == record(dense(), candidates(dense(), HERE, 1)[0], 1.0).workload


def test_outcomes() -> None:
    c = candidates(dense(), HERE, 1)[0]
    task = Task(dense(), HERE)
    for result in (Ok(1e-3, (1e-3, 2e-3), 1e-6, 0.2), Failed(FailureKind.CRASH, "signal 11")):
        assert result_of(make_record(task, c, result)) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object with an integer 'schema'"),
        ('{"schema": 1}', "missing or malformed field: Object missing required field `workload`"),
        ('{"schema": 1, "kind": "verdict"}', "missing or malformed field: Object missing required field `workload`"),
    ],
)
def test_malformed_lines(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        from_line(text)


def test_a_record_has_a_time_or_a_failure() -> None:
    data = _json(to_line(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3)))
    for change in ({"seconds": None}, {"failure": "crash"}, {"seconds": -1.0}, {"seconds": "fast"}):
        with pytest.raises(ParseError, match="malformed"):
            from_line(json.dumps({**data, **change}))


def test_newer_lines_are_left_alone() -> None:
    assert from_line('{"schema": 3, "anything": 1}') is None
    assert from_line('{"schema": 1, "kind": "weather"}') is None


def test_differences_of_targets() -> None:
    assert isa_class(HERE) == "x86_64 256-bit x16 fma"
    assert target_differences(HERE, HERE) == ()
    assert target_differences(HERE, HERE.with_threads(4)) == ("2 -> 4 threads",)
