"""``tilewright db``: each action on a small log."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import onnx
import pytest

import tilewright
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import RecordWarning
from tilewright.cli import main
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record, verdict, wrong


@pytest.fixture
def log(tmp_path: Path) -> str:
    database = JSONDatabase(tmp_path / "log.jsonl")
    found = candidates(dense(), HERE, 4)
    for i, c in enumerate(found[:3]):
        database.append(record(dense(), c, 1e-3 * (3 - i), time=1763715600.0 + i))
    database.append(wrong(dense(), found[3], time=1763715700.0))
    database.append(verdict(database.records()[0], "net", False, 5.0))
    return str(database.path)


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["db", *words]) == 0
    return capsys.readouterr().out


def test_show(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = _said(capsys, "show", log)
    row = out.splitlines()[2]
    assert row.split("  ")[1:3] == ["dense", "znver4, 2 threads"]
    assert "1 wrong_result" in row
    assert "1000.0" in row
    assert "2025-11-21 09:01" in row
    assert out.endswith("1 workloads, 1 verdicts in networks (1 against)\n")


def test_top(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = _said(capsys, "top", log, "-k", "2", "--workload", "dense")
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["1000.0", "2000.0"]
    assert "split(" in _said(capsys, "top", log, "--trace")
    assert main(["db", "top", log, "--workload", "nothing"]) == 2
    assert "expected the start of a hash or a task's name in the log, got 'nothing'" in capsys.readouterr().err


def test_merge_and_prune(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = str(tmp_path / "both.jsonl")
    assert _said(capsys, "merge", log, log, "-o", both) == f"5 lines added; {both} has 5\n"
    assert _said(capsys, "prune", both) == "1 lines removed, 4 left\n"


def test_a_missing_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "show", str(tmp_path / "none")]) == 2
    assert "expected a tuning log, found no such file" in capsys.readouterr().err


def test_explain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = str(tmp_path / "m.onnx"), str(tmp_path / "log")
    onnx.save(mlp_model(), model)
    table = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16))
    tilewright.tune(model, database=path, measurer=table, time_budget_s=None, max_trials=8, check_network=False)
    out = _said(capsys, "explain", path, model)
    assert "misses (0.0 % of run time)" in out
    log = JSONDatabase(path)
    count = len(log.records())
    assert (
        f"\n\n0 of {count} measurements are of 0 computations that this network does not have; 0 of 0 verdicts" in out
    )
    log.append(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3))
    log.append(verdict(log.records()[0], "another", False, 5.0))
    out = _said(capsys, "explain", path, model)
    assert f"1 of {count + 1} measurements are of 1 computations" in out
    assert "1 of 1 verdicts and choices are on other networks" in out


def test_check(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _said(capsys, "check", log) == "3 of 3 measurements replay\n"
    database = JSONDatabase(log)
    first = database.records()[0]
    steps = ({"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}},)
    for time in (1.0, 2.0):
        database.append(dataclasses.replace(first, steps=steps, candidate="broken", time=time))
    database.append(dataclasses.replace(first, steps=({"primitive": "teleport", "args": {}},), candidate="unknown"))
    with open(log, "a") as f:
        f.write("{damaged\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        out = _said(capsys, "check", log)
    rows = out.splitlines()
    assert "split(nowhere): expected the name of a loop of f, got 'nowhere'" in rows[2]
    assert rows[2].endswith(" 2")
    assert "teleport" in rows[3]
    assert rows[-3].startswith(f"line {len(Path(log).read_text().splitlines())}: not JSON")
    assert rows[-1] == "3 of 6 measurements replay"


def test_what_tuning_found_is_verified_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, path = str(tmp_path / "m.onnx"), str(tmp_path / "log")
    onnx.save(mlp_model(), model)
    table = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16))
    tilewright.tune(model, database=path, measurer=table, time_budget_s=None, max_trials=24, check_network=False)
    texts = []
    for words in (["verify", model], ["explain", model], ["inspect", model, "--stage", "trace"]):
        for log in ([], ["--log", path]):
            assert main([*words, *log]) == 0
            texts.append(capsys.readouterr().out)
    assert "all layers agree" in texts[1]
    assert "misses (" not in texts[2]
    assert "misses (" in texts[3]
    assert texts[4] != texts[5]


def test_tune_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twice the same command, with real measurements: the second continues the log."""
    model, path = str(tmp_path / "m.onnx"), str(tmp_path / "log")
    onnx.save(mlp_model(8, 16), model)
    words = ["tune", model, "--log", path, "--time", "900", "--trials", "4", "--effort", "quick", "--threads", "1"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "trials in" in out
    assert "hits (100.0 % of run time)" in out
    first = JSONDatabase(path).records()
    assert main([*words, "--no-check", "--quiet"]) == 0
    both = JSONDatabase(path).records()
    assert both[: len(first)] == first
    new = {(r.workload.hash, r.candidate) for r in both[len(first) :] if len(r.samples) != 1}
    assert new - {(r.workload.hash, r.candidate) for r in first}


@pytest.mark.filterwarnings("default::tilewright.autotune.records.record.RecordWarning")
def test_damaged_lines_are_counted(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    first = len(Path(log).read_text().splitlines()) + 1
    with Path(log).open("a") as f:
        f.write('{"schema":1,"kind":"measurement"}\n{"torn\n')
    assert main(["db", "show", log]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("; 2 damaged lines skipped\n")
    assert said.err.startswith(f"tilewright: RecordWarning: {log}: line {first}: record: missing or malformed field: ")
    assert "missing required field `workload`" in said.err
    assert said.err.count("\n") == 1
