"""Bounds of inner loops by what a manual says: each resource by hand, and those of schedules."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

import tilewright
from tilewright.codegen import port_pressure as module
from tilewright.codegen.assembly_loops import assembly_loops
from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.port_pressure import RESOURCES, LoopBound, mca_cycles, port_pressure
from tilewright.core.errors import TargetError
from tilewright.machine.target import Target
from tilewright.tests.html_checker import checked
from tilewright.tests.schedule.helper import matmul

ZEN3, ZEN4, SKYLAKE = (
    parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}") for cpu in ("znver3", "znver4", "skylake-avx512")
)


def silent(lines: Sequence[str], target: Target) -> None:
    return None


def bound(text: str, target: Target = ZEN4) -> LoopBound:
    """Of a loop with this body, one instruction a line."""
    body = "\n".join(f"\t{line.strip()}" for line in text.strip().splitlines())
    loops = assembly_loops(f".LBB0_1:\n{body}\n\tdecq\t%rax\n\tjne\t.LBB0_1\n")
    (found,) = port_pressure(loops, target, silent).bounds
    return found


FOUR = "\n".join(f"vfmadd231ps\t(%rsi), %zmm9, %zmm{i}" for i in range(4))


def test_multiply_adds() -> None:
    assert bound(FOUR, ZEN4).cycles["multiply-adds"] == 4.0
    assert bound(FOUR, SKYLAKE).cycles["multiply-adds"] == 2.0
    for target in (ZEN3, ZEN4, SKYLAKE):  # two ports for halves, wherever whole vectors go
        assert bound(FOUR.replace("zmm", "ymm"), target).cycles["multiply-adds"] == 2.0
    assert bound("vpdpbusd\t%zmm1, %zmm2, %zmm3", ZEN4).cycles["multiply-adds"] == 1.0


def test_waiting() -> None:
    assert bound(FOUR).cycles["waiting"] == 4.0
    assert bound("\n".join(["vfmadd231ps\t%zmm1, %zmm2, %zmm3"] * 3)).cycles["waiting"] == 12.0
    assert bound("vfmadd231ps\t%zmm1, %zmm2, %zmm3 {%k1}").cycles["waiting"] == 4.0
    begun = "vmulps\t%zmm1, %zmm2, %zmm3\nvfmadd231ps\t%zmm1, %zmm2, %zmm3"
    assert bound(begun).cycles["waiting"] == 0.0, "it begins anew in each iteration"
    assert bound("vfmadd213ps\t%zmm1, %zmm2, %zmm3").cycles["waiting"] == 0.0, "a product of what was there"
    stored = "vfmadd231ps\t%zmm1, %zmm2, %zmm3\nvmovups\t%zmm3, (%rdi)"
    assert bound(stored).cycles["waiting"] == 4.0


def test_loads_and_stores() -> None:
    assert bound("vmovups\t(%rsi), %zmm1\nvmovups\t64(%rsi), %zmm2").cycles["loads"] == 2.0
    assert bound("vmovups\t(%rsi), %zmm1\nvmovups\t64(%rsi), %zmm2", SKYLAKE).cycles["loads"] == 1.0
    broadcasts = "\n".join(["vbroadcastss\t(%rdi), %zmm1"] * 3 + ["vfmadd231ps\t(%rdi){1to16}, %zmm1, %zmm2"] * 3)
    assert bound(broadcasts).cycles["loads"] == pytest.approx(2.0), "six of a few bytes, three a cycle"
    assert bound("vmovups\t%zmm1, (%rdi)").cycles["stores"] == 2.0
    assert bound("vmovss\t%xmm1, (%rdi)").cycles["stores"] == 4 / 32
    assert bound("movq\t%rax, (%rdi)").cycles["stores"] == 8 / 32
    assert bound("movq\t%rax, (%rdi)").cycles["loads"] == 0.0


def test_issue() -> None:
    assert bound("vaddps\t%zmm1, %zmm2, %zmm3\n" * 11).cycles["issue"] == 2.0, "the last two are one"
    assert bound("vaddps\t%zmm1, %zmm2, %zmm3\n" * 11, SKYLAKE).cycles["issue"] == 3.0


def test_the_largest_counts() -> None:
    b = bound(FOUR)
    assert (b.least, b.bound_by) == (4.0, "multiply-adds"), "the first of those that say the same"
    assert (bound("vmovups\t%zmm1, (%rdi)").bound_by, tuple(b.cycles)) == ("stores", RESOURCES)


def test_rows_and_views() -> None:
    loops = assembly_loops(f".LBB0_1:\n{FOUR}\n\tjne\t.LBB0_1\n")
    found = port_pressure(loops, ZEN4, lambda lines, target: 4.25)
    (row,) = found.to_dicts()
    assert (row["loop"], row["multiply_adds"], row["least"], row["mca"], row["loads"]) == (".LBB0_1", 4, 4.0, 4.25, 4.0)
    lines = str(found).splitlines()
    assert lines[2].split() == [".LBB0_1", "5", "4.00", "4.00", "4.00", "4.00", "0.00", "0.83", "multiply-adds", "4.25"]
    assert lines[3].startswith("a model, not a measurement")
    assert "a model, not a measurement" in checked(found._repr_html_())
    nothing = port_pressure(assembly_loops(""), ZEN4, silent)
    assert str(nothing) == "no loop is left: all of it is written out"
    assert "no loop is left" in checked(nothing._repr_html_())


def test_what_is_not_known_is_refused() -> None:
    for text, words in (
        ("x86_64-linux-gnu -mcpu=haswell", "got haswell"),
        ("aarch64-linux-gnu -mcpu=neoverse-n1", "aarch"),
    ):
        with pytest.raises(TargetError, match=rf"port pressure: expected one of znver2, .*, {words}|.*{words}"):
            port_pressure(assembly_loops(""), parse_target(f"llvm -mtriple={text}"), silent)


def test_a_register_tile_is_bound_by_its_multiply_adds() -> None:
    s = tilewright.Schedule(matmul(12, 32, 64))
    write = s.cache_write("C", "local")
    i_0, _ = s.split(s.loops(write)[0], (None, 6))
    tile_i, tile_j, k = s.compute_at("C", i_0)
    j_0, j_1 = s.split(tile_j, (None, 16))
    s.reorder(k, tile_i, j_0, j_1)
    s.decompose_reduction("C", k)
    s.vectorize(j_1)
    s.unroll(j_0)
    s.unroll(tile_i)
    best = s.port_pressure(ZEN4).bounds[0]
    assert best.bound_by == "multiply-adds"
    assert best.cycles["multiply-adds"] == best.loop.multiply_adds


# -- llvm-mca ----------------------------------------------------------------------------------------------------------
def program(folder: Path, body: str) -> None:
    path = folder / "llvm-mca"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.skipif(os.name != "posix", reason="a program in sh")
@pytest.mark.parametrize(
    ("body", "cycles"),
    [
        ("cat > asked; echo \"$@\" > options; echo 'Total Cycles:      425'", 4.25),
        ("echo 'Total Cycles: 425'; echo \"'x' is not a recognized processor for this target\" >&2", None),
        ("echo 'Total Cycles: 425'; exit 1", None),
        ("echo nothing", None),
    ],
)
def test_llvm_mca(body: str, cycles: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, body)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert mca_cycles((".L1:", "vaddps %xmm1, %xmm2, %xmm3", "jne .L1"), ZEN4) == cycles
    if cycles:
        assert (tmp_path / "asked").read_text() == ".L1:\nvaddps %xmm1, %xmm2, %xmm3\njne .L1\n"
        assert "-mcpu=znver4 -iterations=100" in (tmp_path / "options").read_text()


def test_without_llvm_mca(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert mca_cycles((".L1:",), ZEN4) is None
