"""``tilewright db``: each action on a small log."""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import onnx
import pytest

import tilewright
from tilewright.autotune.exchange.tvm import FAILED, NO_TIME, NO_TRACE
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import RecordWarning, to_line
from tilewright.autotune.records.session import make_session
from tilewright.cli import main
from tilewright.codegen.detect_cpu import detect_host
from tilewright.tests.autotune.exchange.test_tvm import autotvm, metaschedule
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record, verdict, wrong
from tilewright.tests.cli.test_json import said


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


def _found(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    """The object that an action prints, after a look at its keys."""
    return said(capsys, "db", *words, keys=f"db {words[0]}", status=status)


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


def test_implementations_under_one_name_are_told_apart(log: str, capsys: pytest.CaptureFixture[str]) -> None:
    database = JSONDatabase(log)
    first = record(dense(29), candidates(dense(29), HERE, 1)[0], 5e-3)
    database.append(dataclasses.replace(first, extra={"implementation": "winograd2"}))
    assert "dense (winograd2)  znver4, 2 threads" in _said(capsys, "show", log)
    heads = [line for line in _said(capsys, "top", log).splitlines() if not line.startswith(" ")]
    assert [h.split(" ", 1)[1] for h in heads] == ["dense", "dense (winograd2)"]
    assert [w["implementation"] for w in _found(capsys, "show", log)["workloads"]] == ["", "winograd2"]
    found = _found(capsys, "top", log)["workloads"]
    assert [w["candidates"][0]["implementation"] for w in found] == ["", "winograd2"]


def test_merge_and_prune(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = str(tmp_path / "both.jsonl")
    out = _said(capsys, "merge", log, log, "-o", both, "--dry-run")
    assert out.startswith(f"5 lines would be added; {both} would have 5\n")
    assert not Path(both).exists()
    out = _said(capsys, "merge", log, log, "-o", both)
    assert out.startswith(f"5 lines added; {both} has 5, in ")
    assert "better than before, or new:" in out
    assert _said(capsys, "merge", log, "-o", both).startswith(f"0 lines added; {both} has 5")
    before = Path(both).read_bytes()
    expected = "1 of 4 measurements, 0 of 1 verdicts, 0 of 0 choices\n1 of 1 workloads have 3 measurements left"
    assert _said(capsys, "prune", both, "--dry-run") == f"would remove {expected}\n"
    small = str(tmp_path / "small.jsonl")
    assert _said(capsys, "prune", both, "-o", small).startswith(f"removed {expected}\n{small}: ")
    assert Path(both).read_bytes() == before
    assert main(["db", "prune", both, "-o", small]) == 2
    assert "expected no file or an empty one, found one; it stays as it is" in capsys.readouterr().err
    assert _said(capsys, "prune", both).startswith(f"removed {expected}\n{both}: ")
    assert len(JSONDatabase(both)) == len(JSONDatabase(small)) == 4


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
    explained = _found(capsys, "explain", path, model)
    assert (explained["measurements"], explained["foreign_measurements"]) == (count, 0)
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


# -- several logs --------------------------------------------------------------------------------------------------
def _timed(path: Path, typical: float, model: str = "a.onnx", version: str = "") -> str:
    """A log of one kernel with 9 samples."""
    r = record(dense(), candidates(dense(), HERE, 1)[0], typical)
    samples = tuple(typical * (1.0 + 0.001 * n) for n in range(-4, 5))
    session = make_session(model, "ab" * 32, 5.0, commit=version)
    JSONDatabase(path).append(dataclasses.replace(r, samples=samples, session=session, time=typical))
    return str(path)


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = _timed(tmp_path / "old", 1e-3), _timed(tmp_path / "new", 1.5e-3)
    assert main(["db", "diff", old, new]) == 1
    out = capsys.readouterr().out
    assert "1.500" in out
    assert "slower, same schedule" in out
    assert out.endswith("1 kernels: 1 slower; geometric mean of new/old 1.500\n")
    assert main(["db", "diff", new, old]) == 0
    assert "1 faster" in capsys.readouterr().out
    assert main(["db", "diff", old, old]) == 0
    assert capsys.readouterr().out == "1 kernels: 1 no difference; geometric mean of new/old 1.000\n"
    assert main(["db", "diff", old, new, "--threshold", "0.6"]) == 0
    capsys.readouterr()
    data = _found(capsys, "diff", old, new, status=1)
    assert data["counts"]["slower"] == 1
    assert "Mann and Whitney" in data["test"]
    assert main(["db", "diff", old]) == 2
    assert "expected two logs, or one and --versions X Y" in capsys.readouterr().err


def test_diff_of_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = _timed(tmp_path / "log", 1e-3, version="aaaa")
    _timed(tmp_path / "log", 2e-3, version="bbbb")
    assert main(["db", "diff", both, "--versions", "aaaa", "bbbb"]) == 1
    assert main(["db", "diff", both, "--versions", "bbbb", "aaaa"]) == 0
    capsys.readouterr()
    assert main(["db", "diff", both, "--versions", "cccc", "aaaa"]) == 2
    assert "--versions: expected a version or a commit that measured something, got 'cccc'" in capsys.readouterr().err


def test_filters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = _timed(tmp_path / "log", 1e-3, "resnet18.onnx")
    _timed(tmp_path / "log", 2e-3, "vgg16.onnx")
    assert "vgg16.onnx abababab" in _said(capsys, "show", log)
    assert "2000.0" in _said(capsys, "show", log, "--model", "vgg*")
    assert _found(capsys, "show", log, "--model", "vgg*")["workloads"][0]["records"] == 1
    assert main(["db", "show", log, "--model", "bert*"]) == 2
    assert "none of its measurements is of what was asked for; 2 of 2 lines say which" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["db", "show", log, "--since", "soon"])
    assert "expected a date like 2026-11-24" in capsys.readouterr().err
    some = str(tmp_path / "some")
    assert _said(capsys, "merge", log, "-o", some, "--model", "vgg*").startswith("1 lines added")
    _timed(Path(some), 3e-3, "vgg16.onnx")
    assert _said(capsys, "prune", some, "--cpu", "skylake*").startswith("removed 0 of 2 measurements")


def test_answers_for_programs(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = _found(capsys, "show", log)
    assert (shown["action"], shown["workloads"][0]["failures"]) == ("show", {"wrong_result": 1})
    (top,) = _found(capsys, "top", log, "-k", "2", "--trace")["workloads"]
    assert [c["seconds"] for c in top["candidates"]] == [1e-3, 2e-3]
    assert any(line.startswith("split(") for line in top["candidates"][0]["trace"])
    assert _found(capsys, "top", log)["workloads"][0]["candidates"][0]["trace"] is None
    checked = _found(capsys, "check", log)
    assert (checked["measurements"], checked["do_not_replay"], checked["skipped"]) == (3, [], [])
    merged = _found(capsys, "merge", log, "-o", str(tmp_path / "m"))
    assert (merged["added"], merged["dry_run"], len(merged["better"])) == (5, False, 1)
    pruned = _found(capsys, "prune", log)
    assert pruned["removed"] == 1
    assert pruned["bytes_after"] < pruned["bytes_before"]


def test_export_and_what_it_does_not_replace(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, document = tmp_path / "t.csv", tmp_path / "d.json"
    for place in (table, document):
        for _ in range(2):
            assert _said(capsys, "export", log, "-o", str(place)).startswith(f"{place}: 5 lines of {log} as ")
    assert table.read_text().count("\n") == 5
    assert len(json.loads(document.read_text())["lines"]) == 5
    assert json.loads(_said(capsys, "export", log)) == json.loads(document.read_text())
    assert main(["db", "export", log, "-o", log]) == 2
    assert "expected an exported log or no file, found another kind of file" in capsys.readouterr().err


def test_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default of a kernel for this machine, and a record that does not replay."""
    here = detect_host().with_threads(1)
    good = record(dense(8, 16, 8), candidates(dense(8, 16, 8), here, 1)[0], 1e-6, target=here)
    log = JSONDatabase(tmp_path / "log")
    log.append(good)
    log.append(record(dense(), candidates(dense(), HERE, 1)[0], 1e-3, target=dataclasses.replace(here, cpu="other")))
    out = _said(capsys, "verify", str(log.path), "--dry-run")
    assert "not checked: for other; this is" in out
    assert out.endswith("2 winners: 2 not checked\n")
    assert _said(capsys, "verify", str(log.path), "--rounds", "2").endswith("1 not checked, 1 holds\n")
    steps = ({"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}},)
    log.append(dataclasses.replace(good, steps=steps, candidate="broken", seconds=1e-9))
    found = _found(capsys, "verify", str(log.path), status=1)
    assert found["counts"] == {"not checked": 1, "does not replay": 1}


def test_import_of_what_was_exported(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document, back = str(tmp_path / "d.json"), str(tmp_path / "back.jsonl")
    _said(capsys, "export", log, "-o", document)
    assert (
        _said(capsys, "import", document, "-o", back, "--dry-run")
        == f"5 lines would be added to {back}; 0 were there\n"
    )
    assert not Path(back).exists()
    assert _said(capsys, "import", document, "-o", back) == f"5 lines added to {back}; 0 were there\n"
    assert _said(capsys, "import", document, "-o", back) == f"0 lines added to {back}; 5 were there\n"
    assert list(map(to_line, JSONDatabase(back).lines())) == list(map(to_line, JSONDatabase(log).lines()))
    assert main(["db", "import", log, "-o", back]) == 2
    assert "import: expected" in capsys.readouterr().err


def test_import_of_records_of_tvm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is taken, and it says why, by how often."""
    log = tmp_path / "autotvm.log"
    log.write_text(autotvm() + "\n")
    out = tmp_path / "out.jsonl"
    assert main(["db", "import", str(metaschedule(tmp_path)), str(log), "-o", str(out)]) == 1
    said = capsys.readouterr().out
    assert f"none of these 4 records was taken:\n  4: {NO_TRACE}\n  3: {NO_TIME}\n  1: {FAILED}\n" in said
    assert "conv2d_NCHWc.x86" in said
    assert "docs/logs.md" not in said, "no tile is known"
    assert not out.exists()
    tiled = [["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, 7]]]
    (tmp_path / "tiled.log").write_text(autotvm(config={"entity": tiled}) + "\n")
    assert main(["db", "import", str(tmp_path / "tiled.log"), "-o", str(out)]) == 1
    said = capsys.readouterr().out
    assert "7 x 32" in said
    assert said.endswith(
        "a tile (rows x columns of results in registers) can be tried here by hand: docs/logs.md shows how\n"
    )
    assert _found(capsys, "import", str(log), "-o", str(out), status=1)["foreign"][0]["records"] == 1
    assert main(["db", "import", str(tmp_path / "empty"), "-o", str(out)]) == 2
