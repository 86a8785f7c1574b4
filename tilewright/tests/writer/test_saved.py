"""What ``compile(..., save_optimized=PATH)`` and the command line leave: models that compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli import main
from tilewright.core.errors import InputError
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import import_model, read_model
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.writer.written import require_same, run_in_ort
from tilewright.writer import to_onnx

X = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)

CONVOLUTIONS = """<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N, 3, H, W] x) => (float[N, 4, H, W] y)
      <float[4, 3, 3, 3] w, float[4, 4, 1, 1] v, float[4] s, float[4] b, float[4] m, float[4] r> {
      [first] c = Conv <pads = [1, 1, 1, 1]> (x, w)
      [norm] n = BatchNormalization (c, s, b, m, r)
      [act] a = com.microsoft.QuickGelu (n)
      [second] y = Conv (a, v)
    }"""


def convolutions() -> onnx.ModelProto:
    model = onnx.parser.parse_model(CONVOLUTIONS)
    rng = np.random.default_rng(0)
    for v in model.graph.value_info:
        shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
        weight = np.abs(rng.standard_normal(shape)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, v.name))
    return model


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_each_level(level: str, tmp_path: Path) -> None:
    model = convolutions()
    path = tmp_path / "optimized.onnx"
    compiled = tilewright.compile(model, opt_level=level, save_optimized=path, progress=False)
    onnx.checker.check_model(str(path), full_check=True)
    written = onnx.load(path)
    feed = {"x": np.random.default_rng(1).standard_normal((2, 3, 5, 7)).astype(np.float32)}
    want = compiled.run(feed)
    require_same(want, interpret(from_onnx(path), feed), 1e-4)
    require_same(want, run_in_ort(written, feed), 1e-4)
    ops = [n.op_type for n in written.graph.node]
    assert ("BatchNormalization" in ops) == (level in ("none", "basic"))
    assert ("Transpose" in ops) == (level == "all"), "channels last is a matter of the last level"
    assert "QuickGelu" not in ops
    assert written.opset_import[0].version == 17
    assert [d.dim_param for d in written.graph.input[0].type.tensor_type.shape.dim] == ["N", "", "H", "W"]


def test_the_file_is_that_of_what_is_compiled() -> None:
    """``read_model`` keeps what the compiler expands."""
    model = convolutions()
    assert "QuickGelu" in [n.op for n in read_model(model).graph.nodes]
    imported = import_model(model)
    assert [n.op for n in imported.graph.nodes] == [n.op for n in from_onnx(model).nodes]
    assert [o.domain for o in to_onnx(imported).opset_import] == [""]


def test_a_model_of_narrower_products(tmp_path: Path) -> None:
    path = tmp_path / "bf16.onnx"
    names = {"hidden": "bf16", "readout": "bf16"}
    tilewright.compile(perceptron(), precision=names, save_optimized=path, progress=False, stop_after="passes")
    onnx.checker.check_model(str(path), full_check=True)
    assert [n.op_type for n in onnx.load(path).graph.node].count("MatMul") == 2


def test_functions_for_groups(tmp_path: Path) -> None:
    model = convolutions()
    fused = tilewright.compile(model, stop_after="fuse", progress=False)
    written = to_onnx(fused, 17, as_functions=True)
    onnx.checker.check_model(written, full_check=True)
    assert written.functions
    called = {n.op_type for n in written.graph.node if n.domain}
    assert called == {f.name for f in written.functions}
    feed = {"x": np.random.default_rng(1).standard_normal((2, 3, 5, 7)).astype(np.float32)}
    want = interpret(from_onnx(model), feed)
    require_same(want, run_in_ort(written, feed), 1e-4)
    require_same(want, interpret(from_onnx(written), feed), 1e-4)
    plain = to_onnx(fused, 17)
    assert not plain.functions
    require_same(want, run_in_ort(plain, feed), 1e-4)


def test_functions_that_say_the_same_are_one() -> None:
    b = GraphBuilder("g")
    q, k, v = (b.input(x, "float32", ("n", 8)) for x in "qkv")
    for scale in (0.5, 0.5, 0.25):
        q = b.op("FusedAttention", q, k, v, scale=scale)
    written = to_onnx(b.build(q), as_functions=True)
    onnx.checker.check_model(written, full_check=True)
    assert [(n.domain, n.op_type) for n in written.graph.node] == [
        ("tilewright", "FusedAttention"), ("tilewright", "FusedAttention"), ("tilewright", "FusedAttention_1"),
    ]  # fmt: skip
    assert [[n.op_type for n in f.node] for f in written.functions] == [
        ["Constant", "Transpose", "MatMul", "Mul", "Softmax", "MatMul"]
    ] * 2


def test_on_the_command_line(tmp_path: Path) -> None:
    path = saved(perceptron(), tmp_path)
    out = tmp_path / "out.onnx"
    assert main(["explain", str(path), "--opt-level", "basic", "--save-optimized", str(out), "--no-cache"]) == 0
    feed = {"x": X}
    require_same(interpret(from_onnx(path), feed), interpret(from_onnx(out), feed), 1e-5)


def test_somebody_elses_file_stays(tmp_path: Path) -> None:
    path = saved(perceptron(), tmp_path)
    before = Path(path).read_bytes()
    with pytest.raises(InputError, match="expected a model that tilewright wrote or no file"):
        tilewright.compile(path, save_optimized=path, progress=False)
    assert Path(path).read_bytes() == before
    with pytest.raises(InputError, match="save_optimized: expected a path, got 3"):
        tilewright.compile(path, save_optimized=3)  # type: ignore[arg-type]
