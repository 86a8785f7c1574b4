"""The second version of a model, for sizes that broadcast: when it is built, by whom, and what tells of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.autotune.network.tune_network import extract_tasks
from tilewright.core.errors import BroadcastError, InputError, UnsupportedError
from tilewright.core.plan import HostStep
from tilewright.graph_ir.ir import Graph
from tilewright.runtime.general import GeneralVersion
from tilewright.tests.api.broadcast_patterns import PATTERNS

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\ng '


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def _compile(**options: Any) -> tilewright.CompiledModel:
    return tilewright.compile(PATTERNS["chain"].model(), **options)


EQUAL = {"x": ones(3, 5), "y": ones(3, 5)}
REPEATED = {"x": ones(3, 5), "y": ones(1, 5)}
UNFIT = {"x": ones(3, 5), "y": ones(2, 5)}
WANT = 2.0 - np.tanh(ones(3, 5))


def test_is_built_at_the_first_call_that_needs_it() -> None:
    model = _compile()
    np.testing.assert_allclose(model.run(EQUAL)["z"], WANT, 1e-5)
    assert "add: a with c" in model.explain().lower()
    assert "a version that broadcasts is built at the first call that needs it" in model.explain()
    np.testing.assert_allclose(model.run(REPEATED)["z"], WANT, 1e-5)
    assert "a version that broadcasts is built\n" in model.explain()
    np.testing.assert_allclose(model.run(EQUAL)["z"], WANT, 1e-5)


def test_sizes_that_do_not_fit_are_refused_in_every_version() -> None:
    for broadcasting in ("lazy", "refuse", "only"):
        with pytest.raises(InputError, match=r"node 'Add': expected dimensions that agree, got a = 3 and c = 2 \("):
            _compile(broadcasting=broadcasting).run(UNFIT)


def test_ahead_builds_it_with_the_model() -> None:
    assert "a version that broadcasts is built\n" in _compile(broadcasting="ahead").explain()


def test_refuse_builds_none() -> None:
    model = _compile(broadcasting="refuse")
    model.run(EQUAL)
    with pytest.raises(BroadcastError, match="expected dimensions that agree, got a = 3 and c = 1"):
        model.run(REPEATED)
    assert "no version broadcasts: calls with other sizes are refused" in model.explain()


def test_only_is_that_version_alone() -> None:
    model = _compile(broadcasting="only")
    for feed in (EQUAL, REPEATED):
        np.testing.assert_allclose(model.run(feed)["z"], WANT, 1e-5)
    assert "BroadcastTo" in model.explain() or "repeated" in model.explain()
    assert "taken to be equal" not in model.explain()
    graph = _compile(broadcasting="only", stop_after="import")
    assert isinstance(graph, Graph)
    assert graph.broadcasts


def test_an_unknown_choice() -> None:
    with pytest.raises(InputError, match="broadcasting: expected one of lazy, ahead, refuse, only, got 'never'"):
        _compile(broadcasting="never")


def test_a_model_without_such_sizes_has_none() -> None:
    text = "(float[a,4] x) => (float[] z) <float[4] w = {1, 2, 3, 4}> { z = Add(x, w) }"
    model = tilewright.compile(onnx.parser.parse_model(HEAD + text), broadcasting="ahead")
    assert "broadcast" not in model.explain()


def test_what_tells_of_a_run_tells_of_the_version_that_ran(tmp_path: Path) -> None:
    model = _compile()
    assert not any("BroadcastTo" in p.read_text() for p in model.dump(tmp_path / "before"))
    assert {n for k in model.profile(EQUAL, 1).kernels for n in k.nodes}.isdisjoint({"x.repeated.node"})
    assert "x.repeated.node" in {n for k in model.profile(REPEATED, 1).kernels for n in k.nodes}
    assert "broadcastto" in str(model.coverage(REPEATED, 1))
    assert "broadcastto" not in str(model.coverage(EQUAL, 1))
    assert model.symbols(REPEATED) == {"a": 3, "b": 5, "c": 1, "d": 5}
    written = model.dump(tmp_path / "after")
    assert tmp_path / "after" / "broadcasts" / "1_import.txt" in written


def test_calls_from_several_threads_build_it_once() -> None:
    model = _compile()
    results: list[np.ndarray] = []
    calls = [threading.Thread(target=lambda f=f: results.append(model.run(f)["z"])) for f in (EQUAL, REPEATED) * 4]
    for c in calls:
        c.start()
    for c in calls:
        c.join()
    assert len(results) == 8
    for r in results:
        np.testing.assert_allclose(r, WANT, 1e-5)


def test_one_build_serves_all() -> None:
    built = []
    general = GeneralVersion(lambda: built.append(1) or "model")
    error = BroadcastError("sizes")
    assert general.known_for([ones(2)]) is None
    assert [general.serve([ones(2)], error) for _ in range(3)] == ["model"] * 3
    assert general.known_for([ones(2)]) == "model"
    assert general.known_for([ones(3)]) is None
    assert built == [1]


def test_a_build_that_fails_is_told_and_not_repeated() -> None:
    tried = []

    def build() -> str:
        tried.append(1)
        raise UnsupportedError("no such kernel")

    general = GeneralVersion(build)
    for _ in range(2):
        with pytest.raises(InputError, match=r"sizes \(a version that broadcasts cannot be built: no such kernel\)"):
            general.serve([], BroadcastError("sizes"))
    assert tried == [1]
    with pytest.raises(UnsupportedError):
        general.require_built()


def test_it_is_not_built_from_a_file_that_has_changed(tmp_path: Path) -> None:
    """What is read would be another model's weights by then."""
    wide = np.arange(3 * 50000, dtype=np.float32).reshape(3, 50000)
    text = "(float[a,50000] x, float[3,b] v) => (float[] z) { s = Add(x, v) z = MatMul(w, s) }"
    proto = onnx.parser.parse_model(HEAD + text.replace("{ s", "<float[1] w = {1}> { s").replace("MatMul", "Mul"))
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(wide, "w"))
    path = tmp_path / "m.onnx"
    equal, repeated = ({"x": ones(n, 50000), "v": ones(3, 50000)} for n in (3, 1))
    for broadcasting in ("lazy", "ahead"):
        path.write_bytes(proto.SerializeToString())
        model = tilewright.compile(path, broadcasting=broadcasting)  # type: ignore[arg-type]
        path.write_bytes(proto.SerializeToString() + b" ")
        np.testing.assert_array_equal(model.run(equal)["z"], 2 * wide)
        if broadcasting == "lazy":
            with pytest.raises(InputError, match=r"m\.onnx has changed since it was opened"):
                model.run(repeated)
        else:
            np.testing.assert_array_equal(model.run(repeated)["z"], 2 * wide)


def test_a_size_that_only_the_run_finds() -> None:
    """The run is begun again when a size that depends on data turns out to be 1."""
    model = tilewright.compile(PATTERNS["chosen_elements"].model())
    x = np.array([1, -2, 3, 4], np.float32)
    for kept, y in (([1, 1, 0, 0], ones(2)), ([0, 0, 1, 0], ones(2)), ([1, 0, 1, 1], ones(1)), ([0] * 4, ones(1))):
        k = np.array(kept, bool)
        np.testing.assert_array_equal(model.run({"x": x, "k": k, "y": y})["z"], np.maximum(x[k], 0) + y)
    with pytest.raises(InputError, match="expected dimensions that agree"):
        model.run({"x": x, "k": np.array([1, 1, 1, 0], bool), "y": ones(2)})


def test_a_refusal_that_follows_from_a_size_found_later() -> None:
    """Where sizes are taken to be equal, the Concat seems not to fit before the Add turns out to broadcast."""
    text = """(float[a] x, bool[a] k, float[b] y, float[1,c] v) => (float[] z) <int64[1] m = {0}> {
        p = Compress(x, k) s = Add(y, p) r = Unsqueeze(s, m) z = Concat <axis = 0> (r, v) }"""
    model = tilewright.compile(onnx.parser.parse_model(HEAD + text))
    feed = {"x": ones(4), "k": np.array([1, 1, 1, 0], bool), "y": ones(1), "v": ones(1, 3)}
    np.testing.assert_array_equal(model.run(feed)["z"], np.array([[2, 2, 2], [1, 1, 1]], np.float32))


def test_sizes_ask_nothing_of_the_host() -> None:
    model = _compile(broadcasting="only")
    assert not any(isinstance(s, HostStep) for s in model.plan.steps)


def test_sessions_broadcast() -> None:
    session = tilewright.InferenceSession(PATTERNS["chain"].model())
    np.testing.assert_allclose(session.run(["z"], REPEATED)[0], WANT, 1e-5)


def test_tasks_are_those_of_the_version_that_runs() -> None:
    proto = PATTERNS["batches"].model()
    for sizes, is_general in (((2, 3, 2, 3), False), ((2, 1, 1, 3), True)):
        tasks = extract_tasks(proto, sizes=dict(zip("abcd", sizes, strict=True)), threads=1)
        # how many implementations are worth a task is measured
        assert {"broadcastto" in t.name for t in tasks} == {is_general}
