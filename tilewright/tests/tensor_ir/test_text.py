"""The text form: what prints parses back to the same function, and malformed text is refused with its line."""

from __future__ import annotations

import math

import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const, of_atom, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.errors import ParseError
from tilewright.tensor_ir.hints import Interleaved, Intrinsic, Joined, ParallelIf, Prefetch, Rolled, Stream, Trails
from tilewright.tensor_ir.ir import Alloc, Buffer, Cast, Const, Dyn, Func, Guard, Index, Load, Loop, Op, Seq, Store, seq
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.tensor_ir.programs import PROGRAMS

F32, I64 = dtypes.float32, dtypes.int64
GOLDEN = """\
def matmul(m: dim, A: float32[m, 8], B: float32[8, 3], C: out(float32[m, 3])):
    for C_i in range(m):
        for C_j in range(3):
            for k in range(8):
                with block("C", C_i_=spatial(m, C_i), C_j_=spatial(3, C_j), k_=reduce(8, k)):
                    init(float32(0.0))
                    C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_round_trip(name: str) -> None:
    f = PROGRAMS[name].make()
    assert parse_func(str(f)) == f


def test_golden() -> None:
    f = parse_func(GOLDEN)
    assert str(f) == GOLDEN
    assert f == PROGRAMS["matmul"].make().__class__(f.name, f.params, 1, ("m",), f.body)


def test_round_trip_of_everything() -> None:
    i, j = var("i"), var("j")
    idx = of_atom(Dyn(Load("X", (i,), I64)))
    least = of_atom(Dyn(Op("min", (Load("X", (i,), I64), Load("X", (const(0),), I64)), I64)))
    wide = of_atom(Dyn(Cast(Index(i // 4, I64), I64)))
    inner = Alloc(
        Buffer("t", F32, (const(4), minimum(6, var("n"))), "local", 16),
        Seq(
            (
                Store("t", (i % 4, idx * 2 + minimum(i, idx) - maximum(j, 3)), Const(-math.inf, F32)),
                Store("t", (least, wide), Const(math.nan, F32)),
                Store("t", (const(0), const(0)), Const(-1.5, F32)),
            )
        ),
    )
    guard = Guard(Op("less", (Index(i, I64), Const(-3, I64)), dtypes.bool_), Store("s", (), Const(True, dtypes.bool_)))
    hints = (ParallelIf(var("n") * 2 - minimum(6, var("n"))), Intrinsic("f"), Stream('a"\\b\n'))
    loops = Loop("i", var("n"), Loop("j", minimum(6, var("n") - i * 6), inner, "vectorized"), "parallel", hints)
    body = Alloc(
        Buffer("s", dtypes.bool_, ()),
        seq(
            Loop(
                "h",
                const(2),
                Seq(()),
                "unrolled",
                (Interleaved(), Joined(4), Prefetch(("X", "Y"), 2), Rolled(), Trails(3)),
            ),
            inner,
            loops,
            guard,
        ),
    )
    params = (Buffer("X", I64, (var("n"),)), Buffer("Y", F32, (), "global", 8))
    f = Func("f", params, 1, ("n",), body, ("Y",))
    assert parse_func(str(f)) == f


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("def f(:", "line 1"),
        ("x = 1", "expected one function"),
        ("def f(A: float32[4]):\n    A[0] = B[0]", "line 2: expected a buffer in scope"),
        ("def f(A: float33[4]):\n    pass", "line 1: unknown element type 'float33'"),
        ("def f(A: float32[4]):\n    while 1: pass", "line 2: expected a statement"),
        ("def f(A: float32[4]):\n    A[0] = add(A[0])", "line 2: expected 2 arguments"),
        ("def f(A: float32[4]):\n    for i in foo(3): pass", "line 2: expected range, parallel"),
        (
            "def f(A: float32[4]):\n    for i in range(3, grain=4): pass",
            "line 2: expected one of the hints if_, .*'grain=4'",
        ),
        ("def f(A: float32[4]):\n    for i in range(3, joined=True): pass", "line 2: expected one of the hints if_, "),
        ("def f(A: float32[4]):\n    for i in range(3, rolled=4): pass", "line 2: expected one of the hints if_, "),
        ("def f(A: float32[4]):\n    for i in range(3, stream=4): pass", "line 2: expected one of the hints if_, "),
        ("@attrs(note='x')\ndef f(A: float32[4]):\n    pass", "line 1: expected @attrs.parts=...."),
        ("def f(A: float32[4]):\n    A[0.5] = A[0]", "line 2: expected an index expression"),
        ("def f(A: float32[4]):\n    A[1 // 0] = A[0]", "line 2: expected an index expression"),
    ],
)
def test_malformed_text_is_refused(text: str, match: str) -> None:
    with pytest.raises(ParseError, match=match):
        parse_func(text)
