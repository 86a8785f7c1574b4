"""Every case of ONNX's backend tests has its expected status; the counts are printed (``-s`` shows them)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.tests.conformance.expected import UPDATE, changes, counts_text, read_expected, status

SHARDS = 2  # each loads all cases, which takes seconds
NEEDED = 1500


@pytest.mark.parametrize("part", range(SHARDS))
def test_cases_have_their_expected_status(part: int, tmp_path: Path) -> None:
    """One process a shard; inside it a worker process runs the cases, so that a crash costs one case only."""
    out = tmp_path / "results.json"
    command = [sys.executable, "-m", "tilewright.tests.conformance", "--jobs", "1", "--shard", f"{part}/{SHARDS}",
               "--json", str(out)]  # fmt: skip
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert out.exists(), done.stderr[-2000:]
    results = json.loads(out.read_text())
    print(f"part {part + 1} of {SHARDS}\n{counts_text(results)}")
    worse, better = changes(results, read_expected())
    assert not worse, "worse than expected:\n" + "\n".join(worse)
    assert not better, f"better than expected, run {UPDATE}:\n" + "\n".join(better)


def test_enough_cases_pass() -> None:
    expected = read_expected()
    passing = [n for n, r in expected.items() if status(r) in ("native", "host")]
    print(counts_text(expected))
    assert len(passing) >= NEEDED
