"""Products in matrix tiles: the nest in the tree, by the interpreter, against the code, run by a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.emit.matrix_tiles import configuration
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.errors import TargetError
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct, with_intrinsics
from tilewright.tensor_ir.ir import Func, MachineCode, TensorIntrin
from tilewright.tensor_ir.text import parse_func, print_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles

__all__ = ["tiles"]


def product(p: TileProduct, rows: int, columns: int, steps: int) -> Func:
    """Tiles of ``p`` for a result of ``rows`` by ``columns``, plus one."""
    high, wide = SIDE * p.rows, SIDE * p.columns
    down, right = -(-rows // high), -(-columns // wide)
    a = placeholder("A", (down, steps, high, SIDE), dtypes.int32)
    b = placeholder("B", (right, steps * SIDE, wide), dtypes.int32)
    k, q = reduce_axis(steps, "k"), reduce_axis(SIDE, "q")
    acc = compute(
        "acc", (down * high, right, wide),
        lambda m, no, ni: sum_over(
            op(p.product, a[m // high, k.index, m % high, q.index], b[no, k.index * SIDE + q.index, ni]), k, q
        ),
        axis_names=["m", "no", "ni"],
    )  # fmt: skip
    one = 1.0 if p.sums == "float32" else 1
    out = compute("out", (rows, columns), lambda m, n: acc[m, n // wide, n % wide] + one, axis_names=["m", "n"])
    return build_func("product", [a, b], [out], [acc])


def scheduled(p: TileProduct, func: Func) -> Func:
    s = Schedule(func)
    row, column = s.loops("out")
    over_rows, row = s.split(row, (None, SIDE * p.rows))
    over_columns, column = s.split(column, (None, SIDE * p.columns))
    s.reorder(over_rows, over_columns, row, column)
    first, *_ = s.compute_at("acc", over_columns, whole=True)
    s.tensorize(first, p.name)
    s.parallel(over_rows)
    verify(s.func)
    return s.func


def operands(p: TileProduct, func: Func) -> list[np.ndarray]:
    """Words of small integers: sums are exact in any order. Bytes are any."""
    rng = np.random.default_rng(5)
    shapes = [tuple(int(d) for d in b.shape) for b in func.params[:2]]
    if p.product == "dot4":
        return [rng.integers(-(1 << 31), 1 << 31, s, dtype=np.int32) for s in shapes]
    pairs = (rng.integers(-9, 10, (*s, 2)).astype(np.float32).view(np.uint32) >> 16 for s in shapes)
    return [(x[..., 0] | x[..., 1] << 16).astype(np.uint32).view(np.int32) for x in pairs]


@pytest.mark.parametrize("size", [(33, 50, 3), (32, 32, 1), (64, 31, 2)])
@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_the_code_computes_the_nest(tiles: State, name: str, size: tuple[int, int, int]) -> None:
    p = TILE_PRODUCTS[name]
    func = product(p, *size)
    done = scheduled(p, func)
    args = operands(p, func)
    (want,) = interpret(done, args, {})
    np.testing.assert_array_equal(want, interpret(func, args, {})[0])
    kernel = build(done, with_tiles())
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(args, {}, threads)[0], want)
    tiles.require_clean()


def test_the_text_of_a_tensorized_function() -> None:
    p = TILE_PRODUCTS["tiles_dot2_2x2"]
    done = scheduled(p, product(p, 40, 64, 5))
    assert parse_func(print_func(done)) == done


@pytest.mark.parametrize(("name", "instruction"), [("tiles_dot2_2x2", "tdpbf16ps"), ("tiles_dot4_2x2", "tdpbusd")])
def test_the_assembly(name: str, instruction: str) -> None:
    """A step of the innermost loop, of which LLVM writes out a few, has four loads and four products; the sums stay in
    registers 0 to 3."""
    p = TILE_PRODUCTS[name]
    target = parse_target("llvm -mcpu=sapphirerapids -mtriple=x86_64-unknown-linux-gnu -num-threads=2")
    func = prepare(scheduled(p, product(p, 64, 96, 64)), target)
    lines = [x.strip() for x in assembly_text(emit_kernel(func, target, "kernel"), target).splitlines()]
    lines = [x for x in lines if x and not x.startswith((".", "#"))]
    words = [x.split()[0] for x in lines]
    at = [n for n, w in enumerate(words) if w in (instruction, "tileloadd")]
    inside = [x for x in lines[at[0] : at[-1] + 1] if x.startswith((instruction, "tileloadd"))]
    step = ["%tmm6, %tmm4, %tmm0", "%tmm7, %tmm4, %tmm1", "%tmm6, %tmm5, %tmm2", "%tmm7, %tmm5, %tmm3"]
    while inside:
        loads, products, inside = inside[:4], inside[4:8], inside[8:]
        assert [x.split()[-1] for x in loads] == [f"%tmm{n}" for n in (4, 5, 6, 7)]
        assert products == [f"{instruction}\t{x}" for x in step]
    assert not [w for w in words[at[0] : at[-1]] if w.startswith(("j", "vmov", "call"))]  # one loop, nothing spilled
    assert words.count("ldtilecfg") == words.count("tilerelease") == 1
    assert words.count("tilezero") == words.count("tilestored") == 4
    release = words.index("tilerelease")
    assert words.index("ldtilecfg") < words.index("tilezero") < at[0]
    assert at[-1] < words.index("tilestored") < release < words.index("retq", release)
    assert not [w for w in words[release + 1 : words.index("retq", release)] if w.startswith("tile")]


def test_the_configuration() -> None:
    config = configuration()
    assert len(config) == 64
    assert config[0] == 1
    assert [config[16 + 2 * n] for n in range(8)] == [64] * 8
    assert [config[48 + n] for n in range(8)] == [16] * 8
    assert sum(config) == 1 + 8 * 64 + 8 * 16


def test_a_target_without_tiles_refuses() -> None:
    p = TILE_PRODUCTS["tiles_dot2_1x1"]
    func = scheduled(p, product(p, 16, 16, 1))
    with pytest.raises(TargetError, match=r"tiles_dot2_1x1: expected a target with amx-tile\+amx-bf16, got znver4"):
        emit_kernel(func, parse_target("llvm -mcpu=znver4 -mtriple=x86_64-unknown-linux-gnu"), "kernel")


def test_two_states_of_the_cpu_in_one_kernel_are_refused() -> None:
    def writing(name: str, setup: str) -> TensorIntrin:
        text = f"def {name}(A: out(float32[4])):\n    for i in range(4):\n        A[i] = A[i]"
        return TensorIntrin(parse_func(text), code=(MachineCode("", setup=setup, teardown=setup),))

    func = parse_func("""
def f(A: out(float32[4])):
    for i in range(4):
        A[i] = A[i]
    for j in range(4):
        A[j] = A[j]
""")
    own = writing("one", "fence acquire"), writing("two", "fence release")
    s = Schedule(with_intrinsics(func, *own))
    s.tensorize("i", "one")
    target = parse_target(None)
    assert emit_kernel(prepare(s.func, target), target, "kernel").count("fence acquire") == 2
    assert parse_func(print_func(s.func)) == s.func
    s.tensorize("j", "two")
    with pytest.raises(TargetError, match="f: intrinsics one and two want different states of the CPU"):
        emit_kernel(prepare(s.func, target), target, "kernel")
