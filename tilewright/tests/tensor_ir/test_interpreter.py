"""The interpreter against numpy on every program, its error reports, and the meaning of operations and casts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError
from tilewright.tensor_ir.interpreter import InterpreterError, interpret, prepare
from tilewright.tensor_ir.ir import Alloc, Buffer, Const, Func, Guard, Index, Load, Loop, Op, Select, Stmt, Store, seq
from tilewright.tensor_ir.scalar_eval import caster, operation
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS
from tilewright.tests.tensor_ir.programs import PROGRAMS

F32 = dtypes.float32


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_numpy(name: str) -> None:
    p = PROGRAMS[name]
    f = p.make()
    for dims in p.sizes:
        args = p.args(dims)
        with np.errstate(over="ignore"):
            expected = p.expected(*args)
        for got, want in zip(interpret(f, args, dims), expected, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=p.tolerance, atol=p.tolerance)


def _func(body: Stmt, n: int = 4) -> Func:
    return Func("f", (Buffer("X", F32, (const(n),)), Buffer("Y", F32, (const(n),))), 1, (), body)


def _copy(shift: int = 0) -> Store:
    return Store("Y", (var("i"),), Load("X", (var("i") + shift,), F32))


X4 = np.arange(4, dtype=np.float32)


def test_index_out_of_bounds_names_buffer_and_index() -> None:
    with pytest.raises(InterpreterError, match=r"X\[4\]: index out of bounds of shape \[4\] \(read\)"):
        interpret(_func(Loop("i", const(4), _copy(1))), [X4], {})
    body = Loop("i", const(4), Store("Y", (var("i") + 1,), Const(1.0, F32)))
    with pytest.raises(InterpreterError, match=r"Y\[4\]: index out of bounds of shape \[4\] \(written\)"):
        interpret(_func(body), [X4], {})


def test_uninitialised_read_is_found() -> None:
    body = Alloc(
        Buffer("t", F32, (const(2),), "local"),
        Loop("i", const(4), Store("Y", (var("i"),), Load("t", (const(1),), F32))),
    )
    with pytest.raises(InterpreterError, match=r"t\[1\]: read before it was written"):
        interpret(_func(body), [X4], {})


def test_local_memory_is_fresh_in_each_iteration() -> None:
    t = Buffer("t", F32, (const(1),), "local")
    first = Guard(
        Op("equal", (Index(var("i"), dtypes.int64), Const(0, dtypes.int64)), dtypes.bool_),
        Store("t", (const(0),), Const(1.0, F32)),
    )
    body = Loop("i", const(4), Alloc(t, seq(first, Store("Y", (var("i"),), Load("t", (const(0),), F32)))))
    with pytest.raises(InterpreterError, match=r"t\[0\]: read before"):
        interpret(_func(body), [X4], {})


def test_unwritten_output_is_found() -> None:
    with pytest.raises(InterpreterError, match=r"output Y\[3\] was never written"):
        interpret(_func(Loop("i", const(3), _copy())), [X4], {})


def test_select_does_not_load_the_branch_not_taken() -> None:
    i = Index(var("i"), dtypes.int64)
    cond = Op("less", (i, Const(3, dtypes.int64)), dtypes.bool_)
    value = Select(cond, Load("X", (var("i") + 1,), F32), Const(9.0, F32))
    got = interpret(_func(Loop("i", const(4), Store("Y", (var("i"),), value))), [X4], {})
    assert got[0].tolist() == [1, 2, 3, 9]


def test_arguments_are_checked() -> None:
    f = _func(Loop("i", const(4), _copy()))
    with pytest.raises(InputError, match=r"X expects shape \[4\], got \[3\]"):
        interpret(f, [X4[:3]], {})
    with pytest.raises(InputError, match="X expects float32, got float64"):
        interpret(f, [X4.astype(np.float64)], {})
    with pytest.raises(InputError, match="expected 1 arrays, got 0"):
        interpret(f, [], {})


def test_deep_nests_and_deep_values_compile() -> None:
    value: object = Load("X", (var("i"),), F32)
    for _ in range(300):
        value = Op("neg", (value,), F32)
    body: Stmt = Store("Y", (var("i"),), value)
    for d in range(40):
        body = Loop(f"l{d}", const(1), body)
    got = interpret(_func(Loop("i", const(4), body)), [X4], {})
    np.testing.assert_array_equal(got[0], X4)


def test_a_program_runs_more_than_once() -> None:
    p = prepare(_func(Loop("i", const(4), _copy())))
    assert p.run([X4], {})[0].tolist() == p.run([X4], {})[0].tolist()


@pytest.mark.parametrize(
    ("source", "to", "value", "expected"),
    [
        ("float32", "int32", -2.7, -2),
        ("float32", "int8", 300.0, 44),
        ("float32", "bool", 0.5, True),
        ("float32", "bool", -0.0, False),
        ("int32", "uint8", -1, 255),
        ("int64", "int4", 9, -7),
        ("bool", "float32", True, 1.0),
        ("float32", "float8e4m3fn", 1e9, 448.0),
        ("float32", "float8e5m2", -1e9, -57344.0),
        ("float32", "float8e4m3fnuz", math.inf, 240.0),
        ("float32", "float16", 1e6, math.inf),
        ("float32", "float16", 0.1, float(np.float16(0.1))),
        ("float32", "float4e2m1", 100.0, 6.0),
        ("float32", "float8e8m0", 3.0, 4.0),
        ("float64", "float32", 1e300, math.inf),
        ("uint64", "int64", 2**64 - 1, -1),
        ("float64", "uint64", 1e19, 10**19),
    ],
)
def test_casts(source: str, to: str, value: float, expected: float) -> None:
    with np.errstate(all="ignore"):
        made = _value_of(value, dtypes.from_name(source))
        assert caster(dtypes.from_name(source), dtypes.from_name(to))(made) == expected


def _value_of(value: float, dtype: DType) -> object:
    return dtype.numpy.type(value) if dtype.name in ("float32", "float64") else value


@pytest.mark.parametrize("op", SCALAR_OPS)
def test_every_operation_has_a_meaning_for_each_of_its_kinds(op: str) -> None:
    info = SCALAR_OPS[op]
    for t in dtypes.ALL:
        if t.kind in info.kinds:
            one = True if t.kind == "b" else (np.float64(1) if t.name == "float64" else np.float32(1))
            arg = 1 if t.is_integer else one
            with np.errstate(all="ignore"):
                result = operation(op, t)(*[arg] * info.arity)
            assert isinstance(result, (bool, np.bool_)) or t.kind in "fiu"


@pytest.mark.parametrize(
    ("op", "dtype", "args", "expected"),
    [
        ("div", "int32", (-7, 2), -3),
        ("floor_mod", "int32", (-7, 3), 2),
        ("trunc_mod", "int32", (-7, 3), -1),
        ("add", "int8", (127, 1), -128),
        ("mul", "uint8", (16, 17), 16),
        ("neg", "int8", (-128,), -128),
        ("pow", "int32", (3, 4), 81),
        ("pow", "int32", (2, -1), 0),
        ("shift_left", "uint8", (255, 1), 254),
        ("shift_right", "uint8", (255, 9), 0),
        ("dot2i", "int32", (-1, 0x7FFF8000), 1),
        ("dot2i", "int32", (0x0003FFFE, 0x00050007), 15 - 14),
        ("dot4", "int32", (-1, -1), -1020),
        ("dot4", "int32", (0x01020304, 0x7F_80_05_FF), 127 - 256 + 15 - 4),
        ("dot4s", "int32", (0x01020304, 0x7F_80_05_FF), 127 - 256 + 15 - 4),
        ("dot4s", "int32", (-1, 0x7F7F_8080 - (1 << 32)), 0x7FFF - 0x8000),
        ("shift_right", "int8", (-128, 1), -64),
        ("bit_not", "uint8", (1,), 254),
    ],
)
def test_integer_arithmetic(op: str, dtype: str, args: tuple[int, ...], expected: int) -> None:
    assert operation(op, dtypes.from_name(dtype))(*args) == expected


def test_two_products_of_bfloat16() -> None:
    bits, dot2 = operation("bits", dtypes.bfloat16), operation("dot2", dtypes.int32)
    one, minus, large = (bits(np.float32(x)) for x in (1.5, -2.0, 2.0**100))
    assert (one, minus) == (0x3FC0, 0xC000)
    from_bits = operation("from_bits", dtypes.int32)
    assert (from_bits(one << 16), from_bits((minus << 16) - (1 << 32))) == (1.5, -2.0)
    signed = (minus << 16) - (1 << 32)  # as an int32
    assert dot2(one | one << 16, one | signed) == np.float32(1.5 * 1.5 - 3.0)
    with np.errstate(over="ignore"):
        assert dot2(large, large) == np.inf
    assert dot2(one, bits(np.float32(np.nan))) != dot2(one, one)


def test_clamp_takes_nan_for_the_lowest() -> None:
    clamp = operation("clamp", F32)
    found = [clamp(np.float32(x), np.float32(-2), np.float32(3)) for x in (np.nan, -np.inf, -2, 1, 3, 7, np.inf)]
    assert found == [-2, -2, -2, 1, 3, 3, 3]


def test_max_keeps_nan() -> None:
    nan, one = np.float32(np.nan), np.float32(1)
    for op in ("max", "min"):
        assert math.isnan(operation(op, F32)(nan, one))
        assert math.isnan(operation(op, F32)(one, nan))
