"""``compile`` and ``coverage``; ``--log`` and ``--require-tuned`` on every command that builds a model."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

import tilewright
from tilewright import TuneOptions
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.cli import COMMANDS, main
from tilewright.inspect.ort import is_installed
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.autotune.records.log_helper import mlp_model
from tilewright.tests.cli.test_json import said
from tilewright.tests.deploy.exported import has_compiler

BUILDING = ("run", "compile", "coverage", "inspect", "bench", "verify", "profile", "explain", "build")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(perceptron(), tmp_path_factory.mktemp("models"), "perceptron")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model, and a log that has a record of each of its kernels."""
    folder = tmp_path_factory.mktemp("tuned")
    model, log = str(folder / "model.onnx"), str(folder / "log.jsonl")
    onnx.save(mlp_model(4, 8), model)
    tilewright.tune(
        mlp_model(4, 8), database=log, measurer=TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16)),
        time_budget_s=None, max_trials=12, check_network=False,
    )  # fmt: skip
    return model, log


def _words(command: str, model: str, folder: Path) -> list[str]:
    more = {
        "bench": ["--runs", "1", "--alone"], "profile": ["--runs", "1"], "inspect": ["--stage", "plan"],
        "build": ["-o", str(folder / "model.so")], "verify": ["--against", "lowered"],
    }  # fmt: skip
    return [command, model, *more.get(command, [])]


def test_every_command_that_builds_is_here(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert ("--require-tuned" in capsys.readouterr().out) == (command in BUILDING), command


@pytest.mark.parametrize("command", BUILDING)
def test_the_share_that_is_asked_for(
    command: str, tuned: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "build" and not has_compiler():
        pytest.skip("needs a C compiler")
    model, log = tuned
    words = _words(command, model, tmp_path)
    assert main([*words, "--log", log, "--require-tuned", "95"]) == 0
    capsys.readouterr()
    assert main([*words, "--require-tuned", "95"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        "tilewright: CoverageError: require_tuned: expected 95 % of the run time in tuned kernels, got 0.0 %\nkernel "
    )


def test_no_percent(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("101", "-1", "most"):
        with pytest.raises(SystemExit, match="2"):
            main(["compile", "m.onnx", "--require-tuned", text])
    assert "argument --require-tuned: expected a finite number of at least 0, got 'most'" in capsys.readouterr().err


def test_compile(dynamic: str, tuned: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", dynamic]) == 0
    out = capsys.readouterr().out
    for text in ("x: float32[batch, 32]", "y: float32[batch, 10]", "arena        depends on batch", "nothing"):
        assert text in out, text
    model, log = tuned
    found = said(capsys, "compile", model, "--tuning-records", log)
    assert found["coverage"]["tuned_share"] == 1.0
    assert found["kernels"] == len(found["coverage"]["kernels"]) == 3
    assert found["written"] == []
    again = said(capsys, "compile", model, "--tuning-records", log)
    assert again["cached_kernels"] == 3
    assert said(capsys, "compile", dynamic, "--shapes", "batch=4")["memory"]["arena_bytes"] > 0


@pytest.mark.skipif(not has_compiler(), reason="needs a C compiler")
def test_compile_writes_artifacts(dynamic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("model.so", "model.twa"):
        found = said(capsys, "compile", dynamic, "-o", str(tmp_path / name))
        assert found["written"][0] == {"path": str(tmp_path / name), "bytes": (tmp_path / name).stat().st_size}
        assert tilewright.load(tmp_path / name).inputs[0].name == "x"


def test_coverage(tuned: tuple[str, str], dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, log = tuned
    assert main(["coverage", model, "--log", log]) == 0
    assert "3 kernels: 3 hits (100.0 % of run time)" in capsys.readouterr().out
    found = said(capsys, "coverage", dynamic, "--measure", "--runs", "2", "--shapes", "batch=3")
    assert found["coverage"]["source"] == "measured"
    assert {k["status"] for k in found["coverage"]["kernels"]} == {"miss"}


def test_all_commands_use_a_log_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What tuning found for a model of symbolic sizes, at given ones, is what they build with at these sizes."""
    model, log = saved(perceptron(), tmp_path, "perceptron"), str(tmp_path / "log.jsonl")
    measurer = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16))
    options = TuneOptions(sizes={"batch": 4}, time_budget_s=None, max_trials=12, check_network=False)
    tilewright.tune(model, options, database=log, measurer=measurer)
    for words in (["run", model, "--log", log], ["coverage", model, "--log", log], ["explain", model, "--log", log],
                  ["db", "explain", log, model]):  # fmt: skip
        assert main([*words, "--shapes", "batch=4"]) == 0
        assert " 0 misses (0.0 % of run time)" in capsys.readouterr().out, words
    assert main(["coverage", model, "--log", log, "--shapes", "batch=4", "--specialize"]) == 0
    assert "tuned in a build for all sizes, at n0 = 4, and this one is for n0 = 4" in capsys.readouterr().out


def test_memory_of_a_profile(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    memory = said(capsys, "profile", dynamic, "--shapes", "batch=3", "--runs", "1")["memory"]
    assert memory["output_bytes"] == 3 * 10 * 4
    assert memory["arena_bytes"] >= memory["peak_live_bytes"] >= 3 * 64 * 4
    assert main(["profile", dynamic, "--shapes", "batch=3", "--runs", "1"]) == 0
    assert "weights rearranged for kernels" in capsys.readouterr().out


def test_bench_with_a_log(tuned: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    model, log = tuned
    assert main(["bench", model, "--log", log, "--runs", "2", "--json", *([] if is_installed() else ["--alone"])]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == model
