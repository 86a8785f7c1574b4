"""Views whose sizes only a call tells: they must hold all elements of what they view, and nothing else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.core.errors import InputError

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\ng '


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("(float[a] x) => (float[] z) <int64[2] k = {2, 3}> { s = Reshape(x, k) z = Relu(s) }", (6,), [(4,), (7,)]),
        ("(float[a,b] x) => (float[] z) <int64[2] k = {-1, 4}> { s = Reshape(x, k) z = Relu(s) }", (3, 8), [(2, 3)]),
        ("(float[a,b] x) => (float[] z) <int64[1] k = {0}> { s = Squeeze(x, k) z = Relu(s) }", (1, 3), [(2, 3)]),
        ("(float[a] x, float[2,c] y) => (float[] z) { k = Shape(y) s = Reshape(x, k) z = Relu(s) }", (6,), [(4,)]),
        ("(float[a] x, float[2,c] y) => (float[] z) <int64[1] m = {-1}, int64[1] i = {1}> { k = Shape(y) "
         "d = Gather(k, i) t = Concat <axis=0> (m, d) s = Reshape(x, t) z = Relu(s) }", (6,), [(4,)]),
    ],
)  # fmt: skip
def test_elements_that_a_view_does_not_have(text: str, right: tuple[int, ...], wrong: list[tuple[int, ...]]) -> None:
    """Such a view read memory behind its operand, or left elements out."""
    model = tilewright.compile(onnx.parser.parse_model(HEAD + text))
    y = {"y": ones(2, 3)} if "float[2,c] y" in text else {}
    assert model.run({"x": ones(*right), **y})["z"].size == np.prod(right)
    for shape in wrong:
        with pytest.raises(InputError, match="expected dimensions that agree"):
            model.run({"x": ones(*shape), **y})
