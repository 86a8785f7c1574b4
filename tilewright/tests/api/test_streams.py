"""Calls at once: the same results, side by side or in turns; where threads stay."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.errors import InputError, UnsupportedError
from tilewright.runtime.resources.thread_pool import THREAD_POOLS, PoolHandle
from tilewright.tests.api.models import convolution, perceptron

LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not keep threads on a CPU")


def _scan() -> onnx.ModelProto:
    """A loop: y[t] = state + x[t], the state carried on; the body has an arena of its own."""
    text = """(float[n,8] x, float[8] s) => (float[8] last, float[n,8] y) {
      last, y = Scan<num_scan_inputs=1, body = b (float[8] c, float[8] v) => (float[8] d, float[8] o) {
        e = Mul(c, v)
        d = Add(c, v)
        o = Add(e, d)
      }>(s, x)
    }"""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\ng {text}')


def _feeds(n: int) -> dict[str, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "convolution": [{"x": normal(1, 3, 32, 32)} for _ in range(n)],
        "perceptron": [{"x": normal(1 + k % 5, 32)} for k in range(n)],
        "scan": [{"x": normal(1 + k % 3, 8), "s": normal(8)} for k in range(n)],
    }


MODELS = {"convolution": convolution, "perceptron": perceptron, "scan": _scan}
FEEDS = _feeds(8)


@pytest.mark.parametrize("streams", [None, 1, 2, 4])
@pytest.mark.parametrize("name", MODELS)
def test_callers_at_once_get_what_one_gets(name: str, streams: int | None) -> None:
    model = tilewright.compile(MODELS[name](), threads=4, streams=streams)
    wanted = [tilewright.compile(MODELS[name](), threads=1).run(f) for f in FEEDS[name]]
    wrong: list[int] = []

    def call(k: int) -> None:
        for _ in range(10):
            got = model.run(FEEDS[name][k])
            if any(not np.array_equal(got[o], wanted[k][o]) for o in got):
                wrong.append(k)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(len(FEEDS[name]))]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong
    assert len(model._lanes._made) == model.streams == (streams or 4)
    assert (model._lanes._running, model._lanes._free) == (0, 4)


def test_calls_run_side_by_side() -> None:
    """Two calls are inside at the same time: each waits in its callback for the other."""
    model = tilewright.compile(perceptron(), threads=2, streams=2)
    meet = threading.Barrier(2, timeout=60)
    lane_of = model._lanes._lane

    def lane(place: int) -> object:
        meet.wait()
        return lane_of(place)

    model._lanes._lane = lane  # type: ignore[assignment, method-assign]
    callers = [threading.Thread(target=model.run, args=({"x": np.ones((2, 32), np.float32)},)) for _ in range(2)]
    for t in callers:
        t.start()
    for t in callers:
        t.join(60)
    assert not meet.broken
    assert not any(t.is_alive() for t in callers)


def test_arenas_are_apart() -> None:
    model = tilewright.compile(convolution(), threads=2, streams=2)
    first, second = model._executor, model._another()
    feed = [FEEDS["convolution"][0]["x"]]
    a, b = first.run(feed), second.run(feed)  # type: ignore[arg-type]
    np.testing.assert_array_equal(a[0], b[0])  # type: ignore[arg-type]
    assert first._arena is not second._arena  # type: ignore[union-attr]
    assert first.constants is second.constants  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"streams": 0}, "streams: expected a whole number of at least 1, got 0"),
        ({"streams": "two"}, "streams: expected a whole number of at least 1, got 'two'"),
        ({"cpus": "0"}, "cpus: expected numbers of CPUs, or lists of them, got '0'"),
        ({"cpus": [[]]}, r"cpus: expected a CPU at least for each thread, got list \[\[\]\]"),
        ({"cpus": [-1]}, "cpus: expected a whole number of at least 0, got -1"),
        ({"cpus": [1 << 20]}, "cpus: expected CPUs among .*, got 1048576"),
    ],
)
def test_refusals(options: Mapping[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(perceptron(), **options)  # type: ignore[call-overload]


def test_a_system_that_pins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with pytest.raises(UnsupportedError, match="cpus: this system does not keep threads on a CPU"):
        tilewright.compile(perceptron(), cpus=[0])


@LINUX
def test_threads_that_help_stay_on_their_cpus() -> None:
    mine = sorted(os.sched_getaffinity(0))
    here = frozenset({mine[0]})
    model = tilewright.compile(convolution(64), threads=2, cpus=[mine[0], mine[0]])
    got = model.run({"x": np.ones((1, 3, 64, 64), np.float32)})["y"]
    plain = tilewright.compile(convolution(64), threads=1).run({"x": np.ones((1, 3, 64, 64), np.float32)})["y"]
    np.testing.assert_array_equal(got, plain)
    pool = THREAD_POOLS.known[2, 0, (here,)]
    assert os.sched_getaffinity(pool._workers[0].native_id or 0) == here
    assert sorted(os.sched_getaffinity(0)) == mine
    assert tilewright.compile(perceptron(), cpus=[mine[0]]).threads == 1


# -- the names that others have --------------------------------------------------------------------------------------
def _session(threads: int = 2, **entries: str) -> tilewright.InferenceSession:
    options = tilewright.SessionOptions(intra_op_num_threads=threads)
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return tilewright.InferenceSession(perceptron().SerializeToString(), options)


def test_hints() -> None:
    assert _session(4).model.streams == 4
    assert _session(4)._given[1].streams() is None
    assert _session(4, PERFORMANCE_HINT="LATENCY").model.streams == 1
    assert _session(4, PERFORMANCE_HINT="THROUGHPUT").model.streams == 4
    assert _session(4, NUM_STREAMS="2").model.streams == 2
    with pytest.raises(InputError, match="PERFORMANCE_HINT: expected one of LATENCY, THROUGHPUT, got 'latency'"):
        _session(4, PERFORMANCE_HINT="latency")
    with pytest.raises(InputError, match="NUM_STREAMS: expected a whole number of at least 1, got '-1'"):
        _session(4, NUM_STREAMS="-1")


@LINUX
def test_affinities() -> None:
    first = min(os.sched_getaffinity(0))
    session = _session(2, session__intra_op_thread_affinities=f"{first + 1}")
    assert session.model._pool.affinity == (frozenset({first}),)
    session.run(None, {"x": np.ones((2, 32), np.float32)})
    options = tilewright.SessionOptions(intra_op_num_threads=3)
    options.config_entries["session.intra_op_thread_affinities"] = "1,3-4;2"
    assert options.cpus() == (frozenset({0, 2, 3}), frozenset({0, 2, 3}), frozenset({1}))
    for text in ("0;1", "2-1;1", "a;1"):
        options.config_entries["session.intra_op_thread_affinities"] = text
        with pytest.raises(InputError, match="expected processors from 1 on"):
            options.cpus()
    options.config_entries["session.intra_op_thread_affinities"] = "1"
    with pytest.raises(InputError, match="expected 2 groups for 3 threads, got '1'"):
        options.cpus()


def test_calls_at_once_have_pools_of_their_own() -> None:
    """Two lanes of three threads each: a pool each; a third borrower works alone."""
    handles = [PoolHandle(3, thread_pool_code(), 6) for _ in range(3)]
    with handles[0].borrowed(True) as a, handles[1].borrowed(True) as b, handles[2].borrowed(True) as c:
        assert len({a, b, None}) == 3
        assert c is None
    with handles[2].borrowed(True) as again:
        assert again == a


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_threads_of_a_process_stay_few(tmp_path: Path) -> None:
    """Calls at once have pools of their own, but no more than one for each lane and size."""
    before = threading.active_count()
    model = tilewright.compile(convolution(), threads=2)

    def call() -> None:
        for _ in range(5):
            model.run(FEEDS["convolution"][0])

    callers = [threading.Thread(target=call) for _ in range(6)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert threading.active_count() <= before + 1
