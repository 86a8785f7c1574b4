"""``tilewright worker``: joins a scheduler, measures for a tuning, leaves when told to."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tilewright.autotune.records.database import JSONDatabase
from tilewright.cli import main
from tilewright.tests.autotune.records.log_helper import mlp_model

distributed = pytest.importorskip("distributed")


def _interruptible(command: list[str]) -> subprocess.Popen[str]:
    """A process that SIGINT reaches, also where these tests were started in the background, with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore")
def test_a_tuning_is_measured_by_a_worker(tmp_path: Path) -> None:
    onnx.save(mlp_model(4, 8), tmp_path / "m.onnx")
    with distributed.LocalCluster(
        n_workers=0, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        address = cluster.scheduler_address
        command = [sys.executable, "-m", "tilewright", "worker", "--join", address, "--name", "far"]
        worker = _interruptible(command)
        try:
            client.wait_for_workers(1, timeout=90)
            assert worker.stdout is not None
            assert worker.stdout.readline().endswith(f"joining {address}\n")
            words = ["--time", "900", "--trials", "2", "--threads", "1", "--no-check", "--quiet", "--cluster", address]
            assert main(["tune", str(tmp_path / "m.onnx"), "--log", str(tmp_path / "log"), *words]) == 0
            records = JSONDatabase(tmp_path / "log").records()
            assert any(r.seconds is not None for r in records)
            assert {r.failure for r in records} <= {None}
            assert {w["name"] for w in client.scheduler_info()["workers"].values()} == {"far"}
        finally:
            worker.send_signal(signal.SIGINT)
            status = worker.wait(60)
    assert status in (0, 130)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("address", ["127.0.0.1:9", "nonsense"])
def test_nobody_at_the_address(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["worker", "--join", address, "--wait", "0.5"]) == 2
    assert f"worker: expected a Dask scheduler at {address}, found none" in capsys.readouterr().err
