"""Default schedules for CPUs with 32 registers: what their machine code looks like, and that it computes the same.

The code is compiled, not run; what runs is the same schedules with the registers of this machine.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.core import dtypes
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.schedule.kernels import packed_matmul, softmax_like

F32 = dtypes.float32
WIDE = ("znver4", "skylake-avx512", "sapphirerapids")


def depthwise(size: int, channels: int, kernel: int) -> Func:
    """Y = max(conv(X, W), 0), a filter a channel, channels last, without a border."""
    x = placeholder("X", (size + kernel - 1, size + kernel - 1, channels), F32)
    w = placeholder("W", (kernel, kernel, channels), F32)
    i, j = reduce_axis(kernel, "i"), reduce_axis(kernel, "j")
    acc = compute("acc", (size, size, channels), lambda h, q, c: sum_over(x[h + i, q + j, c] * w[i, j, c], i, j))
    y = compute("Y", (size, size, channels), lambda h, q, c: op("max", acc[h, q, c], 0.0))
    return build_func("depthwise", [x, w], [y], [acc])


PRODUCTS: dict[str, Callable[[], Func]] = {
    "square": lambda: packed_matmul(1024, 1024, 1024, 32),
    "flat": lambda: packed_matmul(128, 3072, 768, 32),
    "tall": lambda: packed_matmul(3136, 64, 64, 32),
    "ragged": lambda: packed_matmul(197, 96, 64, 32),
    "depthwise_3x3": lambda: depthwise(56, 96, 3),
    "depthwise_5x5": lambda: depthwise(28, 64, 5),
}


def assembly(func: Func, target: Target) -> str:
    return assembly_text(emitted(default_trace(func, target).apply(func), target, "kernel"), target)


def innermost_loops(text: str, instruction: str) -> list[list[str]]:
    """The bodies of loops without loops inside that contain ``instruction``."""
    lines = text.splitlines()
    labels = {m[1]: n for n, line in enumerate(lines) if (m := re.match(r"(\.L\w+):", line))}
    jumps = [(n, m[1]) for n, line in enumerate(lines) if (m := re.match(r"\t(?:j|b|cb|tb)\S*\t.*?(\.L\w+)", line))]
    loops = [(labels[to], n) for n, to in jumps if labels.get(to, n) < n]
    inner = [(a, b) for a, b in loops if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)]
    bodies = [lines[a : b + 1] for a, b in inner]
    return [body for body in bodies if any(instruction in line for line in body)]


@pytest.mark.parametrize("cpu", WIDE)
@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_of_32_registers_stay_in_them(name: str, cpu: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu} -num-threads=1")
    loops = innermost_loops(assembly(PRODUCTS[name](), target), "vfmadd")
    assert loops
    for body in loops:
        assert all("zmm" in line for line in body if "vfmadd" in line)
        spilled = [line for line in body if "zmm" in line and "(%rsp)" in line]
        assert not spilled, "\n".join(body)
    sums = [{m for line in body for m in re.findall(r"vfmadd231ps.*%(zmm\d+)$", line)} for body in loops]
    assert max(len(x) for x in sums) >= 24


@pytest.mark.parametrize("name", PRODUCTS)
def test_tiles_of_32_short_registers_stay_in_them(name: str) -> None:
    target = parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 -num-threads=1")
    loops = innermost_loops(assembly(PRODUCTS[name](), target), "fmla")
    assert loops
    for body in loops:
        spilled = [line for line in body if re.search(r"\tq\d+.*\[sp", line)]
        assert not spilled, "\n".join(body)


def registers(bits: int, count: int) -> Target:
    """This machine, as if it had ``count`` registers of ``bits``: LLVM splits what is too wide."""
    return dataclasses.replace(detect_host(), vector_bits=bits, vector_registers=count, threads=1)


@pytest.mark.parametrize(("bits", "count"), [(512, 32), (256, 16), (128, 32)])
@pytest.mark.parametrize(
    "func",
    [packed_matmul(29, 45, 7, 32), packed_matmul(1, 33, 3, 32), depthwise(17, 40, 3), depthwise(14, 5, 5),
     *(softmax_like(3, n) for n in (1, 15, 16, 33, 64, 127, 128, 200))],
    ids=lambda f: f"{f.name}_{f.params[0].shape[-1]}",
)  # fmt: skip
def test_values(func: Func, bits: int, count: int) -> None:
    rng = np.random.default_rng(0)
    shapes = [[d.value() or 0 for d in b.shape] for b in func.params[: -func.outputs]]
    args = [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]
    (want,) = interpret(func, args, {})
    target = registers(bits, count)
    (got,) = build(default_trace(func, target).apply(func), target)(args)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("bits", [256, 512])
def test_lanes_of_a_wide_vector_are_added_in_parts(bits: int) -> None:
    """Eight steps or sixteen after another would take longer than a short row."""
    func = softmax_like(3, 128)
    factored = default_trace(func, registers(bits, 32)).to_text().count("rfactor")
    assert factored == default_trace(func, registers(128, 32)).to_text().count("rfactor") + 2
