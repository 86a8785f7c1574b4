"""What may be given as a database, and what is said of paths where there is none."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import (
    JSONDatabase,
    MemoryDatabase,
    UnionDatabase,
    database_of_build,
    open_database,
)
from tilewright.autotune.records.record import RecordWarning
from tilewright.cli import main
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import mlp_model
from tilewright.tests.autotune.records.test_log_versions import SAMPLE


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return Path(shutil.copy(SAMPLE, tmp_path / "model.jsonl"))


def test_a_missing_log_and_its_neighbours(log: Path) -> None:
    with pytest.raises(InputError) as raised:
        open_database(log.with_name("modle.jsonl"))
    assert str(raised.value) == (
        f"{log.with_name('modle.jsonl')}: expected a tuning log, found no such file; did you mean {log}?"
    )
    for path in (log.with_name("something else"), log.parent / "no folder" / "model.jsonl"):
        with pytest.raises(InputError, match=r"found no such file$"):
            open_database(path)


def test_a_directory(log: Path) -> None:
    with pytest.raises(InputError, match=r"found a directory without tuning.jsonl; did you mean .*model.jsonl\?$"):
        open_database(log.parent)
    log.rename(log.with_name("tuning.jsonl"))
    assert len(open_database(log.parent)) == 4


def test_several_logs_must_all_be_there(log: Path) -> None:
    with pytest.raises(InputError, match="found no such file"):
        open_database([log, log.with_name("none")])
    both = open_database([log, MemoryDatabase()])
    assert isinstance(both, UnionDatabase)
    assert len(both) == 4
    assert open_database([log]).lines  # one alone is itself
    assert isinstance(open_database((str(log),)), JSONDatabase)


@pytest.mark.parametrize("source", [7, b"model.jsonl", {"a": 1}, object(), [7], [b"x"]])
def test_what_is_no_database(source: object) -> None:
    with pytest.raises(InputError, match="database: expected a database or paths of logs, got"):
        open_database(source)  # type: ignore[call-overload]


def test_a_build_wants_its_log(log: Path) -> None:
    model = mlp_model(4, 8)
    for path in (str(log.with_name("typo.jsonl")), log.parent, [log, log.with_name("typo.jsonl")]):
        with pytest.raises(InputError, match="expected a tuning log, found"):
            tilewright.compile(model, database=path)
    (log.parent / "utf16.jsonl").write_text(SAMPLE.read_text(), encoding="utf-16")
    with pytest.raises(InputError, match="found UTF-16 text"):
        tilewright.compile(model, database=log.parent / "utf16.jsonl")
    assert "3 misses" in str(tilewright.compile(model, database=log).coverage())


def test_a_build_says_that_a_database_has_no_file_yet(tmp_path: Path) -> None:
    """It may get one later, so it is no error; tuning says nothing."""
    later = JSONDatabase(tmp_path / "later.jsonl")
    uses: list[Callable[[], object]] = [
        lambda: database_of_build(later), lambda: database_of_build(UnionDatabase(MemoryDatabase(), later))
    ]  # fmt: skip
    for use in uses:
        with pytest.warns(RecordWarning, match="later.jsonl: no such file yet, so there are no records"):
            use()
    with later, pytest.warns(RecordWarning, match="no such file yet"):
        tilewright.compile(mlp_model(4, 8))
    with later, warnings.catch_warnings():
        warnings.simplefilter("error")
        tilewright.tune(
            mlp_model(4, 8), measurer=TableMeasurer(lambda c: 1.0), time_budget_s=None, max_trials=2,
            check_network=False,
        )  # fmt: skip
        assert database_of_build(None) is later
    assert len(later) == 2


def test_tuning_makes_the_log_and_reads_others(log: Path) -> None:
    new = log.with_name("new.jsonl")
    tilewright.tune(
        mlp_model(4, 8), database=[new, log], measurer=TableMeasurer(lambda c: 1.0), time_budget_s=None, max_trials=2,
        check_network=False,
    )  # fmt: skip
    assert len(JSONDatabase(new)) == 2
    assert log.read_bytes() == SAMPLE.read_bytes()
    with pytest.raises(InputError, match="found no such file"):
        tilewright.tune(mlp_model(4, 8), database=[new, log.with_name("none")], time_budget_s=None, max_trials=1)


@pytest.mark.parametrize(
    "words",
    [["db", "show"], ["db", "top"], ["db", "prune"], ["db", "explain"], ["report"], ["db", "merge", "-o", "OUT"]],
)
def test_commands_want_the_log(words: list[str], log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = log.with_name("out.jsonl")
    given = [str(out) if w == "OUT" else w for w in words]
    more = ["model.onnx"] if words[-1] == "explain" else [str(log)] if words[1:2] == ["merge"] else []
    assert main([*given, str(log.with_name("modl.jsonl")), *more]) == 2
    assert f"found no such file; did you mean {log}?" in capsys.readouterr().err
    assert sorted(p.name for p in log.parent.iterdir()) == ["model.jsonl"], "nothing was made"
