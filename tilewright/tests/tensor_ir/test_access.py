"""Addresses and strides after bindings and simplification, and the look-ups in scopes."""

from __future__ import annotations

import pytest

from tilewright.core.arith.expr import ZERO, const
from tilewright.core.arith.parse import parse
from tilewright.core.errors import ScheduleError
from tilewright.tensor_ir.analysis import scopes
from tilewright.tensor_ir.analysis.access import address, linear_address, stride
from tilewright.tensor_ir.ir import Store
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.tensor_ir.programs import PROGRAMS

TILED = parse_func("""
def f(M: dim, N: dim, acc: float32[M, (N + 15)//16, 16], C: out(float32[M, N])):
    for io in range((M + 5)//6):
        for jo in range((N + 15)//16):
            for ii in range(min(6, M - 6*io)):
                for ji in range(min(16, N - 16*jo)):
                    with block("C", i=spatial(M, 6*io + ii), j=spatial(N, 16*jo + ji)):
                        C[i, j] = acc[i, j//16, j % 16]
""")


def test_strides_of_a_packed_read() -> None:
    block = scopes.find_block(TILED, "C")
    ranges = scopes.loop_ranges(scopes.loops_around(TILED, "C"))
    env = scopes.block_environment(block)
    load = scopes.loads_of(block)[0]
    at = address(load, scopes.find_buffer(TILED, "acc").shape, env, ranges)
    assert stride(at, "ji", ranges) == 1
    assert stride(at, "jo", ranges) == 16
    assert stride(at, "ii", ranges) == parse("((N + 15)//16)*16")
    store = address(Store("C", block.indices, block.value), scopes.find_buffer(TILED, "C").shape, env, ranges)
    assert store == parse("(6*io + ii)*N + 16*jo + ji")
    assert stride(store, "io", ranges) == parse("6*N")
    assert stride(store, "other", ranges) == ZERO


def test_linear_address() -> None:
    assert linear_address((), ()) == 0
    assert linear_address((parse("i"), parse("j")), (const(3), parse("n"))) == parse("i*n + j")
    assert stride(parse("i//2"), "i", {}) is None


def test_scopes() -> None:
    f = PROGRAMS["softmax"].make()
    assert [s.var for s in scopes.loops_around(f, "e")] == ["e_i", "e_j"]
    assert [s.var for s in scopes.loops_in(scopes.loop_path(f, "e_j"))] == ["e_i", "e_j"]
    assert [b.name for b in scopes.consumers(f, "e")] == ["total", "Y"]
    assert [b.name for b in scopes.buffers(f)] == ["X", "Y", "top", "e", "total"]
    assert [b.name for b in scopes.blocks_in(scopes.find_loop(f, "e_i"))] == ["e"]
    assert scopes.path_to(f.body, lambda s: False) == ()


@pytest.mark.parametrize("look", ["find_loop", "find_block", "find_buffer", "loops_around"])
def test_missing_names_are_refused(look: str) -> None:
    with pytest.raises(ScheduleError, match=r"expected the name of a \w+ of softmax, got 'nothing'; it has: "):
        getattr(scopes, look)(PROGRAMS["softmax"].make(), "nothing")
