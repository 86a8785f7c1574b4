"""Each invariant has a broken program; the good programs pass; messages stay short."""

from __future__ import annotations

import dataclasses

import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const, of_atom
from tilewright.core.errors import VerifyError
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Cast, Const, Dyn, Func, Load, Loop, Op, Seq, Stmt, Store, seq
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import CHECKS, unproved_accesses, verify
from tilewright.tests.tensor_ir.programs import PROGRAMS

F32 = dtypes.float32


def _of(body: str, params: str = "X: float32[8], Y: out(float32[8])", dims: str = "") -> Func:
    return parse_func(f"def f({dims}{params}):\n" + "\n".join("    " + line for line in body.strip("\n").split("\n")))


def _with(body: Stmt) -> Func:
    return Func("f", (Buffer("X", F32, (const(8),)), Buffer("Y", F32, (const(8),))), 1, (), body)


COPY = 'with block("Y", a=spatial(8, i)):\n    Y[a] = X[a]'


def _nest(head: str, body: str = COPY) -> str:
    return f"{head}\n" + "\n".join("    " + line for line in body.split("\n"))


GOOD = _of(_nest("for i in range(8):"))
_block = Block("Y", (), (), "Y", (const(0),), Const(1.0, F32))
BROKEN: list[tuple[int, Func, str]] = [
    (1, _with(seq(_block, _block)), "Y: the name of a block must be unique"),
    (1, _with(Loop("a b", const(8), _block)), "a b: the name of a loop must be an identifier"),
    (1, _of(_nest("for i in range(8):", "pass"), dims="i: dim, "), "i: the name of a dim must not be"),
    (2, _of("Y[i] = X[0]"), "i: the variable is not in scope"),
    (2, _of(_nest("for i in range(8):", COPY.replace("X[a]", "X[i]"))), "i: the variable is not in scope in block Y"),
    (2, _with(Store("Y", (const(0),), Load("Z", (const(0),), F32))), "Z: the buffer is not in scope"),
    (3, _of("Y[0, 0] = X[0]"), "Y: expected 1 indices, got 2"),
    (4, _with(Store("Y", (const(0),), Const(1, dtypes.int32))), "Y: holds float32, but int32 is stored"),
    (4, _with(Store("Y", (const(0),), Load("X", (const(0),), dtypes.int32))), "X: loaded as int32"),
    (
        4,
        _with(Store("Y", (of_atom(Dyn(Load("X", (const(0),), F32))),), Const(1.0, F32))),
        "an index must be an integer",
    ),
    (5, _with(Store("Y", (const(0),), Op("sinus", (Const(1.0, F32),), F32))), "sinus: no such scalar operation"),
    (5, _with(Store("Y", (const(0),), Op("add", (Const(1.0, F32),), F32))), "add: expected 2 arguments, got 1"),
    (
        5,
        _with(Store("Y", (const(0),), Cast(Op("exp", (Const(1, dtypes.int32),), dtypes.int32), F32))),
        "exp: not defined for int32",
    ),
    (6, _with(dataclasses.replace(_block, bindings=(const(0),))), "Y: expected 0 bindings, got 1"),
    (7, _of(_nest("for i in range(8):", COPY.replace("spatial", "reduce"))), "Y: a reduction block must load"),
    (7, _with(dataclasses.replace(_block, init=Const(0.0, F32))), "Y: a block without reduce axes"),
    (8, _of(_nest("for i in vectorized(n):"), dims="n: dim, "), "i: a vectorized loop needs a constant upper bound"),
    (9, _of(_nest("for j in unrolled(2):", _nest("for i in parallel(8):"))), "only serial loops may stand around"),
    (9, _of(_nest("with local(float32[1]) as t:", _nest("for i in parallel(8):"))), "must not stand inside local"),
    (
        10,
        _of(_nest("for i in range(8):", "t = shared(float32[1])\n" + COPY)),
        "t: a global buffer must be allocated at",
    ),
    (11, _with(Seq((_block,))), "sequence: a sequence of length 1"),
    (11, _with(Seq((Seq(()), _block))), "sequence: a sequence stands directly in a sequence"),
    (12, _of(_nest("for i in range(8):", COPY.replace("X[a]", "X[a + 1]"))), r"index i \+ 1 reaches 8, beyond the end"),
    (12, _of(_nest("for i in range(8):", COPY.replace("X[a]", "X[a - 1]"))), r"index i - 1 reaches -1, below 0"),
    (12, _of(_nest("for i in range(9):")), "axis a = i reaches 8, beyond the end of extent 8"),
    (13, _of("X[0] = X[0]"), "X: an input is written"),
    (13, _of("pass"), "Y: an output is never written"),
    (14, _of(_nest("for i in range(-1):")), "i: the extent -1 is negative"),
    (14, _of(_nest("for i in range(8):", "t = local(float32[i])\n" + COPY)), "shape of t: the extent i uses i"),
    (14, _of(_nest("for i in range(N[0]):"), "N: int64[1], X: float32[8], Y: out(float32[8])"), "reads memory"),
    (
        15,
        _of(_nest("for i in parallel(8):", COPY.replace("spatial", "ordered"))),
        "axis a must run in order, but loop i",
    ),
    (16, _of(_nest('for i in opaque(8, intrinsic="none"):')), "i: the loop is not intrinsic none: there is no such"),
    (16, _of(_nest('for i in opaque(8, intrinsic="transpose_8x8_f32"):')), "it has a block where transpose_8x8"),
    (16, _of(_nest('for i in range(8, intrinsic="transpose_8x8_f32"):')), "the loop must be opaque"),
]


@pytest.mark.parametrize(("number", "func", "match"), BROKEN)
def test_broken_programs(number: int, func: Func, match: str) -> None:
    with pytest.raises(VerifyError, match=rf"(?s)invariant {number}: f: .*{match}") as caught:
        verify(func)
    assert len(str(caught.value).splitlines()) <= 21


def test_every_invariant_has_a_broken_program() -> None:
    assert {n for n, _, _ in BROKEN} == set(CHECKS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_good_programs(name: str) -> None:
    verify(PROGRAMS[name].make())


def test_good_hand_written_programs() -> None:
    verify(GOOD)
    verify(_of(_nest("for i in range(n - 1):", COPY.replace("X[a]", "X[a + 1]")), dims="n: dim, "))


def test_messages_show_at_most_twenty_lines() -> None:
    body = seq(*(Loop(f"l{k}", const(1), dataclasses.replace(_block, name=f"b{k}")) for k in range(20)))
    with pytest.raises(VerifyError) as caught:
        verify(Func("f", _with(body).params, 3, (), Alloc(Buffer("t", F32, ()), body)))
    assert len(str(caught.value).splitlines()) == 21


def test_unproved_accesses() -> None:
    assert unproved_accesses(PROGRAMS["matmul"].make()) == ()
    assert unproved_accesses(PROGRAMS["conv2d"].make()) != ()
    assert "idx" in unproved_accesses(PROGRAMS["gather"].make())[0]
