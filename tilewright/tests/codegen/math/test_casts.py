"""Casts, loads and stores of every element type against numpy and ml_dtypes."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.core.arith.expr import const, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.ir import Buffer, Func, Load, Op
from tilewright.tests.codegen.helpers import apply_cast, apply_unary, emitted, nest

NUMERIC = [t for t in dtypes.ALL if t.kind in "fiub"]
NARROW = [t for t in NUMERIC if t.is_narrow_float]
SATURATING = ("float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz")


def patterns(t: DType) -> np.ndarray:
    """Every bit pattern of a narrow type, or values over the range of a wide one."""
    rng = np.random.default_rng(11)
    if t.kind == "b":
        return np.array([True, False, True], np.bool_)
    if t.bits <= 16:
        raw = np.arange(1 << t.bits, dtype=np.uint16 if t.itemsize == 2 else np.uint8)
        return raw.view(t.numpy)
    if t.is_integer:
        info = np.iinfo(t.numpy)
        edges = np.array([info.min, info.max, 0, 1, info.max - 1], t.numpy)
        return np.concatenate(
            [rng.integers(info.min, info.max, 500, dtype=t.numpy), edges, np.arange(100, dtype=t.numpy)]
        )
    small = rng.uniform(-20, 20, 500)
    wide = np.exp(rng.uniform(-90, 88, 1500)) * rng.choice([-1, 1], 1500)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 448, 464, 465, 57344, 61440, 1e-45, 5.96e-8]
    halves = np.arange(-300, 300) / 2
    return np.concatenate([small, wide, special, halves]).astype(t.numpy)


def expected_cast(data: np.ndarray, source: DType, to: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        if source.is_narrow_float:
            data = data.astype(np.float32)
        elif to.is_narrow_float and source.kind in "iub":
            data = data.astype(np.int64 if source.bits < 64 else data.dtype).astype(np.float32)
        if to.name in SATURATING:
            return onnx.numpy_helper.saturate_cast(data, to.numpy)
        if to.name == "float8e8m0":
            return onnx.numpy_helper.to_float8e8m0(data.astype(np.float32))
        if to.kind == "b":
            return data.astype(np.float32) != 0 if source.bits < 8 else data != 0
        if to.bits < 8 and to.is_integer and source.is_integer:
            return data.astype(np.int64).astype(np.int8).astype(to.numpy)
        if to.name == "uint64" and source.kind == "f":
            return np.where(data < 0, data.astype(np.int64).astype(np.uint64), data.astype(np.uint64))
        if to.is_integer and source.kind == "f":
            return data.astype(np.int64 if to.bits > 32 or to.name == "uint32" else np.int32).astype(to.numpy)
        return (
            data.astype(np.int64).astype(to.numpy) if source.bits < 8 and source.is_integer else data.astype(to.numpy)
        )


def in_range(data: np.ndarray, source: DType, to: DType) -> np.ndarray:
    """The values whose conversion numpy and ONNX define: what lies outside differs between CPUs."""
    if source.kind != "f":
        return data
    with np.errstate(all="ignore"):
        wide = data.astype(np.float64)
    if to.name == "float4e2m1":  # it has no NaN, and what becomes of one is unspecified
        return data[~np.isnan(wide)]
    if to.is_integer and to.bits >= 8:
        info = np.iinfo(to.numpy)
        return data[(wide > float(info.min) - 1) & (wide < float(info.max) + (1 if to.bits < 64 else 0))]
    if to.is_integer:
        return data[np.abs(wide) < 2**31]
    if to.name == "float8e8m0":  # the reference reads a sign only by accident; subnormals are rounded differently by it
        return data[(np.abs(wide) >= 2.0**-126) | (wide == 0)]
    return data


@pytest.mark.parametrize("to", NUMERIC, ids=str)
@pytest.mark.parametrize("source", NUMERIC, ids=str)
def test_cast(source: DType, to: DType) -> None:
    if source == to:
        pytest.skip("a cast to the same type is dropped; see test_copy")
    data = in_range(patterns(source), source, to)
    got = apply_cast(data, source, to)
    expected = expected_cast(data, source, to)
    assert got.dtype == expected.dtype
    if to.is_narrow_float:
        same = got.view(np.uint16 if to.itemsize == 2 else np.uint8) == expected.view(
            np.uint16 if to.itemsize == 2 else np.uint8
        )
        with np.errstate(all="ignore"):
            both_nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
        bad = ~(same | both_nan)
        assert not bad.any(), (data[bad][:5], got[bad][:5], expected[bad][:5])
    else:
        np.testing.assert_array_equal(got.astype(np.int8) if to.bits < 8 else got,
                                      expected.astype(np.int8) if to.bits < 8 else expected)  # fmt: skip


@pytest.mark.parametrize("t", dtypes.ALL, ids=str)
@pytest.mark.parametrize("vector", [None, 4])
def test_copy(t: DType, vector: int | None) -> None:
    if t.kind == "s":
        pytest.skip("strings stay on the host")
    data = np.arange(11).astype(t.numpy) if t.kind == "c" else patterns(t)[:200]
    got = apply_unary(lambda x: x, data, t, t, vector)
    assert got.tobytes() == data.tobytes()


def test_float_outside_the_range_of_int32_is_the_least() -> None:
    data = np.array([1e10, -1e10, np.nan, np.inf, 2147483648.0, -2147483648.0], np.float32)
    got = apply_cast(data, dtypes.float32, dtypes.int32)
    assert got.tolist() == [-(2**31)] * 6


@pytest.mark.parametrize("vector", [None, 4, 8, 16, 32, 64])
def test_any_number_of_lanes_is_narrowed(vector: int | None) -> None:
    """Numbers below normal ones aside, of which CPUs make 0 or what they are rounded to."""
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, 1000, np.uint32).view(np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, 1.00390625], np.float32)
    x = np.append(x[~(np.abs(x) < np.finfo(np.float32).tiny)], special)
    got = apply_unary(lambda v: Op("narrow", (v,), dtypes.bfloat16), x, dtypes.float32, dtypes.bfloat16, vector)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got.astype(np.float32), x.astype(dtypes.bfloat16.numpy).astype(np.float32))


@pytest.mark.parametrize("vector", [16, 32, 64])
def test_registers_of_lanes_are_narrowed_by_an_instruction(vector: int) -> None:
    n = const(4 * vector)
    a, c = Buffer("A", dtypes.float32, (n,)), Buffer("C", dtypes.bfloat16, (n,))
    value = Op("narrow", (Load("A", (var("x"),), dtypes.float32),), dtypes.bfloat16)
    func = Func("narrowed", (a, c), 1, (), nest(value, c, vector))
    text = emitted(func, parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"))
    assert text.count("@llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float> %") == vector // 16
