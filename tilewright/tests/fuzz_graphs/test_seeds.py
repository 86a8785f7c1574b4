"""A piece of the fuzzer's run, in processes of its own. A longer one: ``python -m tilewright.tests.fuzz_graphs``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright.tests.sources import ROOT

SEEDS = 25
KNOWN: dict[int, str] = {
    0: "Winograd's rounding beside a result that nearly cancels: a tolerance",
    2: "a product of doubles whose rounding the tolerance takes for too large",
    7: "Col2Im with dilations in one dimension: onnxruntime and the reference differ, nobody has said who is right",
    37: "a product of doubles, as 2",
    41: "Resize to sizes that keep the ratio: onnxruntime and the reference differ in the shape",
    42: "places that depend on a comparison of rounded numbers, or a wrong one",
}
"""Seeds with a fault that is open, and which. A seed that has none any more fails the test, too."""


@pytest.mark.parametrize("first", range(0, 50, SEEDS))
def test_random_graphs(first: int) -> None:
    command = [sys.executable, "-m", "tilewright.tests.fuzz_graphs", "--processes", "1"]
    done = subprocess.run(
        [*command, "--seed", str(first), "--count", str(SEEDS)], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    faults = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    found = {int(line.split()[1].rstrip(":")) for line in faults}
    assert f"{SEEDS} graphs" in done.stdout, done.stderr[-2000:]
    assert found == {s for s in KNOWN if first <= s < first + SEEDS}, "\n".join(faults)
