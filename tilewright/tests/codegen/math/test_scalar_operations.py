"""Scalar operations on all kinds of element types against numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.math.functions import MATH
from tilewright.codegen.math.scalar_operations import OPERATIONS
from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.ir import Const, Op
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS
from tilewright.tests.codegen.helpers import apply_binary, apply_op, apply_unary

INTEGERS = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int32, dtypes.int64, dtypes.uint64]
FLOATS = [dtypes.float32, dtypes.float64]
EDGES = np.array([0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan, 0.5, -0.5, 7, -3])


def pairs(t: DType) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    if t.kind == "f":
        a, b = (x.ravel().astype(t.numpy) for x in np.meshgrid(EDGES, EDGES))
        more = rng.normal(size=(2, 300)).astype(t.numpy) * 10
        return np.concatenate([a, more[0]]), np.concatenate([b, more[1]])
    info = np.iinfo(t.numpy)
    a = rng.integers(info.min, info.max, 300, dtype=t.numpy, endpoint=True)
    b = rng.integers(max(info.min, -9), 9, 300).astype(t.numpy)
    return a, b


NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("t", [*INTEGERS, *FLOATS], ids=str)
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_binary(name: str, t: DType) -> None:
    a, b = pairs(t)
    with np.errstate(all="ignore"):
        expected = NUMPY[name](a, b)
    got = apply_binary(name, a, b, t, dtypes.bool_ if SCALAR_OPS[name].result == "bool" else t)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("t", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "reference"), [("trunc_mod", np.fmod), ("floor_mod", np.mod), ("div", np.divide)])
def test_float_division(name: str, reference: np.ufunc, t: DType) -> None:
    a, b = pairs(t)
    big = np.array([1e30, 1e20, -1e15, 123456.789, 5e-40], t.numpy)
    a, b = np.concatenate([a, big]), np.concatenate([b, np.array([3, 0.1, 7, 0.001, 1.0], t.numpy)])
    with np.errstate(all="ignore"):
        expected = reference(a, b)
    got = apply_binary(name, a, b, t)
    np.testing.assert_array_equal(got, expected)


def any_floats(t: DType) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of any magnitude, and the extreme ones in pairs."""
    rng = np.random.default_rng(6)
    info = np.finfo(t.numpy)
    ends = [info.max, -info.max, info.max / 3, info.tiny, info.tiny * 1.7, info.smallest_subnormal, 0, np.inf, np.nan]
    pairs = np.stack([x.ravel() for x in np.meshgrid(ends, ends)]).astype(t.numpy)
    bits = rng.integers(0, 2**t.bits, (2, 3000), np.uint32 if t.bits == 32 else np.uint64)
    divisors = rng.integers(1, 2**20, (1, 500)).astype(t.numpy)
    below = np.concatenate([np.nextafter(divisors * 3, np.zeros_like(divisors)), divisors])
    return tuple(np.concatenate([pairs, bits.view(t.numpy), below], axis=1))


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("vector", [None, 8])
@pytest.mark.parametrize("t", FLOATS, ids=str)
@pytest.mark.parametrize(("name", "reference"), [("trunc_mod", np.fmod), ("floor_mod", np.mod)])
def test_remainders_of_any_numbers(name: str, reference: np.ufunc, t: DType, vector: int | None, is_old: bool) -> None:
    """``is_old``: on a CPU without FMA."""
    host = detect_host()
    target = parse_target("llvm -mcpu=x86-64") if is_old and host.triple.startswith("x86_64") else host
    a, b = any_floats(t)
    with np.errstate(all="ignore"):
        expected = reference(a, b)
    got = apply_binary(name, a, b, t, vector=vector, target=target)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_integer_division(t: DType) -> None:
    a, b = pairs(t)
    b[b == 0] = 3
    info = np.iinfo(t.numpy)
    if t.kind == "i":
        a = np.concatenate([a, [info.min]]).astype(t.numpy)
        b = np.concatenate([b, [-1]]).astype(t.numpy)
    with np.errstate(all="ignore"):
        floor = np.floor_divide(a, b)
        exact = np.where((floor < 0) & (floor * b != a), floor + 1, floor).astype(t.numpy)
        np.testing.assert_array_equal(apply_binary("floor_mod", a, b, t), np.mod(a, b))
        np.testing.assert_array_equal(apply_binary("trunc_mod", a, b, t), np.fmod(a, b))
    np.testing.assert_array_equal(apply_binary("div", a, b, t), exact)


def test_division_by_zero_does_not_stop_the_process() -> None:
    a, zero = np.arange(20, dtype=np.int32), np.zeros(20, np.int32)
    assert not apply_binary("div", a, zero, dtypes.int32).any()


@pytest.mark.parametrize("t", INTEGERS, ids=str)
def test_integer_power(t: DType) -> None:
    a = np.array([0, 1, 2, 3, 5, 7], t.numpy)
    base, exponent = (x.ravel() for x in np.meshgrid(a, a))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(apply_binary("pow", base, exponent, t), np.power(base, exponent))


@pytest.mark.parametrize("t", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("name", "reference"),
    [("floor", np.floor), ("ceil", np.ceil), ("round", np.round), ("trunc", np.trunc), ("abs", np.abs),
     ("neg", np.negative),
     ("sqrt", np.sqrt), ("sign", np.sign)],
)  # fmt: skip
def test_float_unary(name: str, reference: np.ufunc, t: DType) -> None:
    x = np.concatenate([EDGES, np.linspace(-7, 7, 57)]).astype(t.numpy)
    with np.errstate(all="ignore"):
        expected = reference(x)
    np.testing.assert_array_equal(apply_op(name, x, t), expected)


@pytest.mark.parametrize("t", [dtypes.float16, dtypes.bfloat16], ids=str)
def test_narrow_floats_compute_in_float32(t: DType) -> None:
    a, b = (np.linspace(-3, 3, 50).astype(t.numpy), np.linspace(1, 5, 50).astype(t.numpy))
    expected = (a.astype(np.float32) * b.astype(np.float32)).astype(t.numpy)
    got = apply_binary("mul", a, b, t)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("t", [dtypes.int4, dtypes.uint4, dtypes.int2, dtypes.uint2], ids=str)
def test_sub_byte_arithmetic_wraps(t: DType) -> None:
    values = np.arange(1 << t.bits, dtype=np.uint8).view(t.numpy)
    a, b = (x.ravel() for x in np.meshgrid(values, values))
    expected = (a.astype(np.int32) + b.astype(np.int32)).astype(t.numpy)
    assert apply_binary("add", a, b, t).tobytes() == expected.tobytes()


@pytest.mark.parametrize("t", [dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int64], ids=str)
def test_bits_and_shifts(t: DType) -> None:
    a, _ = pairs(t)
    s = (np.arange(a.size) % t.bits).astype(t.numpy)
    for name, f in (("bit_and", np.bitwise_and), ("bit_or", np.bitwise_or), ("bit_xor", np.bitwise_xor)):
        np.testing.assert_array_equal(apply_binary(name, a, s, t), f(a, s))
    np.testing.assert_array_equal(apply_binary("shift_left", a, s, t), np.left_shift(a, s))
    np.testing.assert_array_equal(apply_binary("shift_right", a, s, t), np.right_shift(a, s))
    np.testing.assert_array_equal(apply_op("bit_not", a, t), np.invert(a))


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 0.0])
def test_constant_powers(power: float) -> None:
    x = np.concatenate([EDGES, np.linspace(0, 7, 57)]).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.power(x, np.full(x.shape, power, np.float32))
    got = apply_unary(
        lambda v: Op("pow", (v, Const(power, dtypes.float32)), dtypes.float32), x, dtypes.float32, dtypes.float32
    )
    np.testing.assert_allclose(got, expected, rtol=3e-7)


def test_clamp_takes_nan_for_the_lowest() -> None:
    x = np.concatenate([EDGES, np.linspace(-7, 7, 57)]).astype(np.float32)
    low, high = Const(-2.0, dtypes.float32), Const(3.0, dtypes.float32)
    got = apply_unary(lambda v: Op("clamp", (v, low, high), dtypes.float32), x, dtypes.float32, dtypes.float32)
    np.testing.assert_array_equal(got, np.where(np.isnan(x), np.float32(-2), np.clip(x, -2, 3)))


def test_four_products_of_bytes() -> None:
    a, _ = pairs(dtypes.int32)
    b = np.concatenate([a[1:], np.array([-1, 0x7F7F7F7F], np.int32)])[: len(a)]
    bytes_ = a.view(np.uint8).reshape(-1, 4).astype(np.int64), b.view(np.int8).reshape(-1, 4).astype(np.int64)
    np.testing.assert_array_equal(apply_binary("dot4", a, b, dtypes.int32), (bytes_[0] * bytes_[1]).sum(1))


def test_sums_of_two_products_of_bytes_saturate() -> None:
    a, _ = pairs(dtypes.int32)
    b = np.concatenate([a[1:], np.array([-1, 0x7F7F7F7F], np.int32)])[: len(a)]
    products = a.view(np.uint8).astype(np.int64) * b.view(np.int8).astype(np.int64)
    wanted = np.clip(products.reshape(-1, 2, 2).sum(2), -(1 << 15), (1 << 15) - 1).sum(1)
    assert (wanted != products.reshape(-1, 4).sum(1)).any()
    np.testing.assert_array_equal(apply_binary("dot4s", a, b, dtypes.int32), wanted)


def test_two_products_of_int16() -> None:
    a, _ = pairs(dtypes.int32)
    b = np.concatenate([a[1:], a[:1]])
    halves = [x.view(np.int16).reshape(-1, 2).astype(np.int64) for x in (a, b)]
    want = (halves[0] * halves[1]).sum(1).astype(np.int32)
    np.testing.assert_array_equal(apply_binary("dot2i", a, b, dtypes.int32), want)


def test_two_products_of_bfloat16() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((40, 2)).astype(ml_dtypes.bfloat16) for _ in range(2))
    x[:3, 0], y[:3, 1] = (np.inf, np.nan, 0.0), (1.0, -np.inf, 3e38)
    words = (v.view(np.uint16).reshape(-1).view(np.int32) for v in (x, y))
    with np.errstate(all="ignore"):
        want = (x.astype(np.float64) * y.astype(np.float64)).sum(1)
    a, b = words
    got = apply_binary("dot2", a, b, dtypes.int32, dtypes.float32)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_every_operation_has_an_emitter() -> None:
    assert set(SCALAR_OPS) == (set(OPERATIONS) | set(MATH)) - {"pow_float"}
