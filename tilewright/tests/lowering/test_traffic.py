"""The bytes that a function moves: what is touched of each parameter, not what there is."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

import tilewright
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.plan import KernelStep
from tilewright.lowering.flops import func_bytes, func_traffic
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tests.frontend.models import model_of

F32, I64 = dtypes.float32, dtypes.int64


def test_of_a_gathered_table_the_rows_count() -> None:
    table, ids = placeholder("T", (50_000, 64), F32), placeholder("I", (3,), I64)
    f = build_func("gather", [table, ids], [compute("Y", (3, 64), lambda i, j: table[ids[i], j])])
    rows = 3 * 64 * 4
    assert func_traffic(f) == rows + 3 * 8 + rows
    assert func_bytes(f) == 50_000 * 64 * 4 + 3 * 8 + rows


def test_a_symbolic_number_of_rows_is_compared_at_the_call() -> None:
    table, ids = placeholder("T", (10, 64), F32), placeholder("I", (var("n"),), I64)
    f = build_func("gather", [table, ids], [compute("Y", (var("n"), 64), lambda i, j: table[ids[i], j])])
    for n in (0, 3, 100):
        assert func_traffic(f).evaluate({"n": n}) == min(n, 10) * 64 * 4 + n * 8 + n * 64 * 4


def test_of_an_operand_that_is_read_again_and_again_its_size_counts() -> None:
    n = var("n")
    a, b, k = placeholder("A", (n, 64), F32), placeholder("B", (64, 32), F32), reduce_axis(64, "k")
    f = build_func("matmul", [a, b], [compute("C", (n, 32), lambda i, j: sum_over(a[i, k] * b[k, j], k))])
    assert func_traffic(f).evaluate({"n": 5}) == func_bytes(f).evaluate({"n": 5})
    assert "min" not in str(func_traffic(build_func("row", [a], [compute("R", (n, 64), lambda i, j: a[i, j])])))


def test_a_part_of_an_operand() -> None:
    x = placeholder("X", (1000,), F32)
    f = build_func("slice", [x], [compute("Y", (10,), lambda i: x[i] + x[i + 20])])
    assert func_traffic(f) == 20 * 4 + 10 * 4


def test_the_step_of_a_gather() -> None:
    table = np.zeros((100_000, 16), np.float32)
    nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
    constants, int64 = {"t": table}, TensorProto.INT64
    model = tilewright.compile(
        model_of(nodes, {"i": [4]}, ["y"], constants=constants, dtype=int64, out_dtype=TensorProto.FLOAT)
    )
    (kernel,) = (s for s in model.plan.steps if isinstance(s, KernelStep))
    assert kernel.bytes == 4 * 8 + 2 * 4 * 16 * 4
