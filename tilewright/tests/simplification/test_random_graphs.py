"""A piece of the fuzzer's run. A longer one: ``python -m tilewright.tests.fuzz_graphs --simplify --count 1000``."""

from __future__ import annotations

import subprocess
import sys

from tilewright.tests.sources import ROOT

COUNT = 30


def test_random_graphs() -> None:
    command = [sys.executable, "-m", "tilewright.tests.fuzz_graphs", "--simplify", "--processes", "1"]
    done = subprocess.run([*command, "--count", str(COUNT)], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert f"{COUNT} graphs" in done.stdout, done.stderr[-2000:]
    assert not [line for line in done.stdout.splitlines() if line.startswith("seed ")]
