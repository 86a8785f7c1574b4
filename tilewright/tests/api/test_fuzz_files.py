"""Some mutated model files through compile and run; ``fuzz_files`` runs as many as one likes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

from tilewright.tests.forked import HANG, Note, run_forked


def test_mutated_files_compile_and_run_or_are_refused() -> None:
    """In a process of its own, since the cases are forked off one that has no threads."""
    command = [sys.executable, "-m", "tilewright.tests.api.fuzz_files", "--count", "80"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "ok compared" in run.stdout
    assert "error ModelError" in run.stdout


def _behave(case: int, note: Note) -> None:
    note("begun")
    match case:
        case 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case 2:
            while True:
                pass
        case 3:
            np.ones(1 << 30, np.uint8)
        case 4:
            raise ValueError("wrong")
        case 5:
            time.sleep(60)
    note("ended")


def test_crashes_hangs_and_full_memories_cost_only_their_case() -> None:
    ends = {e.case: e for e in run_forked(range(7), _behave, 2, 0.2, 1 << 28)}
    assert sorted(ends) == list(range(7))
    assert [ends[k].failure for k in (0, 1, 2, 5, 6)] == ["", "killed by SIGSEGV", HANG, HANG, ""]
    assert "MemoryError" in ends[3].failure
    assert "ValueError: wrong" in ends[4].failure
    assert [ends[k].notes for k in (0, 2)] == [("begun", "ended"), ("begun",)]
