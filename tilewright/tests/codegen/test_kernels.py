"""Machine code against the interpreter and numpy: whole functions, loop kinds, masks, guards, private buffers,
threads."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.emit.function import is_parallel, workspaces
from tilewright.codegen.kernel import build
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const, of_atom, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.errors import InputError
from tilewright.schedule.default import default_trace
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import Reduction, build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.hints import ParallelIf
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Cast,
    Const,
    Dyn,
    Expr,
    Func,
    Guard,
    Index,
    Load,
    Loop,
    Op,
    Select,
    Stmt,
    Store,
    seq,
)
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.schedule.fuzz_nests import recurrent
from tilewright.tests.schedule.kernels import stepped
from tilewright.tests.tensor_ir.programs import PROGRAMS
from tilewright.tests.tensor_ir.random_programs import random_program

F32, I64, BOOL = dtypes.float32, dtypes.int64, dtypes.bool_


def buf(name: str, *shape: object, dtype: dtypes.DType = F32, scope: str = "global") -> Buffer:
    dims = tuple(var(s) if isinstance(s, str) else const(s) for s in shape)  # type: ignore[arg-type]
    return Buffer(name, dtype, dims, scope)  # type: ignore[arg-type]


def at(name: str, *indices: IntExpr, dtype: dtypes.DType = F32) -> Load:
    return Load(name, indices, dtype)


def add(a: Expr, b: Expr) -> Op:
    return Op("add", (a, b), a.dtype)


def check(func: Func, *inputs: np.ndarray, rtol: float = 1e-5, threads: int = 1, **dims: int) -> list[np.ndarray]:
    """Machine code agrees with the interpreter."""
    expected = interpret(func, list(inputs), dims)
    got = build(func)(list(inputs), dims, threads)
    for g, e in zip(got, expected, strict=True):
        if e.dtype.kind == "f":
            np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(g, e)
    return got


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_programs(name: str) -> None:
    p = PROGRAMS[name]
    kernel = build(p.make())
    for dims in p.sizes:
        args = p.args(dims)
        for g, e in zip(kernel(args, dims), interpret(p.make(), args, dims), strict=True):
            np.testing.assert_allclose(g.astype(np.float64), e.astype(np.float64), rtol=p.tolerance, atol=p.tolerance)


@pytest.mark.parametrize("block", range(4))
def test_random_programs(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        p = random_program(seed)
        expected = interpret(p.func, p.args, p.dims)
        for g, e in zip(build(p.func)(p.args, p.dims), expected, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5, err_msg=f"random_program({seed})")


# -- vectors ---------------------------------------------------------------------------------------------------------
def vector_copy(value: Expr, n: int, lanes: int, *inputs: Buffer) -> Func:
    """``C[i] = value(i)``, the index being ``io * lanes + ii``."""
    index = var("io") * lanes + var("ii")
    block = Block("c", (Axis("x", const(n)),), (index,), "C", (var("x"),), value)
    inner = Loop("ii", minimum(const(lanes), const(n) - var("io") * lanes), block, "vectorized")
    return Func("f", (*inputs, buf("C", n)), 1, (), Loop("io", ceildiv(n, lanes), inner))


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 11, 16, 24, 64])
@pytest.mark.parametrize("n", [1, 8, 37, 64])
def test_masked_tail(n: int, lanes: int) -> None:
    f = vector_copy(add(at("A", var("x")), Const(1.0, F32)), n, lanes, buf("A", n))
    check(f, np.arange(n, dtype=np.float32))


@pytest.mark.parametrize("stride", [2, 3, 4, 5, -1, -2])
@pytest.mark.parametrize("n", [16, 19])
def test_strides(stride: int, n: int) -> None:
    size = abs(stride) * (n - 1) + 1
    start = 0 if stride > 0 else size - 1
    f = vector_copy(at("A", var("x") * stride + start), n, 8, buf("A", size))
    check(f, np.random.default_rng(0).random(size, np.float32))


@pytest.mark.parametrize("n", [16, 21])
def test_division_and_remainder_of_the_lane(n: int) -> None:
    f = vector_copy(at("A", var("x") // 3, var("x") % 3), n, 8, buf("A", n // 3 + 1, 3))
    check(f, np.random.default_rng(0).random((n // 3 + 1, 3), np.float32))


@pytest.mark.parametrize("n", [16, 21])
def test_gather_by_memory(n: int) -> None:
    where = of_atom(Dyn(at("I", var("x"), dtype=I64)))
    f = vector_copy(at("A", where), n, 8, buf("A", 10), buf("I", n, dtype=I64))
    rng = np.random.default_rng(0)
    check(f, rng.random(10, np.float32), rng.integers(0, 10, n))


@pytest.mark.parametrize("n", [16, 21])
def test_select_does_not_read_outside(n: int) -> None:
    """A padded copy: the memory around the array is unmapped in spirit, so every lane must stay inside."""
    x = Index(var("x") - 3, I64)
    inside = Op(
        "logical_and", (Op("greater_equal", (x, Const(0, I64)), BOOL), Op("less", (x, Const(n - 6, I64)), BOOL)), BOOL
    )
    f = vector_copy(Select(inside, at("A", var("x") - 3), Const(-1.0, F32)), n, 8, buf("A", n - 6))
    check(f, np.random.default_rng(0).random(n - 6, np.float32))


def test_select_guards_a_uniform_load() -> None:
    x = Index(var("x"), I64)
    never = Op("less", (x, Cast(at("L", const(0), dtype=I64), I64)), BOOL)
    where = of_atom(Dyn(at("L", const(1), dtype=I64)))
    f = vector_copy(Select(never, at("A", where), Const(0.5, F32)), 16, 8, buf("A", 2), buf("L", 2, dtype=I64))
    check(f, np.ones(2, np.float32), np.array([0, 10**15]))


def test_index_as_value() -> None:
    f = vector_copy(Cast(Index(var("x") * 3 % 7, I64), F32), 21, 8)
    check(f)


def test_scatter_with_stride() -> None:
    block = Block(
        "c", (Axis("x", const(13)),), (var("io") * 4 + var("ii"),), "C", (var("x"), const(0)), at("A", var("x"))
    )
    other = Block("d", (Axis("x", const(13)),), (var("d"),), "C", (var("x"), const(1)), Const(2.0, F32))
    inner = Loop("ii", minimum(const(4), 13 - var("io") * 4), block, "vectorized")
    body = seq(Loop("io", const(4), inner), Loop("d", const(13), other))
    check(Func("f", (buf("A", 13), buf("C", 13, 2)), 1, (), body), np.arange(13, dtype=np.float32))


def test_bool_and_narrow_vectors() -> None:
    a = at("A", var("x"), dtype=dtypes.float16)
    test = Op("greater", (Cast(a, F32), Const(0.0, F32)), BOOL)
    index = var("io") * 8 + var("ii")
    block = Block("c", (Axis("x", const(21)),), (index,), "C", (var("x"),), test)
    inner = Loop("ii", minimum(const(8), 21 - var("io") * 8), block, "vectorized")
    f = Func("f", (buf("A", 21, dtype=dtypes.float16), buf("C", 21, dtype=BOOL)), 1, (), Loop("io", const(3), inner))
    check(f, np.linspace(-1, 1, 21).astype(np.float16))


# -- other loops -----------------------------------------------------------------------------------------------------
def tiled(m: int, n: int, k: int, rows: int, lanes: int, dynamic: bool = False) -> Func:
    """A matrix product with an accumulator tile in a local buffer: unrolled rows, vectorized columns, ragged edges."""
    mm = var("m") if dynamic else const(m)
    row, col = var("mo") * rows, var("no") * lanes

    def over(prefix: str, make: Block) -> Stmt:
        inner = Loop(prefix + "j", minimum(const(lanes), n - col) if n % lanes else const(lanes), make, "vectorized")
        return Loop(
            prefix + "i", minimum(const(rows), mm - row) if dynamic or m % rows else const(rows), inner, "unrolled"
        )

    def tile(prefix: str) -> tuple[IntExpr, IntExpr]:
        return var(prefix + "i"), var(prefix + "j")

    i, j = tile("a")
    cell = (var("x"), var("y"))
    axes = (Axis("x", const(rows)), Axis("y", const(lanes)))
    init = over("a", Block("init", axes, (i, j), "acc", cell, Const(0.0, F32)))
    i, j = tile("b")
    product = Op("mul", (at("A", var("r"), var("kk")), at("B", var("kk"), var("c"))), F32)
    step = Block("update", (*axes, Axis("kk", const(k), "reduce"), Axis("r", mm), Axis("c", const(n))),
                 (i, j, var("k"), row + i, col + j), "acc", cell, add(at("acc", *cell), product))  # fmt: skip
    update = Loop("k", const(k), over("b", step))
    i, j = tile("c")
    out = over("c", Block("out", (*axes, Axis("r", mm), Axis("c", const(n))), (i, j, row + i, col + j),
                          "C", (var("r"), var("c")), at("acc", *cell)))  # fmt: skip
    body = Alloc(buf("acc", rows, lanes, scope="local"), seq(init, update, out))
    nest = Loop("mo", ceildiv(mm, rows), Loop("no", ceildiv(n, lanes), body), "parallel")
    first = "m" if dynamic else m
    return Func("mm", (buf("A", first, k), buf("B", k, n), buf("C", first, n)), 1, ("m",) if dynamic else (), nest)


@pytest.mark.parametrize(
    ("m", "n", "k", "lanes"), [(6, 16, 9, 16), (13, 32, 7, 16), (7, 21, 5, 16), (4, 24, 3, 24), (5, 11, 4, 11)]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_tiled_matmul(m: int, n: int, k: int, lanes: int, dynamic: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((m, k), np.float32), rng.random((k, n), np.float32)
    kernel = build(tiled(m, n, k, 6, lanes, dynamic))
    for threads in (1, 2, 3):
        got = kernel([a, b], {"m": m} if dynamic else {}, threads)[0]
        np.testing.assert_allclose(got, a @ b, rtol=1e-5)


@pytest.mark.skipif("+fma" not in detect_host().features, reason="needs fused multiply-add")
def test_accumulators_stay_in_registers() -> None:
    host = detect_host()
    lanes = 2 * host.lanes(4)
    text = assembly_text(emitted(tiled(6, lanes, 64, 6, lanes), host, "kernel"), host)
    lines = text.splitlines()
    fused = [i for i, line in enumerate(lines) if "vfmadd" in line]
    assert len(fused) >= 12
    assert not any("(%rsp)" in line for line in lines[fused[0] : fused[-1]]), text


def strided_windows(channels: int) -> Func:
    """A convolution with 3x3 taps and stride 2 over few channels: the windows of neighbours overlap."""
    lanes = 2 * detect_host().lanes(4)
    x = placeholder("X", (33, 65, channels), F32)
    w = placeholder("W", (1, 3, 3, channels, lanes), F32)
    i, j, c = (reduce_axis(n, name) for n, name in ((3, "i"), (3, "j"), (channels, "c")))

    def window(h: IntExpr, q: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        return sum_over(x[h * 2 + i.index, q * 2 + j.index, c.index] * w[no, i, j, c, ni], i, j, c)

    acc = compute("acc", (16, 32, 1, lanes), window)
    out = compute("Y", (16, 32, lanes), lambda h, q, k: op("max", acc[h, q, k // lanes, k % lanes], 0.0))
    return build_func("windows", [x, w], [out], [acc])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("cpu", "kind"),
    [("znver3", ""), ("znver4", "zmm")],  # in the second, an address is read back between whole tiles and the rest
)
def test_taps_that_overlap_are_loaded_again(channels: int, cpu: str, kind: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu} -num-threads=1")
    func = default_trace(strided_windows(channels), target).apply(strided_windows(channels))
    rng = np.random.default_rng(0)
    check(func, *(rng.standard_normal([int(d) for d in b.shape]).astype(np.float32) for b in func.params[:2]))
    text = emitted(func, target, "kernel")
    assert text.count("llvm.loop.unroll.disable") == text.count("!llvm.loop")
    lines = assembly_text(text, target).splitlines()
    fused = [n for n, line in enumerate(lines) if "vfmadd" in line]
    kept = [line for line in lines[fused[0] : fused[-1]] if "(%rsp)" in line and kind in line]
    assert not kept, "\n".join(kept)


def test_guard_scalar_and_in_lanes() -> None:
    even = Op("equal", (Index(var("io") * 4 % 8, I64), Const(0, I64)), BOOL)
    odd = Op("equal", (Index((var("io") * 4 + var("ii")) % 2, I64), Const(1, I64)), BOOL)
    index = var("io") * 4 + var("ii")
    zero = Loop("z", const(14), Block("z", (Axis("x", const(14)),), (var("z"),), "C", (var("x"),), Const(0.0, F32)))
    store = Store("C", (index,), at("A", index))
    inner = Guard(even, Loop("ii", minimum(const(4), 14 - var("io") * 4), Guard(odd, store), "vectorized"))
    f = Func("f", (buf("A", 14), buf("C", 14)), 1, (), seq(zero, Loop("io", const(4), inner)))
    check(f, np.arange(14, dtype=np.float32))


def test_private_buffer_of_each_lane() -> None:
    """A local allocation inside a vectorized loop: one copy a lane."""
    i = var("i")
    zero = Store("t", (const(0),), Const(0.0, F32))
    step = Loop("k", const(5), Store("t", (const(0),), add(at("t", const(0)), at("A", i, var("k")))))
    out = Store("C", (i,), at("t", const(0)))
    body = Loop("i", const(11), Alloc(buf("t", 1, scope="local"), seq(zero, step, out)), "vectorized")
    f = Func("f", (buf("A", 11, 5), buf("C", 11)), 1, (), body)
    check(f, np.random.default_rng(0).random((11, 5), np.float32))


def test_unrolled_ragged_and_empty() -> None:
    i = var("o") * 3 + var("u")
    body = Loop("o", ceildiv(var("n"), 3), Loop("u", minimum(const(3), var("n") - var("o") * 3),
                Store("C", (i,), add(at("A", i), at("A", i))), "unrolled"))  # fmt: skip
    f = Func("f", (buf("A", "n"), buf("C", "n")), 1, ("n",), body)
    for n in (0, 1, 3, 8):
        check(f, np.arange(n, dtype=np.float32), n=n)


def phases() -> Func:
    """Three nests through a workspace: parallel, serial, parallel; each needs the one before."""
    t = buf("T", "n")
    first = Loop("i", var("n"), Store("T", (var("i"),), add(at("A", var("i")), Const(1.0, F32))), "parallel")
    total = Loop("k", var("n"), Store("S", (const(0),), add(at("S", const(0)), at("T", var("k")))))
    zero = Store("S", (const(0),), Const(0.0, F32))
    last = Loop(
        "j", var("n"), Store("C", (var("j"),), add(at("T", var("n") - 1 - var("j")), at("S", const(0)))), "parallel"
    )
    body = Alloc(t, Alloc(buf("S", 1), seq(first, zero, total, last)))
    return Func("phases", (buf("A", "n"), buf("C", "n")), 1, ("n",), body)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 33])
def test_phases_wait_for_each_other(n: int, threads: int) -> None:
    f = phases()
    assert is_parallel(f)
    assert [b.name for b in workspaces(prepare(f, detect_host()), detect_host())] == ["T", "S"]
    check(f, np.arange(n, dtype=np.float32), threads=threads, n=n)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_a_loop_where_it_is_worth_it(threads: int) -> None:
    copy = Loop(
        "i", var("n"), Store("C", (var("i"),), at("A", var("i"))), "parallel", (ParallelIf(var("n") * var("n") - 100),)
    )
    f = Func("f", (buf("A", "n"), buf("C", "n")), 1, ("n",), copy)
    text = emitted(f, detect_host(), "kernel")
    assert "@parallel_if0" in text
    for n in (0, 1, 10, 11, 40):
        check(f, np.arange(n, dtype=np.float32), threads=threads, n=n)


@pytest.mark.parametrize("hints", [(), (ParallelIf(var("m") - 3),)])
def test_a_loop_without_a_condition_in_the_dims_is_always_shared(hints: tuple[ParallelIf, ...]) -> None:
    copy = Loop("i", var("n"), Store("C", (var("i"),), at("A", var("i"))), "parallel", hints)
    f = Func("f", (buf("A", "n"), buf("C", "n")), 1, ("n",), copy)
    assert "@parallel_if" not in emitted(f, detect_host(), "kernel")
    check(f, np.arange(3, dtype=np.float32), threads=2, n=3)


def test_constant_conditions_leave_no_branch() -> None:
    inside = Op("less", (Index(var("x"), I64), Const(16, I64)), BOOL)
    f = vector_copy(Select(inside, at("A", var("x")), Const(0.0, F32)), 16, 8, buf("A", 16))
    text = emitted(f, detect_host(), "kernel")
    assert "select" not in text
    assert "masked" not in text


# -- refusals --------------------------------------------------------------------------------------------------------
def test_wrong_arguments() -> None:
    kernel = build(phases())
    with pytest.raises(InputError, match="expected 1 inputs, got 0"):
        kernel([], {"n": 1})
    with pytest.raises(InputError, match="dims without a value: n"):
        kernel([np.zeros(1, np.float32)], {})
    with pytest.raises(InputError, match="input A: expected float32"):
        kernel([np.zeros(2, np.float32)], {"n": 1})


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_threads_meet_in_each_step_of_a_recurrence(steps: int, threads: int, symbolic: bool) -> None:
    s = Schedule(stepped(var("n") if symbolic else steps, 37))
    product, state = s.loops("Rh")[1], s.loops("next")[1]
    s.parallel(product)
    s.parallel(state)
    assert is_parallel(s.func)
    rng = np.random.default_rng(steps)
    x, r = rng.standard_normal((steps, 37)).astype(np.float32), rng.standard_normal((37, 37)).astype(np.float32) / 6
    for _ in range(5):
        check(s.func, x, r, threads=threads, **({"n": steps} if symbolic else {}))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("factors", [(None, 3), (2, None, 2)], ids=str)
def test_threads_meet_in_steps_inside_of_steps(factors: tuple[int | None, ...], threads: int) -> None:
    """The number of inner steps depends on the outer one, and is 0 for some."""
    s = Schedule(stepped(var("n"), 21))
    s.split("step", factors)
    for block in ("Rh", "next"):
        s.parallel(s.loops(block)[len(factors)])
    text = emitted(s.func, detect_host(), "kernel")
    assert text.count("define internal i64 @count") == len(factors), "a count of steps for each loop around threads"
    r = np.random.default_rng(5).standard_normal((21, 21)).astype(np.float32) / 6
    for n in (0, 1, 3, 7):
        x = np.random.default_rng(n).standard_normal((n, 21)).astype(np.float32)
        check(s.func, x, r, threads=threads, n=n)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("size", [1, 5, 19])
def test_a_recurrence_declared_with_two_loops(size: int, threads: int) -> None:
    s = Schedule(recurrent(var("n"), size))
    for block in ("P", "U"):
        s.parallel(s.loops(block)[2])
    rng = np.random.default_rng(size)
    for n in (0, 1, 4):
        a, x = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((size, size), (n, 3, size)))
        check(s.func, a, x, threads=threads, n=n)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_peeled_loop_and_its_tail_are_one_phase(threads: int) -> None:
    def rows(name: str, first: int, count: int) -> Loop:
        i = var(name)
        return Loop(name, const(count), Store("C", (i + first,), add(at("A", i + first), at("A", i))), "parallel")

    def kernel_of(*nests: Loop) -> Func:
        return Func("f", (buf("A", 24), buf("C", 24)), 1, (), seq(*nests))

    apart, shared = kernel_of(rows("i", 0, 18), rows("t", 18, 6)), kernel_of(rows("i", 0, 18), rows("t", 17, 7))
    texts = [emitted(f, detect_host(), "kernel") for f in (apart, shared)]
    assert [t.count("define internal void @chunk") for t in texts] == [1, 2]
    check(apart, np.arange(24, dtype=np.float32), threads=threads)
