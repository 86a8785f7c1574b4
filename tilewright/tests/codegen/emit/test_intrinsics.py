"""Tensor intrinsics as machine code, against the interpreter: the nest in the tree is what the code must compute."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.emit.intrinsics import IMPLEMENTATIONS, implementation
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, var
from tilewright.core.errors import InternalError, TargetError
from tilewright.machine.target import Target
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import TENSOR_INTRINSICS, with_intrinsics
from tilewright.tensor_ir.ir import Func, MachineCode, TensorIntrin
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.schedule.helper import elementwise, matmul, random_args
from tilewright.tests.schedule.intrinsics import SMALL

N = var("n")


def scheduled(func: Func, trace: str) -> Func:
    out = Trace.from_text(trace).apply(func)
    verify(out)
    return out


def check(func: Func, trace: str, dims: Mapping[str, int] | None = None) -> None:
    """Integers as floats: sums are exact in any order."""
    dims = dims or {}
    args = random_args(func, dims)
    (want,) = interpret(func, args, dims)
    kernel = build(scheduled(func, trace))
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(args, dims, threads)[0], want)


def transposed(n: IntLike, m: IntLike, batch: int = 2) -> Func:
    """B[b, i, j] = A[b, j, i]"""
    a = placeholder("A", (batch, m, n), dtypes.float32)
    return build_func("transposed", [a], [compute("B", (batch, n, m), lambda b, i, j: a[b, j, i])])


TRANSPOSE = """
split("B_i", factors=(None, 8))
split("B_j", factors=(None, 8))
reorder(("B_i_0", "B_j_0", "B_i_1", "B_j_1"))
peel("B_i_0")
peel("B_j_0")
tensorize("B_i_1", intrinsic="transpose_8x8_f32")
parallel("B_b")
"""


@pytest.mark.parametrize("size", [(19, 9), (8, 17), (31, 33)])
def test_a_transpose_with_edges(size: tuple[int, int]) -> None:
    trace = TRANSPOSE if size[0] % 8 else TRANSPOSE.replace('peel("B_i_0")\n', "")
    check(transposed(*size), trace)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 13, 40])
def test_a_transpose_of_symbolic_size(size: int) -> None:
    check(transposed(N, 21), TRANSPOSE, {"n": size})


OUTER = """
split("C_i", factors=(None, 6))
split("C_j", factors=(None, 16))
reorder(("C_i_0", "C_j_0", "k", "C_i_1", "C_j_1"))
decompose_reduction("C", loop="k")
tensorize("C_i_1", intrinsic="outer_6x16_f32")
"""


@pytest.mark.parametrize("k", [0, 1, 7])
def test_outer_products_accumulate(k: int) -> None:
    check(matmul(12, 32, N), OUTER, {"n": k})


def test_accumulators_stay_in_registers() -> None:
    target = dataclasses.replace(detect_host(), features="+avx2,+avx,+fma")
    if not target.triple.startswith("x86"):
        pytest.skip("counts x86 instructions")
    text = assembly_text(emitted(scheduled(matmul(6, 16, 64), OUTER), target, "kernel"), target)
    stores = sum("vmovups\t%ymm" in line and "(%r" in line for line in text.splitlines())
    assert stores <= 24  # the initial zeros and the results; not one for each step


def dot(m: int, n: int, k: int) -> Func:
    """C[i, n] = sum over k of A[i, k] * B[n, k], unsigned by signed, B packed in panels of 8 by 4"""
    a, b = placeholder("A", (m, k // 4, 4), dtypes.uint8), placeholder("B", (n // 8, k // 4, 8, 4), dtypes.int8)
    ko, ki = reduce_axis(k // 4, "ko"), reduce_axis(4, "ki")
    c = compute(
        "C",
        (m, n // 8, 8),
        lambda i, p, j: sum_over(a[i, ko, ki].cast(dtypes.int32) * b[p, ko, j, ki].cast(dtypes.int32), ko, ki),
    )
    return build_func("dot", [a, b], [c])


DOT = """
reorder(("ko", "C_j"))
decompose_reduction("C", loop="ko")
tensorize("C_j", intrinsic="dot_8x4_u8s8s32")
"""


def _with(features: str) -> Target:
    return dataclasses.replace(detect_host(), features=features)


@pytest.mark.skipif("+avx2" not in detect_host().features, reason="needs AVX2")
def test_a_dot_product_of_bytes_does_not_saturate() -> None:
    func, rng = dot(3, 16, 20), np.random.default_rng(0)
    a = rng.integers(0, 256, (3, 5, 4)).astype(np.uint8)
    b = rng.integers(-128, 128, (2, 5, 8, 4)).astype(np.int8)
    a[0], b[0] = 255, -128
    after = scheduled(func, DOT)
    (want,) = interpret(func, [a, b], {})
    for target in (None, _with("+avx2,+avx,+sse4.1")):
        np.testing.assert_array_equal(build(after, target)([a, b])[0], want)


@pytest.mark.parametrize("features", ["+avx2,+avxvnni", "+avx2,+avx512f,+avx512vl,+avx512vnni"])
def test_a_dot_product_is_one_instruction_where_there_is_one(features: str) -> None:
    target = _with(features)
    if not target.triple.startswith("x86"):
        pytest.skip("looks for an x86 instruction")
    assert "vpdpbusd" in assembly_text(emitted(scheduled(dot(3, 16, 20), DOT), target, "kernel"), target)


def test_a_target_that_can_run_no_implementation() -> None:
    message = r"dot_8x4_u8s8s32: expected a target with avxvnni or avx512vnni\+avx512vl or avx2, got old"
    with pytest.raises(TargetError, match=message):
        emitted(scheduled(dot(3, 16, 20), DOT), dataclasses.replace(_with("+sse2"), cpu="old"), "kernel")


def test_every_built_in_intrinsic_has_an_implementation() -> None:
    assert set(IMPLEMENTATIONS) == set(TENSOR_INTRINSICS)


def test_an_intrinsic_of_ones_own() -> None:
    func = with_intrinsics(elementwise(5, 4), *SMALL)
    s = Schedule(func)
    s.tensorize("B_j", "double_4")
    s.parallel("B_i")
    check(func, s.trace.to_text())
    again = parse_func(str(s.func))
    (x,) = random_args(func, {})
    np.testing.assert_array_equal(build(again)([x])[0], x + x)


def test_code_that_llvm_rejects_is_shown() -> None:
    wrong = TensorIntrin(SMALL[0].description, code=(MachineCode("  %a = lode float, ptr %A"),))
    func = with_intrinsics(elementwise(5, 4), wrong)
    s = Schedule(func)
    s.tensorize("B_j", "double_4")
    with pytest.raises(InternalError, match="lode"):
        build(s.func)


def test_an_intrinsic_without_code_for_any_target() -> None:
    with pytest.raises(TargetError, match="double_4: expected a target with an implementation, got"):
        implementation(TensorIntrin(SMALL[0].description), detect_host())
