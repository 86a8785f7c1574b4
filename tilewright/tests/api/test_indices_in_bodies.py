"""Indices in the bodies of loops: native loops end at the step that fails, and what was captured counts, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.core.errors import InputError
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.runtime.loop_driver import NativeLoop

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
Feed = dict[str, np.ndarray]


class Model:
    """Compiled, with the interpreter beside it."""

    def __init__(self, text: str, threads: int = 1) -> None:
        proto = onnx.parser.parse_model(HEAD + text)
        onnx.checker.check_model(proto)
        self.graph, self.compiled = from_onnx(proto), tilewright.compile(proto, threads=threads)

    def agrees(self, feed: Feed) -> None:
        for name, got in self.compiled.run(feed).items():
            np.testing.assert_allclose(got, np.asarray(interpret(self.graph, feed)[name]), rtol=1e-6)

    def refuses(self, feed: Feed, message: str) -> None:
        for run in (lambda: self.compiled.run(feed), lambda: interpret(self.graph, feed)):
            with pytest.raises(InputError, match=message):
                run()


COUNTED = """
counted (int64 trips, float[N,2] x) => (float[2] last, float[K,2] rows) <bool go = {1}, float[2] start = {0, 0}> {
  last, rows = Loop (trips, go, start) <body = step (int64 i, bool c, float[2] s) => (bool d, float[2] t, float[2] u) {
    d = Identity (c)
    two = Constant <value_int: int = 2> ()
    at = Mul (i, two)
    row = Gather (x, AT)
    t = Add (s, row)
    u = Identity (t)
  }>
}
"""


@pytest.mark.parametrize(("at", "factor"), [("i", 1), ("at", 2)])
def test_the_number_of_the_step_as_index(at: str, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, inner = [], NativeLoop.run
    monkeypatch.setattr(NativeLoop, "run", lambda *args: runs.append(1) or inner(*args))  # type: ignore[func-returns-value]
    model = Model(COUNTED.replace("AT", at))
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    for _ in range(2):
        model.agrees({"trips": np.array(6 // factor), "x": x})
        for trips in (6 // factor + 1, 9000):
            model.refuses({"trips": np.array(trips), "x": x}, r"\(Gather\): expected indices in \[-6, 5\], got 6")
        model.refuses({"trips": np.array(4), "x": x[:2]}, r"expected indices in \[-2, 1\], got 2")
    assert runs, "the loop was to run natively"


def test_a_scan() -> None:
    text = """
    scanned (int64[T] ids, float[N,2] x) => (float[2] last, float[T,2] rows) <float[2] start = {0, 0}> {
      last, rows = Scan <num_scan_inputs: int = 1, body = step (float[2] s, int64 id) => (float[2] t, float[2] u) {
        row = Gather (x, id)
        t = Add (s, row)
        u = Identity (row)
      }> (start, ids)
    }
    """
    model, x = Model(text, threads=2), np.arange(10, dtype=np.float32).reshape(5, 2)
    model.agrees({"ids": np.array([0, 4, -5, -1]), "x": x})
    model.refuses({"ids": np.array([0, 4, 5, -1]), "x": x}, r"expected indices in \[-5, 4\], got 5")
    model.refuses({"ids": np.array([0, 4, 4, -6]), "x": x}, r"expected indices in \[-5, 4\], got -6")


def test_a_branch_in_a_loop_in_a_loop() -> None:
    text = """
    nested (int64 trips, int64 most, float[N] x) => (float[1] y) <bool go = {1}, float[1] zero = {0}> {
      y = Loop (trips, go, zero) <body = outer (int64 i, bool c, float[1] a) => (bool d, float[1] b) {
        d = Identity (c)
        b = Loop (i, c, a) <body = inner (int64 j, bool e, float[1] p) => (bool f, float[1] q) {
          f = Identity (e)
          inside = Less (j, most)
          q = If (inside) <
            then_branch = then () => (float[1] r) {
              axis = Constant <value_ints: ints = [0]> ()
              row = Gather (x, j)
              one = Unsqueeze (row, axis)
              r = Add (p, one)
            },
            else_branch = other () => (float[1] r2) { r2 = Identity (p) }>
        }>
      }>
    }
    """
    model, x = Model(text), np.arange(4, dtype=np.float32)
    model.agrees({"trips": np.array(9), "most": np.array(4), "x": x})
    model.agrees({"trips": np.array(4), "most": np.array(99), "x": x})
    model.refuses({"trips": np.array(9), "most": np.array(99), "x": x}, r"expected indices in \[-4, 3\], got 4")


def test_a_constant_index_into_a_symbolic_dim() -> None:
    text = """
    third (int64 trips, float[N,2] x) => (float[K,2] rows) <bool go = {1}> {
      rows = Loop (trips, go) <body = step (int64 i, bool c) => (bool d, float[2] row) {
        d = Identity (c)
        three = Constant <value_int: int = 3> ()
        row = Gather (x, three)
      }>
    }
    """
    model, x = Model(text), np.arange(10, dtype=np.float32).reshape(5, 2)
    model.agrees({"trips": np.array(2), "x": x})
    model.refuses({"trips": np.array(1), "x": x[:3]}, r"expected indices in \[-3, 2\], got 3")
    assert model.compiled.run({"trips": np.array(0), "x": x[:3]})["rows"].size == 0
    model.agrees({"trips": np.array(2), "x": x})


def test_sequences() -> None:
    text = """
    picked (float[N] a, float[M] b, int64 at) => (float[K] y) {
      items = SequenceConstruct (a, b)
      y = SequenceAt (items, at)
    }
    """
    model = Model(text)
    feed = {"a": np.zeros(2, np.float32), "b": np.ones(3, np.float32)}
    for at in (-2, 0, 1):
        model.agrees({**feed, "at": np.array(at)})
    for at in (-3, 2):
        model.refuses({**feed, "at": np.array(at)}, rf"\(SequenceAt\): expected positions in \[-2, 1\], got {at}")


def test_one_text_for_all_of_a_run() -> None:
    model = Model("g (float[3] x, int64[4] i) => (float[4] y) { y = Gather (x, i) }")
    x = np.zeros(3, np.float32)
    model.refuses({"x": x, "i": np.array([0, 3, 7, 1])}, "got 7$")
    model.refuses({"x": x, "i": np.array([9, -9, -4, 3])}, "got -4$")
