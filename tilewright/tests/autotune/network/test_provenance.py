"""Records say which tuning of which model they are from."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import onnx

import tilewright
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.provenance import session_of
from tilewright.autotune.records.database import JSONDatabase
from tilewright.tests.autotune.records.log_helper import mlp_model


def _tune(model: object, log: Path, **more: object) -> None:
    tilewright.tune(
        model, database=log, measurer=TableMeasurer(lambda c: 1.0), time_budget_s=None, max_trials=4,
        check_network=False, **more,
    )  # type: ignore[call-overload]  # fmt: skip


def test_two_tunings_are_two_sessions(tmp_path: Path) -> None:
    model, log = tmp_path / "net.onnx", tmp_path / "log"
    onnx.save(mlp_model(), model)
    _tune(str(model), log)
    first = {r.session for r in JSONDatabase(log).records()}
    _tune(str(model), log, seed=1)
    both = {r.session for r in JSONDatabase(log).records()}
    assert len(first) == 1
    assert len(both) == 2
    for s in both:
        assert s is not None
        assert (s.model, s.digest) == ("net.onnx", hashlib.sha256(model.read_bytes()).hexdigest())
        assert s.started > 0
        assert s.host == ""
        assert s.label == f"net.onnx {s.digest[:8]}"
    assert str(tmp_path) not in log.read_text(), "no directories"


def test_the_host_is_named_if_asked_for() -> None:
    proto = mlp_model()
    s = session_of(proto, TuneOptions(record_host=True, seed=3), 5.0)
    assert (s.host, s.model, s.started) == (socket.gethostname(), "mlp", 5.0)
    assert s.digest == hashlib.sha256(proto.SerializeToString()).hexdigest()
    assert s == session_of(proto, TuneOptions(record_host=True, seed=3), 5.0)
    assert len({session_of(proto, TuneOptions(seed=n), t).id for n in (0, 1) for t in (1.0, 2.0)}) == 4


def test_every_form_of_a_model(tmp_path: Path) -> None:
    onnx.save(mlp_model(), tmp_path / "net.onnx")
    data = (tmp_path / "net.onnx").read_bytes()
    graph = tilewright.compile(data, stop_after="import")
    found = [session_of(m, TuneOptions(), 1.0) for m in (tmp_path / "net.onnx", data, graph)]
    assert [s.model for s in found] == ["net.onnx", "", "mlp"]
    assert [bool(s.digest) for s in found] == [True, True, False]
    assert found[0].digest == found[1].digest
