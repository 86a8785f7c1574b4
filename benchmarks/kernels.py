#!/usr/bin/env python3
"""How good are single kernels? In percent of what the machine was measured to do, on one thread.

    python benchmarks/kernels.py [NAME ...] [--json OUT.json]

Each kernel is compiled as a model of one operator with the default schedule and timed inside its entry function.
Arithmetic is compared with the peak of dependent-free multiply-adds, reading with a sum over a large array, moving with
numpy's copy of one (bytes read plus bytes written). The arithmetic of a convolution is that of its definition, also
where Winograd's algorithm needs less. Kernels and limits take turns, several rounds of a few runs each, and the best of
each counts, because a shared machine has spells in which everything is slower. It should be otherwise idle.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import json
import math
import sys
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tilewright
from tilewright.autotune.measure.peaks import measure_dot_products, measure_peaks
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.io.files import begins_with, require_replaceable, write_file

ROWS = begins_with("rows of this benchmark", b'{\n "limits": {')
_ROUNDS = 8
_RUNS = 4
"""A round."""
_COPY_BYTES = 128 << 20
_BANK = 16
"""Weights of the matrix-vector product: together several times the last-level cache."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model, the arithmetic or the traffic of one inference, and the limit it is compared with.

    ``disabled``: rules that it is compiled without. ``precision``: of the build; ``bytes_``: the operand is uint8.
    ``beside``: operators whose kernels are not counted, if they do nothing else.
    """

    name: str
    model: Callable[[], ModelProto]
    feed: tuple[int, ...]
    amount: float
    limit: str
    target: float
    disabled: tuple[str, ...] = ()
    precision: str = "fp32"
    bytes_: bool = False
    beside: tuple[str, ...] = ("transpose",)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*", help="only cases whose name contains one of these")
    p.add_argument("--json", help="write the rows there too")
    args = p.parse_args()
    if args.json:
        require_replaceable(args.json, ROWS)
    _keep_pages()
    chosen = [c for c in _cases() if not args.names or any(n in c.name for n in args.names)]
    runs = [_prepared(c) for c in chosen]
    limits: dict[str, float] = {}
    taken = [math.inf] * len(runs)
    for _ in range(_ROUNDS):
        limits = {k: max(v, limits.get(k, 0.0)) for k, v in _limits().items()}
        taken = [min(t, *(run() for _ in range(_RUNS))) for t, run in zip(taken, runs, strict=True)]
    print(", ".join(f"{k} {v / 1e9:.1f} G/s" for k, v in limits.items()))
    rows = []
    print(f"{'kernel':<28} {'us':>9} {'G/s':>7} {'limit':>6} {'%':>5} {'target':>6}")
    for c, seconds in zip(chosen, taken, strict=True):
        rate = c.amount / seconds
        share = 100 * rate / limits[c.limit]
        rows.append({"kernel": c.name, "seconds": seconds, "rate": rate, "limit": c.limit, "percent": share})
        print(f"{c.name:<28} {seconds * 1e6:>9.1f} {rate / 1e9:>7.1f} {c.limit:>6} {share:>5.0f} {c.target:>6.0f}")
    if args.json:
        write_file(args.json, ROWS, json.dumps({"limits": limits, "rows": rows}, indent=1).encode())
    return 0


def _cases() -> tuple[Case, ...]:
    rows, length = 8192, 4096
    moved = 2.0 * 4 * rows * length
    conv = 2.0 * 56 * 56 * 64 * 64 * 9
    products = ((1024, 1024, 1024, 95), (128, 768, 3072, 92), (3136, 64, 64, 88))
    return (
        *(
            Case(f"matmul {m}x{k}x{n}", lambda m=m, k=k, n=n: _product(m, k, n), (m, k), 2.0 * m * k * n, "flops", t)
            for m, k, n, t in products
        ),
        Case("conv3x3 64->64 56x56", _conv, (1, 64, 56, 56), conv, "flops", 180),
        Case("direct conv3x3 64->64 56x56", _conv, (1, 64, 56, 56), conv, "flops", 88, ("winograd",)),
        *_narrow(conv),
        Case("matvec 2048x1000", _matvecs, (1, 2048), 4.0 * 2048 * 1000 * _BANK, "read", 85),
        Case("softmax rows", lambda: _node("Softmax", (rows, length), axis=-1), (rows, length), moved, "copy", 70),
        Case("layernorm rows", lambda: _layer_norm(rows, length), (rows, length), moved, "copy", 70),
        Case("transpose", lambda: _node("Transpose", (rows, length), perm=[1, 0]), (rows, length), moved, "copy", 70),
        Case("relu", lambda: _node("Relu", (rows, length)), (rows, length), moved, "copy", 90),
        Case("sum of rows", lambda: _reduced(rows, length, 1), (rows, length), moved / 2, "read", 90),
        Case("sum of columns", lambda: _reduced(rows, length, 0), (rows, length), moved / 2, "read", 70),
        Case("instancenorm NCHW", lambda: _norm(64, 448), (1, 64, 448, 448), 8.0 * 64 * 448 * 448, "copy", 50),
    )


def _narrow(conv: float) -> tuple[Case, ...]:
    """Products of bfloat16 and of bytes, against the best instruction for each; without the kernels that round or move
    their operands."""
    n, ends = 1024, ("transpose", "cast", "border")
    one = 2.0 * n**3
    return (
        Case("bf16 matmul 1024^3", lambda: _product(n, n, n), (n, n), one, "bf16", 85, (), "bf16", beside=ends),
        Case("bf16 conv3x3 64->64 56x56", _conv, (1, 64, 56, 56), conv, "bf16", 70, (), "bf16", beside=ends),
        Case("int8 matmul 1024^3", lambda: _integer_product(n, n, n), (n, n), one, "int8", 85, bytes_=True),
        Case("int8 conv3x3 64->64 56x56", _integer_conv, (1, 64, 56, 56), conv, "int8", 70, bytes_=True, beside=ends),
    )


# -- models ----------------------------------------------------------------------------------------------------------
def _model(
    nodes: Sequence[object], shape: Sequence[int], outputs: Sequence[str], types: tuple[int, int] = (1, 1),
    **constants: np.ndarray,
) -> ModelProto:  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", types[0], list(shape))]
    results = [helper.make_tensor_value_info(o, types[1], None) for o in outputs]
    tensors = [numpy_helper.from_array(a, n) for n, a in constants.items()]
    graph = helper.make_graph(list(nodes), "kernel", inputs, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _node(op: str, shape: Sequence[int], **attrs: object) -> ModelProto:
    return _model([helper.make_node(op, ["x"], ["y"], **attrs)], shape, ["y"])


@functools.cache
def _weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _product(m: int, k: int, n: int) -> ModelProto:
    return _model([helper.make_node("MatMul", ["x", "w"], ["y"])], (m, k), ["y"], w=_weights(k, n))


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-127, 128, shape).astype(np.int8)


def _integer_product(m: int, k: int, n: int) -> ModelProto:
    node, types = helper.make_node("MatMulInteger", ["x", "w"], ["y"]), (TensorProto.UINT8, TensorProto.INT32)
    return _model([node], (m, k), ["y"], types, w=_bytes(k, n))


def _integer_conv() -> ModelProto:
    """Of QLinearConv: sums are scaled, rounded and stored as bytes."""
    node = helper.make_node("QLinearConv", ["x", "s", "z", "w", "s", "o", "t", "z"], ["y"], pads=[1, 1, 1, 1])
    numbers = (("s", np.float32(0.1)), ("t", np.float32(3)), ("z", np.uint8(128)), ("o", np.int8(0)))
    constants = {"w": _bytes(64, 64, 3, 3), **{name: np.asarray(v) for name, v in numbers}}
    types = (TensorProto.UINT8, TensorProto.UINT8)
    return _model([node], (1, 64, 56, 56), ["y"], types, **constants)


def _matvecs() -> ModelProto:
    """One row times many matrices, so that each is read from memory."""
    bank = {f"w{i}": _weights(2048, 1000) + np.float32(i) for i in range(_BANK)}
    nodes = [helper.make_node("MatMul", ["x", w], [f"y{i}"]) for i, w in enumerate(bank)]
    return _model(nodes, (1, 2048), [f"y{i}" for i in range(_BANK)], **bank)


def _conv() -> ModelProto:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    return _model([node], (1, 64, 56, 56), ["y"], w=_weights(64, 64, 3, 3))


def _layer_norm(rows: int, length: int) -> ModelProto:
    node = helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y"])
    return _model([node], (rows, length), ["y"], scale=_weights(length), bias=_weights(length))


def _norm(channels: int, size: int) -> ModelProto:
    node = helper.make_node("InstanceNormalization", ["x", "scale", "bias"], ["y"])
    return _model([node], (1, channels, size, size), ["y"], scale=_weights(channels), bias=_weights(channels))


def _reduced(rows: int, length: int, axis: int) -> ModelProto:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return _model([node], (rows, length), ["y"], axes=np.array([axis], np.int64))


# -- measuring -------------------------------------------------------------------------------------------------------
def _prepared(c: Case) -> Callable[[], float]:
    """A run of the case: seconds of the kernels that do the work, and not of layout changes at its ends."""
    model = tilewright.compile(c.model(), threads=1, disabled_pass=c.disabled, precision=c.precision, progress=False)
    x = np.abs(_bytes(*c.feed)).astype(np.uint8) if c.bytes_ else _weights(*c.feed)

    def run() -> float:
        kernels = model.profile({"x": x}, runs=1).kernels
        counted = [k.seconds for k in kernels if not {*k.kernel.split("_")[1:]} <= {*c.beside}]
        return sum(counted or [k.seconds for k in kernels])

    return run


def _limits() -> dict[str, float]:
    peaks = measure_peaks.__wrapped__(detect_host(), 1)
    known = {"flops": peaks.flops_per_second, "read": peaks.bytes_per_second, "copy": _copy_rate()}
    rates = measure_dot_products.__wrapped__(detect_host())
    for limit, product in (("bf16", "dot2"), ("int8", "dot4")):
        known[limit] = max((rate for d, rate in rates if d.product == product), default=peaks.flops_per_second)
    return known


def _keep_pages() -> None:
    """Let the C library reuse the memory of large arrays, so that the outputs' page faults are not measured."""
    with contextlib.suppress(AttributeError):
        for parameter, value in ((-3, 1 << 30), (-1, (1 << 31) - 1)):  # the thresholds of mmap and of trimming
            ctypes.CDLL(None).mallopt(parameter, value)


def _copy_rate() -> float:
    source, out = np.ones(_COPY_BYTES // 4, np.float32), np.zeros(_COPY_BYTES // 4, np.float32)
    return 2 * _COPY_BYTES / min(timeit.repeat(lambda: np.copyto(out, source), number=1, repeat=_RUNS))


if __name__ == "__main__":
    sys.exit(main())
