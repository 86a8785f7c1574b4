"""The native checks of indices against numpy: lengths around the vectors, strides, threads, the ends of the types."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.llvm.jit import compile_object
from tilewright.codegen.native.checks import CHECKS, check_imports, check_text
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.runtime.resources.thread_pool import PoolHandle

CHECK_TYPE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
every_type = pytest.mark.parametrize("dtype", [dtypes.from_name(n) for n in CHECKS], ids=str)


def check(x: np.ndarray, column: int, low: int, high: int, threads: int = 1) -> int | None:
    """The element of a column that is outside, as the runtime reads it off; None if all are in range."""
    symbol = CHECKS[dtypes.from_numpy(x.dtype).name]
    call = CHECK_TYPE(check_imports([dtypes.from_numpy(x.dtype)], None)[symbol])
    worst = np.full(2, 99, np.uint64)
    args = np.array([x.ctypes.data, worst.ctypes.data], np.uint64)
    dims = np.array([x.shape[0], x.shape[1], column, low, max(high - low + 1, 0)], np.int64)
    with PoolHandle(threads, thread_pool_code()).borrowed(True) as pool:
        bad = call(args.ctypes.data, dims.ctypes.data, pool)
    assert worst[1] == 99
    return int((worst[:1] + np.array([low], np.int64).view(np.uint64)).view(np.int64)[0]) if bad else None


@every_type
def test_random_arrays(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    ends = np.iinfo(dtype.numpy)
    for _ in range(400):
        count, columns, size = int(rng.integers(0, 70)), int(rng.integers(1, 4)), int(rng.integers(0, 9))
        low = int(rng.choice([-size, 0]))
        x = rng.integers(low, max(size, low + 1), (count, columns)).astype(dtype.numpy)
        for value in (size, low - 1, ends.min, ends.max):
            if count and rng.random() < 0.2:
                x[rng.integers(count), rng.integers(columns)] = value
        column = int(rng.integers(columns))
        part = x[:, column]
        bad = part[(part < low) | (part >= size)]
        got = check(x, column, low, size - 1)
        assert (got is None) == (bad.size == 0), (x, low, size)
        assert got is None or got in bad


@every_type
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_elements(dtype: DType, threads: int) -> None:
    x = np.zeros(((1 << 16) + 37, 1), dtype.numpy)
    assert check(x, 0, -1, 0, threads) is None
    for place in (0, 1000, 1 << 15, (1 << 16) + 36):
        for value in (1, -2):
            x[place] = value
            assert check(x, 0, -1, 0, threads) == value
            x[place] = 0


def test_an_empty_range() -> None:
    assert check(np.zeros((0, 1), np.int64), 0, 0, -1) is None
    assert check(np.zeros((1, 1), np.int64), 0, 0, -1) == 0
    assert check(np.zeros((9, 1), np.int32), 0, 0, -5) == 0


@every_type
@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"])
def test_other_targets(dtype: DType, target: str) -> None:
    other = parse_target(target)
    assert compile_object(check_text(dtype, other), other, 1, passes=False)
