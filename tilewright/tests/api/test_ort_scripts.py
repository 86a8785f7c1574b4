"""Scripts for onnxruntime run with one line changed, and find the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.tests.api.models import perceptron
from tilewright.tests.api.ort_scripts import SCRIPTS

IMPORT = re.compile(r"^import onnxruntime as (\w+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scripts")
    model = perceptron()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10]))
    model.producer_name, model.domain, model.model_version, model.doc_string = "test", "org.example", 3, "a network"
    helper.set_model_props(model, {"classes": "ten"})
    onnx.save(model, place / "model.onnx")
    onnx.save(perceptron(), place / "large.onnx", save_as_external_data=True, location="large.data", size_threshold=0)
    onnx.save(_half(perceptron()), place / "half.onnx")
    onnx.save(_words(), place / "words.onnx")
    onnx.save(_pairs(), place / "pairs.onnx")
    onnx.save(_image(), place / "image.onnx")
    return place


def _words() -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.STRING, ["n"]) for n in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _half(model: onnx.ModelProto) -> onnx.ModelProto:
    for t in model.graph.initializer:
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float16), t.name))
    for v in (*model.graph.input, *model.graph.output):
        v.type.tensor_type.elem_type = TensorProto.FLOAT16
    del model.graph.value_info[:]
    return model


def _pairs() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("SequenceConstruct", ["x", "n"], ["s"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3])],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _image() -> onnx.ModelProto:
    w = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w_"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, "h", "w_"])],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(text: str) -> Any:
    space: dict[str, Any] = {}
    exec(compile(text, "script", "exec"), space)
    return space["result"]


def require_same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, np.ndarray):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        tolerance = 5e-3 if theirs.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(mine.astype(float), theirs.astype(float), rtol=tolerance, atol=tolerance)
    elif isinstance(theirs, list | tuple):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs, strict=True):
            require_same(a, b)
    else:
        assert mine == theirs


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_find_the_same(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(folder)
    changed, count = IMPORT.subn(r"import tilewright as \1", SCRIPTS[name])
    assert count == 1
    theirs = run(SCRIPTS[name])
    (folder / "optimized.onnx").unlink(missing_ok=True)
    require_same(run(changed), theirs)


def test_there_are_twenty() -> None:
    assert len(SCRIPTS) >= 20
