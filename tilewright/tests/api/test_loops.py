"""``Loop`` and ``Scan``: natively where the body is one native call that keeps its sizes, else step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.core.errors import InputError
from tilewright.runtime.loop_driver import NativeLoop

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


class Counted:
    """How many loops ran natively."""

    native = 0


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted, inner = Counted(), NativeLoop.run

    def run(loop: NativeLoop, *args: Any) -> list[np.ndarray]:
        counted.native += 1
        return inner(loop, *args)

    monkeypatch.setattr(NativeLoop, "run", run)
    return counted


Feed = Mapping[str, np.ndarray]


def check(text: str, feeds: Sequence[Feed], expect: Callable[[Feed], Sequence[object]] | None = None) -> None:
    """Two runs of each feed against ``expect``, or the reference evaluator."""
    proto = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(proto)
    reference = ReferenceEvaluator(proto)
    model = tilewright.compile(proto, threads=2, progress=False)
    for feed in [*feeds, *feeds]:
        expected = reference.run(None, dict(feed)) if expect is None else expect(feed)
        for got, want in zip(model.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
            assert got.shape == np.shape(want)
            assert got.dtype == np.asarray(want).dtype


def scalar(v: object, dtype: type) -> np.ndarray:
    return np.array(v, dtype)


def test_sizes_that_depend_on_data_change_in_a_loop() -> None:
    """What is carried has such a size before the loop already, and another after it."""
    text = """
    grown (float[a] x, bool[a] k, float[b] y, int64 n) => (float[m] z, float[o] v) {
      p = Compress (x, k)
      q = Loop (n, , p) <body = step (int64 i, bool c, float[u] s) => (bool d, float[w] t)
        { d = Identity (c) t = Concat <axis = 0> (s, y) }>
      z = Relu (q)
      v = Mul (p, p)
    }"""
    x, y = np.arange(5, dtype=np.float32), np.ones(3, np.float32)
    kept = [np.array(k, bool) for k in ([1, 0, 1, 0, 0], [0, 0, 0, 0, 1])]
    feeds = [{"x": x, "k": k, "y": y, "n": scalar(n, np.int64)} for k in kept for n in (0, 1, 3)]

    def expect(feed: Feed) -> Sequence[np.ndarray]:
        p = x[feed["k"]]
        return np.concatenate([p, *[y] * int(feed["n"])]), p * p

    check(text, feeds, expect)


SUMS = """
sums (int64 trips, bool go, float[N] x, float stop) => (float[N] last, float[M,N] all, int64[K] steps) {
  last, all, steps = Loop (trips, go, x) <body = step (int64 i, bool c, float[N] s)
      => (bool d, float[N] t, float[N] u, int64 j) {
    one = Constant <value_float: float = 1.0> ()
    j = Identity (i)
    t = Add (s, one)
    u = Mul (t, x)
    total = ReduceMax <keepdims: int = 0> (t)
    d = Less (total, stop)
  }>
}
"""


def sums(feed: Feed) -> Sequence[object]:
    """The reference evaluator gives scalar scan outputs another rank, and cannot stack none."""
    s, go, rows = feed["x"], bool(feed.get("go", True)), []
    while go and len(rows) < feed.get("trips", 1 << 40):
        s = s + np.float32(1)
        rows.append(s * feed["x"])
        go = bool(s.max() < feed["stop"])
    return s, np.array(rows, np.float32).reshape(-1, len(s)), np.arange(len(rows))


@pytest.mark.parametrize("n", [1, 5, 64])
def test_a_loop_with_scan_outputs(counted: Counted, n: int) -> None:
    x = np.linspace(-1, 1, n, dtype=np.float32)
    feeds = [
        {"trips": scalar(trips, np.int64), "go": scalar(go, bool), "x": x, "stop": scalar(stop, np.float32)}
        for trips, go, stop in [
            (0, True, 9e9), (1, True, 9e9), (2, True, 9e9), (7, True, 9e9), (7, False, 9e9), (7, True, 3.0),
            (200, True, 150.0), (5000, True, 9e9),
        ]
    ]  # fmt: skip
    check(SUMS, feeds, sums)
    assert counted.native == 2 * len(feeds)


def test_a_loop_that_only_its_condition_ends(counted: Counted) -> None:
    """More scan outputs than there was room for at first."""
    text = SUMS.replace("int64 trips, ", "").replace("Loop (trips, go, x)", 'Loop ("", go, x)')
    x = np.linspace(-1, 1, 3, dtype=np.float32)
    stops = (0, 1.5, 64, 65, 129, 500)
    check(text, [{"go": scalar(True, bool), "x": x, "stop": scalar(s, np.float32)} for s in stops], sums)
    assert counted.native == 12


def test_carried_values_that_change_places(counted: Counted) -> None:
    text = """
    swap (int64 trips, float[N] x, float[N] y) => (float[N] p, float[N] q, float[N] r) <bool go = {1}> {
      p, q, r = Loop (trips, go, x, y, y) <body = step (int64 i, bool c, float[N] a, float[N] b, float[N] e)
          => (bool d, float[N] next_a, float[N] next_b, float[N] next_e) {
        d = Identity (c)
        next_a = Identity (b)
        next_b = Add (a, b)
        next_e = Identity (e)
      }>
    }
    """
    x, y = np.ones(6, np.float32), np.arange(6, dtype=np.float32)
    check(text, [{"trips": scalar(t, np.int64), "x": x, "y": y} for t in (0, 1, 2, 9)])
    assert counted.native == 8


def test_a_value_that_grows_goes_step_by_step(counted: Counted) -> None:
    text = """
    grow (int64 trips, float[N] x) => (float[M] y) <bool go = {1}> {
      y = Loop (trips, go, x) <body = step (int64 i, bool c, float[K] a) => (bool d, float[L] b) {
        d = Identity (c)
        b = Concat <axis: int = 0> (a, a)
      }>
    }
    """
    check(text, [{"trips": scalar(t, np.int64), "x": np.ones(3, np.float32)} for t in (0, 1, 4)])
    assert counted.native == 0


def test_a_size_that_depends_on_the_step_goes_step_by_step(counted: Counted) -> None:
    text = """
    triangle (int64 trips, float x) => (float y) <bool go = {1}> {
      y = Loop (trips, go, x) <body = step (int64 i, bool c, float a) => (bool d, float b) {
        d = Identity (c)
        zero = Constant <value_int: int = 0> ()
        one = Constant <value_int: int = 1> ()
        r = Range (zero, i, one)
        f = Cast <to: int = 1> (r)
        s = ReduceSum <keepdims: int = 0> (f)
        b = Add (a, s)
      }>
    }
    """
    check(text, [{"trips": scalar(t, np.int64), "x": scalar(0.5, np.float32)} for t in (0, 1, 6)])
    assert counted.native == 0


def test_a_loop_in_a_loop(counted: Counted) -> None:
    text = """
    nested (int64 trips, float[N] x) => (float[N] y) <bool go = {1}> {
      y = Loop (trips, go, x) <body = outer (int64 i, bool c, float[N] a) => (bool d, float[N] b) {
        d = Identity (c)
        b = Loop (i, c, a) <body = inner (int64 j, bool e, float[N] p) => (bool f, float[N] q) {
          f = Identity (e)
          step = Cast <to: int = 1> (j)
          scaled = Mul (x, step)
          q = Add (p, scaled)
        }>
      }>
    }
    """
    check(text, [{"trips": scalar(t, np.int64), "x": np.arange(4, dtype=np.float32)} for t in (0, 1, 5)])
    assert counted.native == 12


SCAN = """
running (float[N] start, float[T,N] xs, float[N,T] ys) => (float[N] last, float[N,T] sums, float[T,N] products) {
  last, sums, products = Scan <num_scan_inputs: int = 2,
    scan_input_axes: ints = [0, 1], scan_output_axes: ints = [1, 0],
    scan_input_directions: ints = [INWARD, 0], scan_output_directions: ints = [0, OUTWARD],
    body = step (float[N] s, float[N] x, float[N] y) => (float[N] t, float[N] u, float[N] v) {
      t = Add (s, x)
      u = Add (t, y)
      v = Mul (x, y)
    }> (start, xs, ys)
}
"""


@pytest.mark.parametrize(("inward", "outward"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_scans(counted: Counted, inward: int, outward: int) -> None:
    proto = onnx.parser.parse_model(HEAD + SCAN.replace("INWARD", str(inward)).replace("OUTWARD", str(outward)))
    model = tilewright.compile(proto, threads=2, progress=False)
    rng = np.random.default_rng(1)
    for length in (1, 2, 9, 5000):
        start = rng.random(3).astype(np.float32)
        xs, ys = rng.random((length, 3)).astype(np.float32), rng.random((3, length)).astype(np.float32)
        read = xs[::-1] if inward else xs
        sums = np.cumsum(np.concatenate([start[None], read]), axis=0, dtype=np.float32)[1:]
        products = read * ys.T
        last, got_sums, got_products = model.run(None, {"start": start, "xs": xs, "ys": ys})
        np.testing.assert_allclose(last, sums[-1], rtol=1e-5)
        np.testing.assert_allclose(got_sums, (sums + ys.T).T, rtol=1e-5)
        np.testing.assert_allclose(got_products, products[::-1] if outward else products, rtol=1e-5)
    assert counted.native == 4
    none = np.zeros((0, 3), np.float32)
    last, got_sums, got_products = model.run(None, {"start": start, "xs": none, "ys": none.T})
    np.testing.assert_array_equal(last, start)
    assert got_products.shape[0] == 0
    assert counted.native == 4


def test_results_are_the_callers_own() -> None:
    """A second run of a loop leaves the results of the first as they were."""
    model = tilewright.compile(onnx.parser.parse_model(HEAD + SUMS), threads=2, progress=False)
    feed = {"trips": scalar(3, np.int64), "go": scalar(True, bool), "stop": scalar(9e9, np.float32)}
    first = model.run(None, {**feed, "x": np.ones(8, np.float32)})
    kept = [r.copy() for r in first]
    model.run(None, {**feed, "x": np.full(8, 7, np.float32)})
    for a, b in zip(first, kept, strict=True):
        np.testing.assert_array_equal(a, b)
    start = np.ones(8, np.float32)
    (same, *_) = model.run(None, {**feed, "trips": scalar(0, np.int64), "x": start})
    same += 1
    np.testing.assert_array_equal(start, np.ones(8, np.float32))


WINDOW = """
window (int64 trips, bool go, float[N] start, float[3] x) => (float[M] last, int64[T] steps) {
  last, steps = Loop (trips, go, start) <body = step (int64 i, bool c, float[K] s) => (bool d, float[L] t, int64 j) {
    one = Constant <value_int: int = 1> ()
    zero = Constant <value_ints: ints = [0]> ()
    three = Constant <value_ints: ints = [3]> ()
    j = Mul (i, one)
    f = Cast <to: int = 1> (i)
    u = Add (s, f)
    both = Concat <axis: int = 0> (u, x)
    t = Slice (both, zero, three)
    d = Identity (c)
  }>
}
"""


def window(feed: Feed) -> Sequence[object]:
    s, trips = feed["start"], int(feed["trips"])
    for i in range(trips):
        s = np.concatenate([s + np.float32(i), feed["x"]])[:3]
    return s, np.arange(trips)


def test_a_body_that_runs_natively_and_step_by_step_in_turn(counted: Counted) -> None:
    """A value of one element has three from the second step on: the body is the one of the native loops then."""
    x = np.arange(3, dtype=np.float32)
    feeds = [
        {"trips": scalar(trips, np.int64), "go": scalar(True, bool), "start": np.ones(n, np.float32), "x": x}
        for n, trips in ((3, 4), (1, 5), (3, 4), (4, 3), (3, 2))
    ]
    check(WINDOW, feeds, window)
    assert counted.native == 6


def test_room_for_large_scan_outputs_is_not_made_in_advance() -> None:
    """Steps without a limit, of 16 MB each."""
    model = tilewright.compile(onnx.parser.parse_model(HEAD + SUMS), threads=2, progress=False)
    x = np.ones(1 << 22, np.float32)
    feed = {"trips": scalar(1 << 62, np.int64), "go": scalar(True, bool), "x": x, "stop": scalar(7, np.float32)}
    _, rows, steps = model.run(None, feed)
    np.testing.assert_array_equal(rows[:, 0], np.arange(2, 8))
    np.testing.assert_array_equal(steps, np.arange(6))


def test_a_condition_of_no_elements_is_an_error_of_the_loop() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (int64 m, bool go, float[n] s, bool[k] c) => (float[n] y) {
            [turn] y = Loop(m, go, s) <body = b (int64 i, bool was, float[n] a) => (bool[k] on, float[n] z)
                { on = Identity(c)  z = Abs(a) }> }""")
    compiled = tilewright.compile(model, cache=False, progress=False)
    feed = {"m": np.array(3), "go": np.array(True), "s": np.ones(2, np.float32)}
    assert compiled.run({**feed, "c": np.array([True])})["y"].tolist() == [1, 1]
    with pytest.raises(InputError, match=r"node 'turn' \(Loop\): expected a condition of one element, got \[0\]"):
        compiled.run({**feed, "c": np.zeros(0, bool)})
