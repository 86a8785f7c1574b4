"""Products in matrix tiles: the nest in the tree, by the interpreter, against the code, run by a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.emit.matrix_tiles import configuration
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.core.errors import ParseError, TargetError
from tilewright.kernels import check_tiles
from tilewright.kernels.check_tiles import tile_operands, tile_product_func, wrong_tile_products
from tilewright.machine.vectors import has_matrix_tiles
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, TileProduct, with_intrinsics
from tilewright.tensor_ir.ir import Func, MachineCode, TensorIntrin
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.codegen import matrix_tiles
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles, without_tiles

__all__ = ["tiles"]


def scheduled(p: TileProduct, func: Func) -> Func:
    s = Schedule(func)
    if p.has_taps:
        rows, panels, *_ = s.loops("acc")
        over, row = s.split(rows, (None, SIDE * p.rows))
        s.reorder(over, panels, row)
        s.tensorize(row, p.name)
        s.parallel(over)
        verify(s.func)
        return s.func
    row, column = s.loops("out")
    over_rows, row = s.split(row, (None, SIDE * p.rows))
    over_columns, column = s.split(column, (None, SIDE * p.columns))
    s.reorder(over_rows, over_columns, row, column)
    first, *_ = s.compute_at("acc", over_columns, whole=True)
    if p.form == "parts":
        *inside, groups = s.loops("acc")[2:]
        s.reorder(groups, *inside)
        s.decompose_reduction("acc", groups)
        s.compute_at("sums", groups, whole=True)
        first = s.loops("sums")[3]
    s.tensorize(first, p.name)
    s.parallel(over_rows)
    verify(s.func)
    return s.func


@pytest.mark.parametrize("size", [(33, 50, 2), (32, 32, 1), (64, 31, 2)])
@pytest.mark.parametrize("name", TILE_PRODUCTS)
def test_the_code_computes_the_nest(tiles: State, name: str, size: tuple[int, int, int]) -> None:
    p = TILE_PRODUCTS[name]
    if p.is_split:
        size = (*size[:2], 1)  # the interpreter takes three times as long
    func = tile_product_func(p, *size)
    done = scheduled(p, func)
    args = tile_operands(p, func)
    (want,) = interpret(done, args, {})
    np.testing.assert_array_equal(want, interpret(func, args, {})[0])
    kernel = build(done, with_tiles())
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(args, {}, threads)[0], want)
    tiles.require_clean()


@pytest.mark.parametrize(
    ("form", "depth"), [*((f, d) for f in ("", "taps_") for d in (1, 2, 3)), ("split_", 2), ("split_taps_", 2)]
)
def test_sums_of_a_few_steps_are_resumed(tiles: State, form: str, depth: int) -> None:
    """For all rows the first steps, then the next; the sums lie in memory in between."""
    p, taps = TILE_PRODUCTS[f"tiles_dot2_{form}2x2"], "taps" in form
    func = tile_product_func(p, 64, 32, 2 * depth)
    s = Schedule(func)
    rows, panels, columns, *taps_loop, steps, words = s.loops("acc")
    over, row = s.split(rows, (None, SIDE * p.rows))
    turns, steps = s.split(steps, (None, depth))
    s.reorder(turns, over, panels, row, columns, *taps_loop, steps, words)
    if taps:
        tap, taps_loop[0] = s.split(taps_loop[0], (None, 1))
        s.reorder(tap, turns, over, panels, row, columns, taps_loop[0], steps, words)
    s.tensorize(row, p.name)
    verify(s.func)
    args = tile_operands(p, func)
    (want,) = interpret(func, args, {})
    np.testing.assert_array_equal(interpret(s.func, args, {})[0], want)
    np.testing.assert_allclose(build(s.func, with_tiles())(args, {}, 1)[0], want, rtol=1e-6, atol=1e-5)
    tiles.require_clean()


def test_the_check_of_a_machine(tiles: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``doctor`` runs where there are tiles: all intrinsics, by the default schedule."""
    assert wrong_tile_products(with_tiles()) == []
    tiles.require_clean()
    assert wrong_tile_products(without_tiles(with_tiles())) == []
    some = ("tiles_dot2_2x2", "tiles_dot4_taps_2x1")
    monkeypatch.setattr(check_tiles, "TILE_PRODUCTS", {n: TILE_PRODUCTS[n] for n in some})
    monkeypatch.setattr(matrix_tiles, "ROW_BYTES", 32)
    assert set(wrong_tile_products(with_tiles())) == set(some)


@pytest.mark.skipif(not has_matrix_tiles(detect_host(), "dot2"), reason="this machine has no matrix tiles")
def test_this_machine() -> None:
    assert wrong_tile_products(detect_host()) == []


def loads_and_products(name: str) -> list[str]:
    """Those that the assembly of an intrinsic has, each with its first register."""
    p = TILE_PRODUCTS[name]
    target = parse_target("llvm -mcpu=sapphirerapids -mtriple=x86_64-unknown-linux-gnu -num-threads=1")
    func = prepare(scheduled(p, tile_product_func(p, 64, 96, 1)), target)
    found = assembly_text(emit_kernel(func, target, "kernel"), target)
    return [x.split()[0] + x.split()[-1] for x in found.splitlines() if x.strip().startswith(("tileload", "tdp"))]


def test_the_assembly_of_parts() -> None:
    """B's tiles are loaded once for all parts."""
    part = [f"tileloadd%tmm{n}" for n in (4, 5)] + [f"tdpbf16ps%tmm{n}" for n in range(4)]
    assert loads_and_products("tiles_dot2_parts_2x2") == [*(f"tileloadd%tmm{n}" for n in (6, 7)), *part, *part]


def test_the_assembly_of_operands_in_two_parts() -> None:
    """Three products of four tiles each, A's high parts loaded again for B's low ones."""
    a, b = ([f"tileloadd%tmm{n}" for n in two] for two in ((4, 5), (6, 7)))
    products = [f"tdpbf16ps%tmm{n}" for n in range(4)]
    assert loads_and_products("tiles_dot2_split_2x2") == [*a, *b, *products, *a, *products, *a, *b, *products]


def test_the_text_of_a_tensorized_function() -> None:
    p = TILE_PRODUCTS["tiles_dot2_2x2"]
    done = scheduled(p, tile_product_func(p, 40, 64, 5))
    assert parse_func(str(done)) == done
    own = with_intrinsics(done, p.describe())
    assert parse_func(str(own)) == own
    assert own.intrinsics[0].resumes
    for other in ("resumes=False", "restarts=True"):
        with pytest.raises(ParseError, match="expected @attrs"):
            parse_func(str(own).replace("resumes=True", other))


@pytest.mark.parametrize(("name", "instruction"), [("tiles_dot2_2x2", "tdpbf16ps"), ("tiles_dot4_2x2", "tdpbusd")])
def test_the_assembly(name: str, instruction: str) -> None:
    """A step of the innermost loop, of which LLVM writes out a few, has four loads and four products; the sums stay in
    registers 0 to 3."""
    p = TILE_PRODUCTS[name]
    target = parse_target("llvm -mcpu=sapphirerapids -mtriple=x86_64-unknown-linux-gnu -num-threads=2")
    func = prepare(scheduled(p, tile_product_func(p, 64, 96, 64)), target)
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
    func = scheduled(p, tile_product_func(p, 16, 16, 1))
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
    assert parse_func(str(s.func)) == s.func
    s.tensorize("j", "two")
    with pytest.raises(TargetError, match="f: intrinsics one and two want different states of the CPU"):
        emit_kernel(prepare(s.func, target), target, "kernel")
