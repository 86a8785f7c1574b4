"""Machine code for Arm and RISC-V: the innermost loops of products are multiply-adds of vectors, and little else."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright
from tilewright.codegen.assembly_loops import assembly_loops
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.api.models import convolution

_LABEL = re.compile(r"^(\.LBB\w+):.*?(?=^\.LBB|\Z)", re.MULTILINE | re.DOTALL)


def loops(assembly: str) -> list[list[str]]:
    """The instructions of each loop that is one block."""
    out = []
    for block in _LABEL.finditer(assembly):
        lines = [x.strip() for x in block[0].splitlines()[1:] if x.startswith("\t") and not x.startswith("\t.")]
        end = next((k for k, x in enumerate(lines) if x.startswith("b") and x.endswith(block[1])), None)
        if end is not None:
            out.append(lines[: end + 1])
    return out


@pytest.mark.parametrize(
    ("target", "product", "moved"),
    [
        ("aarch64-linux-gnu -mcpu=neoverse-n1", r"fmla\s+v\d+\.4s", r"mov\s+v|st[rpu]"),
        ("aarch64-apple-macos -mcpu=apple-m1", r"fmla\.4s", r"mov\.16b|st[rpu]"),
        ("riscv64-linux-gnu -mattr=+v", r"vfmacc\.vf", r"vmv\dr|vs\dr|vse|fs[wd]"),
        ("riscv64-linux-gnu", r"fmadd\.s", r"fmv|fs[wd]"),
    ],
)
@pytest.mark.parametrize("kernel", [0, 1])
def test_results_stay_in_their_registers(kernel: int, target: str, product: str, moved: str) -> None:
    where = parse_target(f"llvm -mtriple={target} -num-threads=1")
    kernels = tilewright.compile(convolution(64), target=where, stop_after="codegen", cache=False)
    name = [n for n in kernels if "conv" in n][kernel]
    text = kernels[name].assembly_text(where).replace("\nLBB", "\n.LBB").replace("\tLBB", "\t.LBB")
    counted = [(x, sum(bool(re.match(product, line)) for line in x)) for x in loops(text)]
    products = [(x, n) for x, n in counted if n >= 16]
    assert products
    for lines, count in products:
        assert not [x for x in lines if re.match(moved, x)], "results are moved about"
        assert len(lines) < 2.5 * count


def test_the_tile_leaves_registers_for_broadcast_values() -> None:
    arm, x86 = (parse_target(f"llvm -mtriple={t}") for t in ("aarch64-linux-gnu", "x86_64-linux-gnu -mcpu=znver4"))
    assert (arm.tile_rows(1), arm.tile_rows(2), arm.full_registers) == (28, 13, 24)
    assert (x86.tile_rows(1), x86.tile_rows(2), x86.full_registers) == (30, 14, 28)


@pytest.mark.parametrize("cpu", ["icelake-server", "znver4"])
def test_steps_written_out_behind_each_other_do_not_spill(cpu: str) -> None:
    """A full tile of 14 rows whose steps fetch a line for two of them: with all loads first there were 33 values."""
    b = GraphBuilder()
    x = b.input("x", "float32", (56, 768))
    graph = b.build(b.op("MatMul", x, np.zeros((768, 1024), np.float32)))
    where = parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu} -num-threads=1")
    (kernel,) = tilewright.compile(graph, target=where, stop_after="codegen", cache=False).values()
    text = kernel.assembly_text(where)
    loop = assembly_loops(text).loops[0]
    assert (loop.multiply_adds, loop.stack) == (56, 0)
    assert any("prefetch" in line for line in loop.lines)
