"""Models for 64-bit Arm, run by an emulator."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tests.deploy.cross.models import EXAMPLES, assert_as_here
from tilewright.tests.deploy.program import Linked, ProgramError, needs_zig
from tilewright.tests.deploy.tools import needs

pytestmark = [needs_zig, needs("qemu-aarch64")]

N1 = "llvm -mtriple=aarch64-linux-musl -mcpu=neoverse-n1 -num-threads=2"


@pytest.mark.parametrize("name", EXAMPLES)
def test_same_results(name: str, linked: Linked) -> None:
    assert_as_here(name, N1, linked)


@pytest.mark.parametrize("cpu", ["generic", "cortex-a72", "neoverse-v1"])
def test_other_cpus(cpu: str, linked: Linked) -> None:
    assert_as_here("convolution", N1.replace("neoverse-n1", cpu), linked)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads(threads: int, linked: Linked) -> None:
    assert_as_here("convolution", N1, linked, threads)


def test_messages(linked: Linked) -> None:
    program = linked(EXAMPLES["gather"].model, N1)
    with pytest.raises(ProgramError, match=r"in \[-6, 5\], got 6") as told:
        program.run({"x": np.zeros((6, 4), np.float32), "i": np.array([0, 6])})
    assert told.value.code == 12
    with pytest.raises(ProgramError, match="input 'x' axis 1: expected 4, got 5"):
        program.run({"x": np.zeros((6, 5), np.float32), "i": np.array([0])})


def test_a_cpu_that_lacks_something_is_told(linked: Linked) -> None:
    program = linked(EXAMPLES["gather"].model, N1)
    with pytest.raises(ProgramError, match="needs a CPU with dotprod, which this one lacks") as told:
        program.run(EXAMPLES["gather"].feeds[0], before=("qemu-aarch64", "-cpu", "cortex-a53"))
    assert told.value.code == 14
