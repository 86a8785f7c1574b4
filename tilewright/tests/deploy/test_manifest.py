"""What an artifact says of itself: the model, what the records had for it, and what computes its nodes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli import main
from tilewright.deploy.pack import read_manifests
from tilewright.tests.api.models import convolution, perceptron, saved
from tilewright.tests.deploy.exported import needs_compiler
from tilewright.tests.fuzz_graphs.records import random_records

pytestmark = needs_compiler


def manifest(model: onnx.ModelProto, folder: Path, **options: Any) -> dict[str, Any]:
    path = folder / "model.so"
    tilewright.compile(model, progress=False, threads=2, **options).export(path)
    (said,) = read_manifests(path)
    return said


def test_what_computes_each_node(tmp_path: Path) -> None:
    said = manifest(convolution(64), tmp_path)
    assert len(said["implementations"]) > 2
    node = next(iter(said["implementations"]))
    other = manifest(convolution(64), tmp_path, implementations={node: "direct"})
    assert other["implementations"] == {**said["implementations"], node: "direct"}
    assert other["graph"] == said["graph"]


def test_the_digest_is_of_the_graph(tmp_path: Path) -> None:
    graphs = {manifest(m, tmp_path)["graph"] for m in (perceptron(), perceptron(), perceptron(24), convolution())}
    assert len(graphs) == 3


def test_tuning_records(tmp_path: Path) -> None:
    said = manifest(perceptron(), tmp_path)["tuning"]
    assert (said["hit"], said["near_miss"], said["share"], said["records"]) == (0, 0, 0, {})
    assert said["miss"] > 0
    records = random_records(perceptron(), 2, np.random.default_rng(0))
    tuned = manifest(perceptron(), tmp_path, database=records)["tuning"]
    assert tuned["hit"] == len(tuned["records"]) > 0
    assert 0 < tuned["share"] <= 1
    assert all("when tuned" in reason for reason in tuned["records"].values())


def test_a_listing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(convolution(64), tmp_path)
    assert main(["build", path, "-o", str(tmp_path / "model.so")]) == 0
    assert main(["inspect", str(tmp_path / "model.so")]) == 0
    out = capsys.readouterr().out
    for what in (
        "graph ",
        "target ",
        "weights ",
        "input  x: float32[1, 3, 64, 64]",
        "output y",
        "without\n",
        "computed by",
    ):
        assert what in out


def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    """With other hashes, and nothing of the cache."""
    code = """
import sys, tilewright
from tilewright.tests.api.models import convolution
tilewright.compile(convolution(), threads=2, progress=False, cache=len(sys.argv) == 3).export(sys.argv[1])
"""
    digests = set()
    for seed, more in (("1", []), ("2", ["cached"])):
        path = tmp_path / seed / "model.so"
        path.parent.mkdir()
        subprocess.run(
            [sys.executable, "-c", code, path, *more], check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1
