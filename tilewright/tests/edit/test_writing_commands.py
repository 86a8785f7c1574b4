"""``tilewright graph extract|rename|set-shape|merge``: what they write and print, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tilewright.cli import main
from tilewright.edit.loading import load_graph
from tilewright.tests.api.models import perceptron, saved, two_inputs
from tilewright.tests.edit.by_numbers import fed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(perceptron(), tmp_path, "model")
    saved(two_inputs(), tmp_path, "two")
    return tmp_path


def done(line: str) -> int:
    return main(["graph", *line.split()])


def test_extract(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert done("extract model.onnx --inputs h --outputs r hb -o part.onnx") == 0
    size = (folder / "part.onnx").stat().st_size
    assert capsys.readouterr().out == (
        f"part.onnx: 2 nodes, {size:,} bytes\n"
        "input h: float32[batch, 64]\noutput r: float32[batch, 64]\noutput hb: float32[batch, 64]\n"
    )
    onnx.checker.check_model(folder / "part.onnx", full_check=True)
    whole = load_graph("model.onnx")
    feed = fed(whole)
    h = whole.run(feed, "h")
    np.testing.assert_array_equal(load_graph("part.onnx").run(h)["r"], whole.run(feed, "r")["r"])


def test_rename(folder: Path) -> None:
    assert (
        done("rename model.onnx --values x=image y=logits --nodes relu=rectify --dims batch=n --name net -o out.onnx")
        == 0
    )
    g = load_graph("out.onnx")
    assert (g.name, g.inputs.names, g.outputs.names, g.dims) == ("net", ("image",), ("logits",), ("n",))
    assert g.nodes["rectify"].op == "Relu"


def test_set_shape(folder: Path) -> None:
    assert done("set-shape model.onnx batch=4 -o fixed.onnx") == 0
    assert str(load_graph("fixed.onnx").outputs["y"]) == "y: float32[4, 10]"
    assert done("set-shape fixed.onnx x=rows,32 -o free.onnx --opset 21") == 0
    g = load_graph("free.onnx")
    assert (str(g.outputs["y"]), g.opset) == ("y: float32[rows, 10]", 21)
    assert done("set-shape fixed.onnx --free-batch batch -o free.onnx") == 0
    assert str(load_graph("free.onnx").outputs["y"]) == "y: float32[batch, 10]"
    assert done("set-shape model.onnx x=?,32 -o free.onnx") == 0
    assert load_graph("free.onnx").to_onnx().graph.input[0].type.tensor_type.shape.dim[0].WhichOneof("value") is None


def test_merge(folder: Path) -> None:
    assert done("merge model.onnx two.onnx --connect y=a y=b -o both.onnx --keep y") == 0
    g = load_graph("both.onnx")
    assert (g.inputs.names, g.outputs.names) == (("x",), ("y", "total", "rows"))
    feed = fed(g)
    np.testing.assert_array_equal(g.run(feed)["total"], 2 * load_graph("model.onnx").run(feed)["y"])
    assert done("set-shape model.onnx x=n,32 -o other.onnx") == 0
    assert done("rename other.onnx --values x=y y=z -o other.onnx") == 0


def test_external_data(folder: Path) -> None:
    assert done("rename model.onnx --name net -o out.onnx --external-data") == 0
    assert (folder / "out.onnx.data").stat().st_size >= 32 * 64 * 4
    feed = fed(load_graph("model.onnx"))
    np.testing.assert_array_equal(load_graph("out.onnx").run(feed)["y"], load_graph("model.onnx").run(feed)["y"])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("extract model.onnx --inputs r --outputs y h", "the cut leaves inputs undefined: 'x', read by 'hidden'"),
        ("extract model.onnx --outputs yy", "name of a value of graph 'g', got 'yy'; did you mean 'y'"),
        ("rename model.onnx --values xx=y", "name of a value of graph 'g', got 'xx'; did you mean 'x'"),
        ("rename model.onnx --nodes rel=y", "name of a node of graph 'g', got 'rel'; did you mean 'relu'"),
        ("rename model.onnx --dims bach=n", "a dimension of an input (batch), got 'bach'; did you mean 'batch'"),
        ("rename model.onnx", "expected --values, --nodes, --dims or --name, got none"),
        ("set-shape model.onnx bach=4", "an input or a dimension (batch, x), got 'bach'; did you mean 'batch'"),
        ("set-shape model.onnx batch=4,5", "dimension 'batch': expected one number, got 2 sizes"),
        ("set-shape model.onnx x=4", "set_shape 'x': expected 2 sizes, as of float32[batch, 32], got 1"),
        ("set-shape model.onnx", "expected NAME=SIZES or --free-batch, got neither"),
        ("merge model.onnx two.onnx", "expected connections, or as many outputs as inputs, got ['y'] and"),
        ("merge model.onnx two.onnx --connect y=c", "an input of the second model (a, b), got 'c'"),
        ("rename model.onnx --name n --opset 3", "opset: expected a version from 7 to"),
        ("rename missing.onnx --name n", "missing.onnx"),
    ],
)  # fmt: skip
def test_refused(line: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert done(f"{line} -o o.onnx") == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (folder / "o.onnx").exists()


def test_what_is_no_model_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    for line in ("extract model.onnx --outputs r", "rename model.onnx --name n", "set-shape model.onnx batch=1",
                 "merge model.onnx two.onnx --connect y=a"):  # fmt: skip
        assert done(f"{line} -o notes.txt") == 2
        assert (
            "notes.txt: expected a model that tilewright wrote or no file, found another kind"
            in capsys.readouterr().err
        )
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("line", ["rename model.onnx --values x", "set-shape model.onnx x=", "extract model.onnx"])
def test_wrong_arguments(line: str, folder: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        done(line)
