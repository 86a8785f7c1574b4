"""Whatever the indices are, kernels stay in their arrays."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.skipif(os.name == "nt", reason="needs mprotect")
def test_no_kernel_leaves_its_arrays() -> None:
    command = [sys.executable, "-m", "tilewright.tests.lowering.foreign_memory"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, ["done"]), done.stderr[-2000:]
