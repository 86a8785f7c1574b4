"""A piece of the fuzzer's run, in processes of its own. A longer one: ``python -m tilewright.tests.fuzz_graphs``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.tests.sources import ROOT

SEEDS = 12
COUNT = 24


@pytest.mark.parametrize("first", range(0, COUNT, SEEDS))
def test_random_graphs(first: int) -> None:
    command = [sys.executable, "-m", "tilewright.tests.fuzz_graphs", "--processes", "1"]
    done = subprocess.run(
        [*command, "--seed", str(first), "--count", str(SEEDS)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    faults = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    assert f"{SEEDS} graphs" in done.stdout, done.stderr[-2000:]
    assert not faults, "\n".join(faults)
