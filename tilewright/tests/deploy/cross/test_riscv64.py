"""Models for 64-bit RISC-V, with vectors and without, run by an emulator."""

from __future__ import annotations

import pytest

from tilewright.tests.deploy.cross.models import EXAMPLES, assert_as_here
from tilewright.tests.deploy.program import EMULATORS, Linked, ProgramError, needs_zig
from tilewright.tests.deploy.tools import needs

pytestmark = [needs_zig, needs("qemu-riscv64")]

SCALAR = "llvm -mtriple=riscv64-linux-musl -num-threads=2"
VECTORS = f"{SCALAR} -mattr=+v"


@pytest.mark.parametrize("target", [SCALAR, VECTORS], ids=["scalar", "vectors"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_same_results(name: str, target: str, linked: Linked) -> None:
    assert_as_here(name, target, linked)


def test_longer_vectors_than_the_code_is_for(linked: Linked) -> None:
    program = linked(EXAMPLES["integers"].model, VECTORS)
    feed = EXAMPLES["integers"].feeds[1]
    words = [w.replace("vlen=128", "vlen=512") for w in EMULATORS["riscv64", "linux"]]
    assert program.run(feed, before=words)["y"].tobytes() == program.run(feed)["y"].tobytes()


def test_a_cpu_without_vectors_is_told(linked: Linked) -> None:
    program = linked(EXAMPLES["gather"].model, VECTORS)
    with pytest.raises(ProgramError, match="needs a CPU with v, which this one lacks"):
        program.run(EXAMPLES["gather"].feeds[0], before=("qemu-riscv64", "-cpu", "rv64,v=false"))
