"""Compiled models and sessions go through pickle and copy: built again, the same results, or an error that says why."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.autotune.records.log_helper import mlp_model

X = {"x": np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)}


@pytest.fixture
def path(tmp_path: Path) -> str:
    return saved(perceptron(), tmp_path, "perceptron")


def _same(a: tilewright.CompiledModel, b: tilewright.CompiledModel) -> None:
    assert a is not b
    np.testing.assert_array_equal(a.run(X)["y"], b.run(X)["y"])


@pytest.mark.parametrize("kind", ["path", "bytes", "message"])
def test_compiled_models(kind: str, path: str) -> None:
    source = {"path": path, "bytes": Path(path).read_bytes(), "message": perceptron()}[kind]
    model = tilewright.compile(source, threads=2, streams=1, input_shapes={"batch": (1, 8)}, denormals="flush")
    for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        _same(model, again)
        assert (again.threads, again.streams, again.ranges) == (2, 1, {"batch": (1, 8)})
        assert again.plan.flushes
    twice = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model))))
    _same(model, twice)


def test_what_is_in_a_pickle_is_a_path(path: str) -> None:
    assert len(pickle.dumps(tilewright.compile(path))) < 4000


def test_relative_paths(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(Path(path).parent)
    model = tilewright.compile(Path(path).name)
    session = tilewright.InferenceSession(Path(path).name)
    monkeypatch.chdir("/")
    _same(model, pickle.loads(pickle.dumps(model)))
    np.testing.assert_array_equal(session.run(None, X)[0], copy.deepcopy(session).run(None, X)[0])


def test_records_go_along(tmp_path: Path) -> None:
    log = str(tmp_path / "log.jsonl")
    database = tilewright.tune(
        mlp_model(4, 8), database=log, measurer=TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16)),
        time_budget_s=None, max_trials=12, check_network=False,
    )  # fmt: skip
    model = tilewright.compile(mlp_model(4, 8), database=log)
    with database:
        inside = tilewright.compile(mlp_model(4, 8))
    for m in (model, inside):
        assert pickle.loads(pickle.dumps(m)).coverage().tuned == 1.0


def test_what_cannot_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tilewright.compile(perceptron(), stop_after="import")
    with pytest.raises(pickle.PicklingError, match="this one was compiled from more, or from a graph"):
        pickle.dumps(tilewright.compile(graph))
    large = onnx.ModelProto()
    large.CopyFrom(perceptron(width=1 << 18))
    with pytest.raises(pickle.PicklingError, match="from a path, or from less than 32 MiB in bytes or a message"):
        copy.deepcopy(tilewright.compile(large.SerializeToString()))


def _run(model: tilewright.CompiledModel) -> np.ndarray:
    return model.run(X)["y"]


def test_other_processes(path: str) -> None:
    model = tilewright.compile(path)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (got,) = pool.map(_run, [model])
    np.testing.assert_array_equal(got, model.run(X)["y"])
