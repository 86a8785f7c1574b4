"""Artifacts need the C library and nothing else."""

from __future__ import annotations

import numpy as np

import tilewright
from tilewright.tests.api.models import convolution, perceptron
from tilewright.tests.api.standard import read_model
from tilewright.tests.deploy.empty_root import differing, needs_chroot

pytestmark = needs_chroot

DECODER = """
decoder (int64 steps, float[n, 8] start, float[8, 8] w) => (float[n, 8] last, float[k, n, 8] all) {
  t = Constant<value = bool {1}>()
  last, all = Loop (steps, t, start) <body = step (int64 i, bool c, float[n, 8] h)
      => (bool d, float[n, 8] g, float[n, 8] row) {
    d = Identity (c)
    m = MatMul (h, w)
    g = Tanh (m)
    row = Identity (g)
  }>
}"""


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def test_fixed_sizes() -> None:
    model = tilewright.compile(convolution(), threads=2, progress=False)
    assert not differing(model, {"x": random(1, 3, 32, 32)})


def test_symbolic_sizes() -> None:
    model = tilewright.compile(perceptron(), threads=2, progress=False)
    assert not differing(model, {"x": random(7, 32)})


def test_a_loop() -> None:
    model = tilewright.compile(read_model(DECODER), threads=2, progress=False)
    feeds = [{"steps": np.array(n), "start": random(3, 8), "w": random(8, 8) / 3} for n in (0, 1, 9)]
    assert not differing(model, *feeds)


def test_sizes_that_depend_on_data() -> None:
    text = "f (float[n, 4] b, float[1, m] s) => (int64[k, 3] y) { "
    text += "o = Constant<value = int64[1] {0}>() c = Unsqueeze(b, o) d = Unsqueeze(s, o) "
    text += "q = Constant<value = int64 {5}>() r = Constant<value = float {0.5}>() y = NonMaxSuppression(c, d, q, r) }"
    model = tilewright.compile(read_model(text), threads=2, progress=False)
    boxes = np.abs(random(12, 4)).cumsum(1)
    assert not differing(model, {"b": boxes, "s": random(1, 12)})
