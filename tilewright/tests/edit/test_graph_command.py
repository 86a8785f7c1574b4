"""``tilewright graph``: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.tests.api.models import perceptron, saved


@pytest.fixture
def models(tmp_path: Path) -> dict[str, str]:
    """A model, one with other weights, and one with other names only."""
    renamed = perceptron()
    for n in renamed.graph.node:
        n.name += "_new"
    return {
        "old": saved(perceptron(), tmp_path, "old"),
        "new": saved(perceptron(seed=1), tmp_path, "new"),
        "renamed": saved(renamed, tmp_path, "renamed"),
    }


def test_equal(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "diff", models["old"], models["old"]]) == 0
    assert capsys.readouterr().out == "no differences (4 nodes)\n"


def test_different(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "diff", models["old"], models["new"]]) == 1
    out = capsys.readouterr().out
    assert out.startswith("3 differences (4 nodes)\nchanged constants (3)\n  w: 2,048 of 2,048 elements differ")


def test_names(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "diff", models["old"], models["renamed"]]) == 0
    assert capsys.readouterr().out == "no differences (4 nodes, 4 names differ)\n"
    assert main(["graph", "diff", models["old"], models["renamed"], "--names"]) == 1
    assert "  node hidden -> hidden_new\n" in capsys.readouterr().out
    assert main(["graph", "diff", models["old"], models["old"], "--names"]) == 0


def test_json(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "diff", models["old"], models["new"], "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in data["constants"]] == ["w", "b", "v"]
    assert data["constants"][0]["readers"] == [{"name": "hidden", "op": "MatMul", "domain": ""}]
    assert main(["graph", "stats", models["old"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 4


def test_stats(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "stats", models["old"]]) == 0
    assert "multiply-adds: batch*2688\n" in capsys.readouterr().out


def test_stats_of_given_sizes(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "stats", models["old"], "--shapes", "batch=2"]) == 0
    assert "multiply-adds: 5,376\n" in capsys.readouterr().out


def test_a_file_that_is_no_model(models: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"no model")
    assert main(["graph", "diff", models["old"], str(bad)]) == 2
    assert main(["graph", "stats", str(tmp_path / "missing.onnx")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_without_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["graph"])
    assert "ACTION" in capsys.readouterr().err


def test_models_of_unlike_opsets_are_compared_in_the_newest_terms(tmp_path: Path) -> None:
    old = perceptron()
    old.opset_import[0].version = 13
    files = saved(old, tmp_path, "old"), saved(perceptron(), tmp_path, "new")
    assert main(["graph", "diff", *files]) == 0
