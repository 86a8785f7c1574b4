"""Small models of each kind, with inputs: what must be the same bit for bit on every machine, and what nearly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

import tilewright
from tilewright.tests.api.models import convolution, perceptron
from tilewright.tests.api.standard import Feed, read_model
from tilewright.tests.deploy.program import Linked


@dataclass(frozen=True)
class Example:
    """``is_exact``: integers, or arithmetic that is rounded in one way alone."""

    model: onnx.ModelProto
    feeds: Sequence[Feed]
    is_exact: bool


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _integers(dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(info.min, info.max, shape, dtype, endpoint=True)


_INTEGERS = read_model("""quantized (uint8[n, 40] a, int8[40, 24] b, int32[n, 24] c) => (int32[n, 24] y, uint8[n, 24] q)
<uint8 za = {7}, float s = {0.02}, uint8 z = {128}> {
  p = MatMulInteger(a, b, za)
  y = Add(p, c)
  f = Cast<to = 1>(p)
  t = Constant<value_float = 0.0009765625>()
  g = Mul(f, t)
  q = QuantizeLinear(g, s, z)
}""")
_ELEMENTWISE = read_model("""elementwise (float[n, m] a, float[m] b) => (float[n, m] y, int64[n] k, float16[n, m] h) {
  s = Add(a, b)
  zero = Constant<value_float = 0.0>()
  r = Max(s, zero)
  d = Div(r, b)
  y = Sqrt(r)
  k = ArgMax<axis = 1, keepdims = 0>(d)
  h = Cast<to = 10>(d)
}""")
_FUNCTIONS = read_model("""functions (float[n, 33] x) => (float[n, 33] y, float[n, 33] p) {
  e = Erf(x)
  t = Tanh(x)
  u = Add(e, t)
  g = Sigmoid(u)
  l = Exp(g)
  y = Log(l)
  p = Softmax<axis = 1>(x)
}""")
_LOOP = read_model("""loop (int64 count, float[k] x) => (float[k] y, float[r, k] rows) {
  on = Constant<value = bool {1}>()
  y, rows = Loop(count, on, x) <
    body = step (int64 i, bool c, float[k] before) => (bool d, float[k] after, float[k] row) {
    d = Identity(c)
    half = Constant<value_float = 0.5>()
    one = Constant<value_float = 1.0>()
    scaled = Mul(before, half)
    after = Add(scaled, one)
    row = Sub(after, before)
  }>
}""")
_HALVES = read_model("""halves (float16[n, m] a, float16[m] b) => (float16[n, m] y, bool[n, m] odd, float16[n, m] r) {
  s = Mul(a, b)
  y = Max(s, b)
  odd = IsNaN(s)
  r = Mod<fmod = 1>(a, b)
}""")
_GATHER = read_model("""gather (float[n, 4] x, int64[k] i) => (float[k, 4] y) { y = Gather<axis = 0>(x, i) }""")

EXAMPLES = {
    "integers": Example(
        _INTEGERS,
        [{"a": _integers(np.uint8, n, 40), "b": _integers(np.int8, 40, 24), "c": _integers(np.int32, n, 24) >> 2}
         for n in (1, 7, 64)], True,
    ),
    "elementwise": Example(
        _ELEMENTWISE,
        [{"a": _random(n, m), "b": np.abs(_random(m)) + 0.5} for n, m in ((1, 1), (3, 17), (65, 128))], True,
    ),
    "halves": Example(
        _HALVES,
        [{"a": _random(n, m).astype(np.float16), "b": (np.abs(_random(m)) + 0.5).astype(np.float16)}
         for n, m in ((1, 3), (5, 37))], True,
    ),
    "functions": Example(_FUNCTIONS, [{"x": 3 * _random(n, 33)} for n in (1, 5, 40)], False),
    "loop": Example(_LOOP, [{"count": np.array(n), "x": _random(k)} for n, k in ((3, 5), (1, 70))], True),
    "gather": Example(_GATHER, [{"x": _random(6, 4), "i": np.array([0, -1, 5, 3])}], True),
    "perceptron": Example(perceptron(), [{"x": _random(n, 32)} for n in (1, 5, 128, 0)], False),
    "convolution": Example(convolution(), [{"x": _random(1, 3, 32, 32)}], False),
}  # fmt: skip


def assert_as_here(name: str, target: str, linked: Linked, threads: int = 0) -> None:
    """An example gives on ``target`` what it gives here."""
    example = EXAMPLES[name]
    here, there = tilewright.compile(example.model, progress=False), linked(example.model, target)
    for feed in example.feeds:
        got = there.run(feed, threads)
        for output, wanted in here.run(feed).items():
            where = f"{output}, sizes {[x.shape for x in feed.values()]}"
            assert (got[output].shape, got[output].dtype) == (wanted.shape, wanted.dtype), where
            if example.is_exact:
                np.testing.assert_array_equal(got[output], wanted, where)
            else:
                np.testing.assert_allclose(got[output], wanted, 1e-5, 1e-6, err_msg=where)
