"""``tilewright simplify``: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli import main
from tilewright.core.errors import InputError, MismatchError, ModelError, UnsupportedError
from tilewright.simplification.options import SimplifyKeywords, SimplifyOptions
from tilewright.tests.simplification.models import classifier


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(classifier(), str(path))
    return str(path)


def test_what_it_prints_and_writes(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "y.onnx"
    assert main(["simplify", model, "-o", str(out)]) == 0
    text = capsys.readouterr().out
    assert "BatchNormalization       1      0      -1" in text
    assert "all                     12      5" in text
    assert "checked against the original in " in text
    assert " for batch=2, height=7, width=9; batch=1, height=16, width=24: largest difference " in text
    assert "12 -> 5 nodes, " in text
    assert len(onnx.load(str(out)).graph.node) == 5


def test_the_result_may_replace_one_of_ours(model: str, tmp_path: Path) -> None:
    out = str(tmp_path / "y.onnx")
    for source in (model, model, out):
        assert main(["simplify", source, "-o", out, "--no-check"]) == 0
        assert len(onnx.load(out).graph.node) == 5


def test_json(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simplify", model, "-o", str(tmp_path / "y.onnx"), "--json", "--seed", "3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["after"] == {"Conv": 1, "Gemm": 1, "GlobalAveragePool": 1, "Relu": 1, "Reshape": 1}
    assert found["fired"]["batchnorm_into_conv"] == 1
    assert len(found["checked"]["cases"]) == 2
    assert found["opset"] == 17


def test_options_reach_the_simplifier(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "y.onnx"
    arrays = tmp_path / "x.npz"
    np.savez(arrays, x=np.ones((1, 3, 8, 8), np.float32))
    words = ["--overwrite-input-shape", "x=1x3x8x8", "--disable-pass", "batchnorm_into_conv", "--opset", "18", "-v"]
    words += ["--inputs", str(arrays), "--external-data", "--drop-unused-inputs", "--growth", "0"]
    assert main(["simplify", model, "-o", str(out), *words]) == 0
    text = capsys.readouterr().out
    assert "fired matmul_add_as_gemm x1: bias" in text
    assert " for the inputs given: " in text
    made = onnx.load(str(out))
    assert "BatchNormalization" in [n.op_type for n in made.graph.node]
    assert made.opset_import[0].version == 18
    assert [d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim] == [1, 3, 8, 8]
    assert (tmp_path / "y.onnx.data").exists()


def _error(capsys: pytest.CaptureFixture[str], *words: str, status: int = 2) -> str:
    assert main(["simplify", *words]) == status
    err = capsys.readouterr().err.strip()
    assert "\n" not in err
    return err


def test_bad_input(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "y.onnx")
    text = tmp_path / "notes.txt"
    text.write_text("mine")
    assert "not an ONNX model" in _error(capsys, str(text), "-o", out)
    assert "found another kind of file; it stays as it is" in _error(capsys, model, "-o", str(text))
    assert text.read_text() == "mine"
    shape = "--overwrite-input-shape"
    assert "no input 'xs', inputs are ['x']; did you mean 'x'?" in _error(capsys, model, "-o", out, shape, "xs=1x2")
    assert "no dimension 'hight'" in _error(capsys, model, "-o", out, shape, "hight=3")
    assert "expected 4 dims, got [1, 3]" in _error(capsys, model, "-o", out, shape, "x=1x3")
    wrong = _error(capsys, model, "-o", out, shape, "x=1x4x8x8")
    assert "node 'conv'" in wrong
    assert "did you mean 'fold_constants'" in _error(capsys, model, "-o", out, "--disable-pass", "fold_constant")
    assert "no output 'z'; there are y" in _error(capsys, model, "-o", out, "--outputs", "z")
    assert "outputs: expected at least one that stays" in _error(capsys, model, "-o", out, "--drop-output", "y")
    assert not Path(out).exists()


def test_a_wrong_result_is_not_written(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> None:
        raise MismatchError("output 'y' differs")

    monkeypatch.setattr("tilewright.commands.models.simplify.simplify_model", wrong)
    out = str(tmp_path / "y.onnx")
    assert _error(capsys, model, "-o", out, status=1) == "tilewright: MismatchError: output 'y' differs"
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "all"}, "level: expected one of basic, extended, got 'all'"),
        ({"check": 1}, "check: expected True or False, got 1"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"check_sizes": 3}, "check_sizes: expected dicts of sizes, got 3"),
        ({"tolerance": -1.0}, "tolerance: expected a finite number of at least 0, got -1"),
        ({"opset": 3}, "opset: expected a version from 7 to"),
        ({"outputs": 3}, "outputs: expected names, got 3"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.simplify(classifier(), **options)


def test_unknown_options_and_keywords_of_type_checkers() -> None:
    with pytest.raises(InputError, match=r"simplify: unknown option levl; .*did you mean 'level'"):
        tilewright.simplify(classifier(), levl="basic")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="simplify: expected SimplifyOptions, got dict"):
        tilewright.simplify(classifier(), {"level": "basic"})  # type: ignore[arg-type]
    assert list(SimplifyKeywords.__annotations__) == list(SimplifyOptions.__dataclass_fields__)


def test_what_an_opset_cannot_say() -> None:
    with pytest.raises(UnsupportedError, match=r"opset 8 cannot say it: .*; the lowest opset that can is"):
        tilewright.simplify(_with_erf(), opset=8)
    with pytest.raises(ModelError, match="not an ONNX model"):
        tilewright.simplify(b"\xffnothing")


def _with_erf() -> onnx.ModelProto:
    model = classifier()
    model.graph.node[3].op_type = "Erf"
    return model
