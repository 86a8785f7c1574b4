"""Builds that use records: tuning with a table of times, coverage, the gate, and logs that went through a lot."""

from __future__ import annotations

import multiprocessing
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import extract_tasks, make_tasks, tune_model
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.record import Record, RecordWarning, Verdict
from tilewright.core.errors import CoverageError, InputError, TargetError, TilewrightError
from tilewright.kernels.build import Kernel
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target
from tilewright.runtime.coverage import Status
from tilewright.tests.api.models import convolution
from tilewright.tests.autotune.records.log_helper import mlp_model

QUICK = TuneOptions(time_budget_s=None, max_trials=24, check_network=False, threads=2)


def _by_key(candidate) -> MeasureResult:  # type: ignore[no-untyped-def]
    """Times that look random and are the same everywhere; some candidates fail."""
    value = int(candidate.key[:6], 16) / float(1 << 24)
    if value < 0.1:
        return Failed(FailureKind.WRONG_RESULT, "test")
    return Ok(1e-4 + value, (1e-4 + value,), 0.0, 0.0)


def _tuned(path: Path) -> tuple[JSONDatabase, TableMeasurer]:
    measurer = TableMeasurer(_by_key)
    tilewright.tune(mlp_model(), database=path, measurer=measurer, options=QUICK)
    return JSONDatabase(path), measurer


def _kernels(database: object, **more: int) -> Mapping[str, Kernel]:
    return tilewright.compile(mlp_model(**more), threads=2, database=database, stop_after="codegen")


def _symbols(kernels: Mapping[str, Kernel]) -> dict[str, str]:
    return {name: k.symbol for name, k in kernels.items()}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tuned") / "log.jsonl"
    _tuned(path)
    return path


@pytest.fixture(scope="module")
def symbols(log: Path) -> dict[str, str]:
    return _symbols(_kernels(log))


def test_a_tuned_model_hits_everywhere_and_computes_the_same(log: Path, symbols: dict[str, str]) -> None:
    plain = tilewright.compile(mlp_model(), threads=2)
    tuned = tilewright.compile(mlp_model(), threads=2, database=log, require_tuned=1.0)
    assert {r.status for r in tuned.coverage().rows} == {Status.HIT}
    assert _symbols(_kernels(MemoryDatabase())) != symbols
    x = np.random.default_rng(3).standard_normal((24, 32)).astype(np.float32)
    np.testing.assert_allclose(tuned.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-4, atol=1e-6)


def test_the_block_is_the_default_database(log: Path, symbols: dict[str, str]) -> None:
    with JSONDatabase(log):
        assert _symbols(_kernels(None)) == symbols
    assert _symbols(_kernels(None)) != symbols


def test_the_coverage_table(log: Path) -> None:
    model = tilewright.compile(mlp_model(), threads=2, database=log)
    text = str(model.coverage())
    head, _, *rows, last = text.splitlines()
    assert re.split(r"\s{2,}", head) == ["kernel", "%time", "calls", "status", "reason"]
    assert all(re.search(r" hit +(\d+\.\d us when tuned|the default is the best found, .*)$", r) for r in rows)
    assert re.fullmatch(
        r"(\d+) kernels: \1 hits \(100\.0 % of run time\), 0 near misses \(0\.0 % of run time\), "
        r"0 misses \(0\.0 % of run time\); run time estimated from records and arithmetic",
        last,
    )
    measured = model.coverage({"x": np.zeros((24, 32), np.float32)})
    assert measured.source == "measured"
    assert text in model.explain()
    assert sum(r.share for r in measured.rows) == pytest.approx(1.0)


def test_other_sizes_are_near_misses_with_the_reason(log: Path) -> None:
    model = tilewright.compile(mlp_model(rows=25), threads=2, database=log, near_misses="replay")
    rows = model.coverage().rows
    assert {r.status for r in rows} == {Status.NEAR_MISS}
    assert all(r.reason.startswith("tuned for other sizes (24 -> 25") for r in rows)
    x = np.random.default_rng(3).standard_normal((25, 32)).astype(np.float32)
    plain = tilewright.compile(mlp_model(rows=25), threads=2)
    np.testing.assert_allclose(model.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-4, atol=1e-6)


def test_near_misses_are_timed_against_the_default(log: Path) -> None:
    model = tilewright.compile(mlp_model(rows=25), threads=2, database=log)
    reasons = [r.reason for r in model.coverage().rows]
    said = r"(replayed: [01]\.\d\dx|took \d+\.\d\dx) the time of the default|the default here$"
    assert all(re.search(said, r) for r in reasons), reasons


def test_sizes_that_no_memory_has_are_not_timed() -> None:
    """A damaged record, or one of a far larger machine."""
    model = mlp_model(rows="n")  # type: ignore[arg-type]
    database = MemoryDatabase()
    tilewright.tune(
        model, database=database, measurer=TableMeasurer(_by_key), options=replace(QUICK, sizes={"n": 24}, threads=4)
    )
    huge = MemoryDatabase([replace(r, dims=dict.fromkeys(r.dims, 1 << 50)) for r in database.records()])
    coverage = str(tilewright.compile(model, threads=2, database=huge).coverage())
    assert "cannot be timed at its sizes, which take" in coverage


def test_near_misses_can_be_ignored(log: Path) -> None:
    kernels = tilewright.compile(
        mlp_model(rows=25), threads=2, database=log, near_misses="ignore", stop_after="codegen"
    )
    assert _symbols(kernels) == _symbols(_kernels(MemoryDatabase(), rows=25))
    with pytest.raises(InputError, match="near_misses: expected one of measure, replay, ignore, got 'maybe'"):
        tilewright.compile(mlp_model(), database=log, near_misses="maybe")  # type: ignore[call-overload]


def test_other_threads_are_near_misses(log: Path) -> None:
    model = tilewright.compile(mlp_model(), threads=1, database=log, near_misses="replay")
    assert {r.status for r in model.coverage().rows} == {Status.NEAR_MISS}
    assert "tuned on another machine (2 -> 1 threads)" in str(model.coverage())


def test_a_foreign_target_misses_with_the_reason(log: Path) -> None:
    with pytest.raises(CoverageError, match=r"tuned only for .*; this is x86_64 128-bit x16"):
        tilewright.compile(mlp_model(), target="llvm -mcpu=x86-64", threads=2, database=log, require_tuned=0.5)


def test_the_gate(log: Path) -> None:
    with pytest.raises(CoverageError) as e:
        tilewright.compile(mlp_model(rows=25), threads=2, database=log, near_misses="replay", require_tuned=0.95)
    text = str(e.value)
    assert text.startswith("require_tuned: expected 95 % of the run time in tuned kernels, got 0.0 %\nkernel ")
    assert "near miss" in text
    assert isinstance(e.value, TilewrightError)
    with pytest.raises(CoverageError, match="no database was given"):
        tilewright.compile(mlp_model(), require_tuned=0.5)
    with pytest.raises(InputError, match="require_tuned: expected a finite number from 0 to 1, got 95"):
        tilewright.compile(mlp_model(), database=log, require_tuned=95)


# -- logs that went through a lot ----------------------------------------------------------------------------------
def test_copied_shuffled_merged(log: Path, symbols: dict[str, str], tmp_path: Path) -> None:
    lines = log.read_text().splitlines(keepends=True)
    for seed in range(3):
        random.Random(seed).shuffle(lines)
        (tmp_path / "copy").write_text("".join(lines) + "".join(lines[:5]))
        assert _symbols(_kernels(tmp_path / "copy")) == symbols
    (tmp_path / "a").write_text("".join(lines[: len(lines) // 2]))
    (tmp_path / "b").write_text("".join(lines[len(lines) // 3 :]))
    assert _symbols(_kernels([tmp_path / "a", tmp_path / "b"])) == symbols
    merged = JSONDatabase(tmp_path / "merged")
    merged.merge(JSONDatabase(tmp_path / "b"))
    merged.merge(JSONDatabase(tmp_path / "a"))
    assert _symbols(_kernels(merged)) == symbols
    merged.prune(1)
    assert _symbols(_kernels(merged)) == symbols


def test_cut_in_the_middle_of_a_line(log: Path, symbols: dict[str, str], tmp_path: Path) -> None:
    """A torn copy of some line at the end, and then appends."""
    text = log.read_text()
    path = tmp_path / "cut"
    path.write_text(text + text.splitlines()[0][:300])
    with pytest.warns(RecordWarning, match="cut off in the middle; skipped"):
        assert _symbols(_kernels(path)) == symbols
    JSONDatabase(path).append(JSONDatabase(log).records()[0])
    with pytest.warns(RecordWarning, match="not JSON"):
        assert _symbols(_kernels(path)) == symbols


def _append_part(source: Path, path: Path, part: int, start: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    database = JSONDatabase(path)
    for x in list(JSONDatabase(source).lines())[part::2]:
        database.append(x)


def test_written_by_two_processes_at_once(log: Path, symbols: dict[str, str], tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    start = context.Event()
    writers = [context.Process(target=_append_part, args=(log, tmp_path / "both", part, start)) for part in range(2)]
    for p in writers:
        p.start()
    start.set()
    for p in writers:
        p.join(60)
        assert p.exitcode == 0
    assert len(JSONDatabase(tmp_path / "both")) == len(JSONDatabase(log))
    assert _symbols(_kernels(tmp_path / "both")) == symbols


def test_the_same_command_goes_on_where_it_stopped(log: Path, tmp_path: Path) -> None:
    """What is in the log is not measured again, wherever it was cut."""
    lines = log.read_text().splitlines(keepends=True)
    path = tmp_path / "resumed"
    path.write_text("".join(lines[:20]))
    first = JSONDatabase(path).records()
    assert len(first) >= 8
    before = {(r.workload.hash, r.candidate) for r in first}
    database, measurer = _tuned(path)
    after = [(r.workload.hash, r.candidate) for r in database.records()[len(first) :] if r.tuner != ""]
    assert not before.intersection((w, c) for w, c in after if c in measurer.asked)


def test_same_seed_same_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def equally_heavy(lowered: LoweredModel, target: Target, env: Mapping[str, int], *_: object) -> tuple[Task, ...]:
        return make_tasks(lowered, target, env, dict.fromkeys(lowered.funcs, 1.0))  # measured weights may differ

    monkeypatch.setattr(tilewright.autotune.network.tune_network, "make_tasks", equally_heavy)
    asked = []
    for name in ("a", "b"):
        _, measurer = _tuned(tmp_path / name)
        asked.append(measurer.asked)
    assert asked[0] == asked[1]


# -- the model as a whole ------------------------------------------------------------------------------------------
def test_tasks_are_merged_and_weighted() -> None:
    tasks = extract_tasks(mlp_model(), threads=2)
    assert [t.weight for t in tasks] == sorted((t.weight for t in tasks), reverse=True)
    assert sum(t.weight for t in tasks) == pytest.approx(1.0)
    assert len({t.workload for t in tasks}) == len(tasks)


def test_tasks_and_records_say_by_what_a_node_is_computed() -> None:
    database = MemoryDatabase()
    options = TuneOptions(time_budget_s=None, max_trials=1, threads=1, check_network=False)
    tune_model(convolution(12), database, measurer=TableMeasurer(lambda c: 1.0), options=options)
    tasks = extract_tasks(convolution(12), threads=1)
    choices = tilewright.compile(convolution(12), threads=1).account()["implementations"]
    named = {t.implementation for t in tasks if t.implementation}
    assert named
    assert named <= {c["name"] for x in choices for c in x["candidates"]}
    (r,) = database.records()
    assert r.implementation == next(t.implementation for t in tasks if t.workload == r.workload.hash)


def test_records_that_do_not_help_in_the_network_are_not_used() -> None:
    """The table lies: it says that odd candidates are fast. In the network the default stays, if it is not slower."""
    database = MemoryDatabase()
    options = TuneOptions(time_budget_s=None, max_trials=24, threads=1)
    done = tune_model(mlp_model(64, 256), database, measurer=TableMeasurer(_by_key), options=options)
    assert done.network is not None
    assert done.network.network.ratio <= 1.01
    against = {x.workload for x in database.lines() if isinstance(x, Verdict) and not x.helps}
    assert len(against) >= len(done.network.dropped)
    model = tilewright.compile(mlp_model(64, 256), threads=1, database=database, require_tuned=1.0)
    kept = [r for r in model.coverage().rows if r.reason.startswith("default kept: in this network")]
    assert len(kept) == len(done.network.dropped)
    assert "trials in" in done.summary()


def test_symbolic_sizes_are_asked_for() -> None:
    model = mlp_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    with pytest.raises(InputError, match=r"sizes: expected a size for batch; give sizes=\{'batch': 1\} or a feed"):
        extract_tasks(model)
    tasks = extract_tasks(model, sizes={"batch": 7})
    assert {n for t in tasks for n in t.dims.values()} == {7}


def test_wrong_options() -> None:
    with pytest.raises(InputError, match="tune: unknown option budget; expected target"):
        tilewright.tune(mlp_model(), budget=3)
    with pytest.raises(TargetError, match="tune: built for aarch64-unknown-linux-gnu, this machine is"):
        tilewright.tune(mlp_model(), target="llvm -mtriple=aarch64-linux-gnu")


def test_records_say_who_measured_them(log: Path) -> None:
    records = JSONDatabase(log).records()
    assert {r.tuner for r in records} == {"annealing"}
    assert {r.seed for r in records} == {0}
    assert all(isinstance(r, Record) and r.workload.text.startswith("def f(") for r in records)
