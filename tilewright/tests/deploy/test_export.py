"""Artifacts: the same results as in Python, the same messages, the same bytes each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.deploy.loader import Artifact, ArtifactError, ArtifactInputError
from tilewright.tests.api.models import convolution, perceptron, two_inputs
from tilewright.tests.api.standard import read_model
from tilewright.tests.deploy.exported import assert_same, exported, needs_compiler

pytestmark = needs_compiler


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_fixed_sizes() -> None:
    model = tilewright.compile(convolution(), threads=2, progress=False)
    assert_same(model, exported(model), {"x": random(1, 3, 32, 32)})


def test_sizes_that_change_from_run_to_run() -> None:
    model = tilewright.compile(perceptron(), threads=2, progress=False)
    artifact = exported(model)
    for rows in (1, 5, 128, 3, 0, 64):
        assert_same(model, artifact, {"x": random(rows, 32)})
    assert artifact.shapes([(7, 32)]) == [(7, 10)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads: int) -> None:
    model = tilewright.compile(convolution(64), threads=2, progress=False)
    assert_same(model, exported(model, threads=threads), {"x": random(1, 3, 64, 64)})


def test_strided_inputs() -> None:
    model = tilewright.compile(perceptron(), progress=False)
    x = np.asfortranarray(random(6, 32))
    assert_same(model, exported(model), {"x": x[::2]})


def test_weights_beside(tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), progress=False)
    paths = model.export(tmp_path / "model.so", weights="beside")
    assert [p.name for p in paths] == ["model.so", "model.so.weights"]
    assert_same(model, Artifact(paths[0]), {"x": random(4, 32)})
    data = bytearray(paths[1].read_bytes())
    data[1000] ^= 4
    paths[1].write_bytes(data)
    with pytest.raises(ArtifactError, match="damaged: their digest"):
        Artifact(paths[0])
    paths[1].write_bytes(data[:-8])
    with pytest.raises(ArtifactError, match="expected weights of"):
        Artifact(paths[0])
    paths[1].unlink()
    with pytest.raises(ArtifactError, match=r"model\.so\.weights"):
        Artifact(paths[0])


def test_code_without_weights_is_small(tmp_path: Path) -> None:
    """Runtime, plan and kernels of a small network."""
    library, _ = tilewright.compile(perceptron(), progress=False).export(tmp_path / "model.so", weights="beside")
    assert library.stat().st_size <= 64 << 10


def test_two_exports_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.so", tmp_path / "b.so"
    for path in (first, second):
        tilewright.compile(perceptron(), progress=False).export(path)
    assert first.read_bytes() == second.read_bytes()


def test_other_files_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_text("mine")
    model = tilewright.compile(perceptron(), progress=False)
    with pytest.raises(tilewright.InputError, match="another kind of file"):
        model.export(path)
    assert path.read_text() == "mine"
    path.unlink()
    for _ in range(2):  # the second replaces the first
        model.export(path)


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({"a": random(2, 3)}, "missing"),
        ({"a": random(2, 3), "b": random(2, 3), "c": random(1)}, "unknown"),
        ({"a": random(2, 3), "b": random(2, 4)}, "axis 1: expected m = 3, got 4"),
        ({"a": random(2, 3), "b": random(2)}, "expected 2 dimensions, got 1"),
        ({"a": random(2, 3).astype(np.float64), "b": random(2, 3)}, "expected elements of type float32, got float64"),
    ],
)
def test_wrong_inputs(feed: dict[str, np.ndarray], message: str) -> None:
    model = tilewright.compile(two_inputs(), progress=False)
    artifact = exported(model)
    with pytest.raises(ArtifactInputError, match=message):
        artifact.run(feed)
    assert_same(model, artifact, {"a": random(2, 3), "b": random(2, 3)})


def test_sizes_that_broadcast() -> None:
    model = tilewright.compile(
        read_model("f (float[n, m] a, float[k, m] b) => (float[q, m] y) { y = Add(a, b) }"),
        progress=False,
    )  # fmt: skip
    artifact = exported(model)
    for n, k in ((3, 3), (1, 3), (4, 1), (3, 3)):
        assert_same(model, artifact, {"a": random(n, 5), "b": random(k, 5)})
    with pytest.raises(ArtifactInputError, match="expected dimensions that agree"):
        artifact.run({"a": random(2, 5), "b": random(3, 5)})


def test_indices_out_of_range() -> None:
    model = tilewright.compile(
        read_model("f (float[n, 4] x, int64[k] i) => (float[k, 4] y) { y = Gather<axis = 0>(x, i) }"), progress=False
    )
    artifact = exported(model)
    assert_same(model, artifact, {"x": random(6, 4), "i": np.array([0, -1, 5])})
    with pytest.raises(ArtifactInputError, match=r"in \[-6, 5\], got 6"):
        artifact.run({"x": random(6, 4), "i": np.array([0, 6])})


def test_operators_that_need_python_are_listed(tmp_path: Path) -> None:
    model = tilewright.compile(
        read_model("f (uint8[n] x) => (uint8[h, w, c] y) { y = ImageDecoder(x) }"), progress=False
    )
    with pytest.raises(tilewright.UnsupportedError, match=r"these operators need it:\n  node .*: ImageDecoder"):
        model.export(tmp_path / "model.so")
    model = tilewright.compile(
        read_model("f (string[n] a, string[n] b) => (string[n] y) { y = StringConcat(a, b) }"), progress=False
    )
    with pytest.raises(tilewright.UnsupportedError, match="tensors of numbers, input 'a' is strings"):
        model.export(tmp_path / "model.so")
    assert not list(tmp_path.iterdir())


def test_another_model_at_the_same_path(tmp_path: Path) -> None:
    """The system takes libraries of one name for one library."""
    path = tmp_path / "model.so"
    kept = []
    for width in (16, 24, 40):
        model = tilewright.compile(perceptron(width), progress=False)
        model.export(path)
        kept.append((model, Artifact(path)))
    for model, artifact in kept:
        assert_same(model, artifact, {"x": random(4, 32)})


def test_closed(tmp_path: Path) -> None:
    artifact = exported(tilewright.compile(perceptron(), progress=False))
    artifact.close()
    artifact.close()
    with pytest.raises(ArtifactError, match="one that was closed"):
        artifact.run({"x": random(4, 32)})


def test_sizes_that_are_worked_out_of_sizes() -> None:
    model = tilewright.compile(
        read_model("""f (float[n, m] x) => (float[k] y) {
          s = Shape(x)
          k = ReduceMin<keepdims = 1>(s)
          h = Constant<value_float = 0.5>()
          y = Expand(h, k)
        }"""),
        progress=False,
    )
    artifact = exported(model)
    for n, m in ((3, 5), (7, 2), (4, 4)):
        assert_same(model, artifact, {"x": random(n, m)})
