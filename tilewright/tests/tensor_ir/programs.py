"""Small functions of many kinds, with arguments and numpy results, for every test that transforms or runs functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.tensor_ir.compute import (
    build_func,
    compute,
    constant,
    in_range,
    index_value,
    max_over,
    op,
    placeholder,
    reduce_axis,
    select,
    self_load,
    sum_over,
)
from tilewright.tensor_ir.ir import Func

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Program:
    """``make()`` builds the function; ``sizes`` are the dims to try; ``expected`` is numpy's opinion."""

    name: str
    make: Callable[[], Func]
    sizes: tuple[Mapping[str, int], ...]
    expected: Callable[..., Arrays]
    ranges: Mapping[str, tuple[int, int]]  # value ranges of integer inputs
    tolerance: float = 1e-5

    def args(self, dims: Mapping[str, int], seed: int = 0) -> Arrays:
        """Random inputs of the right shapes."""
        f = self.make()
        rng = np.random.default_rng(seed)
        out = []
        for b in f.params[: len(f.params) - f.outputs]:
            shape = tuple(s.evaluate(dims) for s in b.shape)
            if b.dtype.kind == "f":
                out.append(rng.uniform(-2, 2, shape).astype(b.dtype.numpy))
            elif b.dtype.kind == "b":
                out.append(rng.integers(0, 2, shape).astype(bool))
            else:
                low, high = self.ranges.get(b.name, (0 if b.dtype.kind == "u" else -100, 100))
                out.append(rng.integers(low, high, shape).astype(b.dtype.numpy))
        return out


def matmul(m: object = 6, n: object = 10, k: object = 7) -> Func:
    def dim(x: object) -> object:
        return var(x) if isinstance(x, str) else x

    a = placeholder("A", (dim(m), dim(k)), dtypes.float32)
    b = placeholder("B", (dim(k), dim(n)), dtypes.float32)
    r = reduce_axis(dim(k), "k")
    c = compute("C", (dim(m), dim(n)), lambda i, j: sum_over(a[i, r] * b[r, j], r))
    return build_func("matmul", [a, b], [c])


def matmul_packed() -> Func:
    """C = relu(A @ B + bias), with B packed in panels of four columns, accumulated apart."""
    m, n, k = 5, 10, 7
    a = placeholder("A", (m, k), dtypes.float32)
    b = placeholder("B", (k, n), dtypes.float32)
    bias = placeholder("bias", (n,), dtypes.float32)
    packed = compute(
        "Bp", (3, k, 4), lambda o, p, i: select(in_range(o * 4 + i, 0, n), b[p, o * 4 + i], constant(0, dtypes.float32))
    )
    r = reduce_axis(k, "k")
    acc = compute("acc", (m, 3, 4), lambda i, o, j: sum_over(a[i, r] * packed[o, r, j], r))
    c = compute("C", (m, n), lambda i, j: op("max", acc[i, j // 4, j % 4] + bias[j], 0.0))
    return build_func("matmul_packed", [a, b, bias], [c], [packed, acc])


def conv2d() -> Func:
    x = placeholder("X", (2, 3, 7, 6), dtypes.float32)
    w = placeholder("W", (4, 3, 3, 3), dtypes.float32)
    pad = compute(
        "pad",
        (2, 3, 9, 8),
        lambda b, c, h, v: select(
            in_range(h - 1, 0, 7) & in_range(v - 1, 0, 6), x[b, c, h - 1, v - 1], constant(0, dtypes.float32)
        ),
    )
    ci, kh, kw = reduce_axis(3, "ci"), reduce_axis(3, "kh"), reduce_axis(3, "kw")
    y = compute(
        "Y",
        (2, 4, 4, 3),
        lambda b, o, h, v: sum_over(pad[b, ci, h * 2 + kh, v * 2 + kw] * w[o, ci, kh, kw], ci, kh, kw),
    )
    return build_func("conv2d", [x, w], [y], [pad])


def conv2d_expected(x: np.ndarray, w: np.ndarray) -> Arrays:
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    out = np.zeros((2, 4, 4, 3), np.float32)
    for h in range(4):
        for v in range(3):
            out[:, :, h, v] = np.einsum("bchw,ochw->bo", p[:, :, 2 * h : 2 * h + 3, 2 * v : 2 * v + 3], w)
    return [out]


def gather() -> Func:
    n = var("n")
    data = placeholder("data", (5, 4), dtypes.float32)
    idx = placeholder("idx", (n,), dtypes.int64)
    out = compute("out", (n, 4), lambda i, j: data[select(idx[i] < 0, idx[i] + 5, idx[i]).as_index(), j])
    return build_func("gather", [data, idx], [out])


def cumsum() -> Func:
    x = placeholder("X", (3, var("n")), dtypes.float32)
    y = compute(
        "Y",
        (3, var("n")),
        lambda i, j: select(index_value(j).equal(0), x[i, j], self_load("Y", dtypes.float32, i, j - 1) + x[i, j]),
        ordered=(1,),
    )
    return build_func("cumsum", [x], [y])


def softmax() -> Func:
    m, n = var("m"), 9
    x = placeholder("X", (m, n), dtypes.float32)
    r, q = reduce_axis(n, "r"), reduce_axis(n, "q")
    top = compute("top", (m,), lambda i: max_over(x[i, r], r))
    e = compute("e", (m, n), lambda i, j: op("exp", x[i, j] - top[i]))
    total = compute("total", (m,), lambda i: sum_over(e[i, q], q))
    y = compute("Y", (m, n), lambda i, j: e[i, j] / total[i])
    return build_func("softmax", [x], [y], [top, e, total])


def transpose() -> Func:
    x = placeholder("X", (2, 3, var("n")), dtypes.float32)
    y = compute("Y", (var("n"), 2, 3), lambda i, j, k: x[j, k, i])
    return build_func("transpose", [x], [y])


def reshape() -> Func:
    x = placeholder("X", (4, 6), dtypes.int32)
    y = compute("Y", (3, 8), lambda i, j: x[(i * 8 + j) // 6, (i * 8 + j) % 6])
    return build_func("reshape", [x], [y])


def mixed_types() -> Func:
    n = var("n")
    a = placeholder("a", (n,), dtypes.uint8)
    b = placeholder("b", (n,), dtypes.float16)
    s = compute("s", (n,), lambda i: a[i].cast(dtypes.float32) * 0.5 + b[i].cast(dtypes.float32))
    h = compute("h", (n,), lambda i: s[i].cast(dtypes.float16))
    flag = compute("flag", (n,), lambda i: (s[i] > 10.0) | op("is_nan", s[i]))
    return build_func("mixed_types", [a, b], [h, flag], [s])


def int_wrap() -> Func:
    a = placeholder("a", (8,), dtypes.int8)
    y = compute("y", (8,), lambda i: a[i] * a[i] + 100)
    return build_func("int_wrap", [a], [y])


def quantized_matmul() -> Func:
    a = placeholder("a", (4, 5), dtypes.uint8)
    b = placeholder("b", (5, 6), dtypes.int8)
    r = reduce_axis(5, "k")
    acc = compute("acc", (4, 6), lambda i, j: sum_over(a[i, r].cast(dtypes.int32) * b[r, j].cast(dtypes.int32), r))
    y = compute("y", (4, 6), lambda i, j: acc[i, j].cast(dtypes.float32) * 0.25)
    return build_func("quantized_matmul", [a, b], [y], [acc])


def broadcast_add() -> Func:
    a = placeholder("a", (var("m"), 1, 5), dtypes.float32)
    b = placeholder("b", (3, 1), dtypes.float32)
    y = compute("y", (var("m"), 3, 5), lambda i, j, k: a[i, 0, k] + b[j, 0])
    return build_func("broadcast_add", [a, b], [y])


def scalar() -> Func:
    a = placeholder("a", (), dtypes.float32)
    y = compute("y", (), lambda: a[()] * 2.0 + 1.0)
    return build_func("scalar", [a], [y])


def mean_variance() -> Func:
    n = var("n")
    x = placeholder("X", (3, n), dtypes.float32)
    r, q = reduce_axis(n, "r"), reduce_axis(n, "q")
    total = compute("total", (3,), lambda i: sum_over(x[i, r], r))
    mean = compute("mean", (3,), lambda i: total[i] / index_value(n).cast(dtypes.float32))
    var_ = compute("sq", (3,), lambda i: sum_over((x[i, q] - mean[i]) * (x[i, q] - mean[i]), q))
    return build_func("mean_variance", [x], [mean, var_], [total, mean])


def argmax() -> Func:
    """An ordered axis that carries an index: the position of the greatest element so far."""
    x = placeholder("X", (4, 6), dtypes.float32)
    best = compute(
        "best",
        (4, 6),
        lambda i, j: select(
            index_value(j).equal(0),
            index_value(j),
            select(
                x[i, j] > x[i, self_load("best", dtypes.int64, i, j - 1).as_index()],
                index_value(j),
                self_load("best", dtypes.int64, i, j - 1),
            ),
        ),
        ordered=(1,),
    )
    y = compute("Y", (4,), lambda i: best[i, 5])
    return build_func("argmax", [x], [y], [best])


def pool_sum() -> Func:
    """Pooling with a stride that does not divide, and elementwise work before and after."""
    x = placeholder("X", (3, 11), dtypes.float32)
    t = compute("t", (3, 11), lambda c, i: op("tanh", x[c, i]))
    r = reduce_axis(3, "w")
    p = compute("p", (3, 5), lambda c, i: sum_over(t[c, i * 2 + r], r))
    y = compute("Y", (3, 5), lambda c, i: p[c, i] * constant(1 / 3, dtypes.float32))
    return build_func("pool_sum", [x], [y], [t, p])


def _softmax_expected(x: np.ndarray) -> Arrays:
    e = np.exp(x - x.max(1, keepdims=True))
    return [e / e.sum(1, keepdims=True)]


def _mixed_expected(a: np.ndarray, b: np.ndarray) -> Arrays:
    s = a.astype(np.float32) * np.float32(0.5) + b.astype(np.float32)
    return [s.astype(np.float16), (s > 10) | np.isnan(s)]


_N = ({"n": 1}, {"n": 7}, {"n": 0})
_M = ({"m": 1}, {"m": 5})
PROGRAMS: dict[str, Program] = {
    p.name: p
    for p in (
        Program("matmul", matmul, ({},), lambda a, b: [a @ b], {}),
        Program(
            "matmul_symbolic",
            lambda: matmul("m", "n", "p"),
            ({"m": 5, "n": 9, "p": 4}, {"m": 1, "n": 16, "p": 1}),
            lambda a, b: [a @ b],
            {},
        ),
        Program("matmul_packed", matmul_packed, ({},), lambda a, b, c: [np.maximum(a @ b + c, 0)], {}),
        Program("conv2d", conv2d, ({},), conv2d_expected, {}, 1e-4),
        Program("gather", gather, _N, lambda d, i: [d[i]], {"idx": (-5, 5)}),
        Program("cumsum", cumsum, _N, lambda x: [np.cumsum(x, 1, dtype=np.float32)], {}),
        Program("softmax", softmax, _M, _softmax_expected, {}),
        Program("transpose", transpose, _N, lambda x: [x.transpose(2, 0, 1)], {}),
        Program("reshape", reshape, ({},), lambda x: [x.reshape(3, 8)], {}),
        Program("mixed_types", mixed_types, _N, _mixed_expected, {}, 1e-3),
        Program("int_wrap", int_wrap, ({},), lambda a: [a * a + np.int8(100)], {}),
        Program(
            "quantized_matmul",
            quantized_matmul,
            ({},),
            lambda a, b: [(a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32) * np.float32(0.25)],
            {},
        ),
        Program("broadcast_add", broadcast_add, _M, lambda a, b: [a + b], {}),
        Program("scalar", scalar, ({},), lambda a: [a * 2 + 1], {}),
        Program(
            "mean_variance",
            mean_variance,
            ({"n": 4}, {"n": 13}),
            lambda x: [x.mean(1), ((x - x.mean(1, keepdims=True)) ** 2).sum(1)],
            {},
            1e-4,
        ),
        Program("argmax", argmax, ({},), lambda x: [np.argmax(x, 1)], {}),
        Program(
            "pool_sum",
            pool_sum,
            ({},),
            lambda x: [np.stack([np.tanh(x)[:, 2 * i : 2 * i + 3].sum(1) for i in range(5)], 1) / 3],
            {},
        ),
    )
}
