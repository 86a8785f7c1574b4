"""Innermost loops of machine code: found, counted by kind, in text by hand and in that of schedules."""

from __future__ import annotations

import pytest

import tilewright
from tilewright.codegen.assembly_loops import KINDS, assembly_loops
from tilewright.core.errors import TargetError
from tilewright.tests.html_checker import checked
from tilewright.tests.schedule.helper import matmul

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-threads=1"

BY_HAND = """
\t.text
kernel:
\tpushq\t%rbp
.LBB0_1:                                # outer
\txorl\t%eax, %eax
.LBB0_2:                                # inner
\tvmovups\t(%rsi,%rax,4), %zmm2         # a load
\tvbroadcastss\t8(%rdi), %zmm3
\tvfmadd231ps\t%zmm2, %zmm3, %zmm0
\tvfmadd231ps\t64(%rsi), %zmm3, %zmm1
\tvaddps\t%zmm0, %zmm1, %zmm4
\tvmovups\t%zmm4, 128(%rsp)
\tleaq\t16(%rax), %rax
\tincq\t%rax
\tcmpq\t$8, 16(%rsp)
\tjne\t.LBB0_2
\tdecq\t%rdi
\tjne\t.LBB0_1
.LBB0_3:
\tmovl\t%eax, (%rdx)
\tjmp\t.LBB0_3
.LBB0_4:
\tjne\t.LBB0_5
.LBB0_5:
\tretq
"""


def test_by_hand() -> None:
    inner, other = assembly_loops(BY_HAND).loops
    assert (inner.label, len(inner.lines)) == (".LBB0_2", 10)
    assert inner.kinds == {
        "multiply-add": 2, "shuffle": 1, "move": 3, "vector arithmetic": 1, "branch": 2, "scalar": 1,
    }  # fmt: skip
    assert (inner.multiply_adds, inner.loads, inner.stores, inner.stack) == (2, 4, 1, 2)
    assert (other.label, other.kinds["move"], other.kinds["branch"], other.stores) == (".LBB0_3", 1, 1, 1)


def test_every_instruction_is_of_one_kind() -> None:
    for loop in assembly_loops(BY_HAND).loops:
        assert sum(loop.kinds.values()) == len(loop.lines)
        assert tuple(loop.kinds) == KINDS


def test_rows_and_views() -> None:
    found = assembly_loops(BY_HAND)
    assert found.to_dicts()[0] | {"loop": ".LBB0_2", "multiply-add": 2, "stack": 2} == found.to_dicts()[0]
    assert str(found).splitlines()[0].split() == [
        "loop", "instructions", "multiply-add", "shuffle", "move", "vector", "arithmetic", "branch", "scalar", "loads",
        "stores", "stack",
    ]  # fmt: skip
    assert "vfmadd231ps" in checked(found._repr_html_())
    assert assembly_loops("").loops == ()


@pytest.mark.parametrize("rows", [2, 6])
def test_a_tile_has_as_many_multiply_adds_as_it_has_vectors(rows: int) -> None:
    s = tilewright.Schedule(matmul(12, 32, 64))
    write = s.cache_write("C", "local")
    i = s.loops(write)[0]
    i_0, _ = s.split(i, (None, rows))
    tile_i, tile_j, k = s.compute_at("C", i_0)
    j_0, j_1 = s.split(tile_j, (None, 16))
    s.reorder(k, tile_i, j_0, j_1)
    first = s.decompose_reduction("C", k)
    s.vectorize(j_1)
    s.unroll(j_0)
    s.unroll(tile_i)
    assert first in s.blocks()
    loop = s.inner_loops(AVX512).loops[0]
    vectors = rows * 32 // 16
    assert loop.multiply_adds % vectors == 0
    assert loop.multiply_adds >= vectors
    assert s.assembly(AVX512).count("vfmadd") >= loop.multiply_adds


def test_other_architectures_are_refused() -> None:
    with pytest.raises(TargetError, match=r"inner_loops.*: expected x86-64, got aarch64"):
        tilewright.Schedule(matmul(4, 4, 4)).inner_loops("llvm -mtriple=aarch64-linux-gnu")
