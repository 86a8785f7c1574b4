"""Entry functions: several kernels in one call, on one or two threads, with clocks; loading and unloading of code."""

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import time

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.llvm.jit import Library, assembly_text, compile_object, compile_objects
from tilewright.codegen.native.entry import EntryStep, emit_entry, entry_imports
from tilewright.codegen.native.thread_pool import thread_pool_code, thread_pool_text
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import InternalError
from tilewright.runtime.resources.thread_pool import THREAD_POOLS, PoolHandle, ThreadPool
from tilewright.tensor_ir.ir import Buffer, Const, Func, Load, Loop, LoopKind, Op, Store
from tilewright.tests.codegen.helpers import emitted

ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
N = 1000


def step(name: str, kind: LoopKind) -> Func:
    """``C[i] = A[n-1-i] * 2 + 1``: reads what another thread wrote."""
    a, c = (Buffer(x, dtypes.float32, (var("n"),)) for x in "AC")
    doubled = Op(
        "mul", (Load("A", (var("n") - 1 - var("i"),), dtypes.float32), Const(2.0, dtypes.float32)), dtypes.float32
    )
    value = Op("add", (doubled, Const(1.0, dtypes.float32)), dtypes.float32)
    return Func(name, (a, c), 1, ("n",), Loop("i", var("n"), Store("C", (var("i"),), value), kind))


def entry_library() -> Library:
    host = detect_host()
    texts = [emitted(step("f", "parallel"), host, "f"), emitted(step("g", "serial"), host, "g")]
    steps = [EntryStep(s, 2, 1) for s in ("f", "g", "f", "f")]
    texts.append(emit_entry("entry", steps, host))
    return Library(compile_objects([(t, host) for t in texts]), ["entry"], entry_imports(host))


def run(library: Library, threads: int, repeat: int = 1) -> tuple[np.ndarray, np.ndarray]:
    chain = [np.arange(N, dtype=np.float32), *(np.zeros(N, np.float32) for _ in range(4))]
    pointers = [a.ctypes.data for pair in itertools.pairwise(chain) for a in pair]
    table = (ctypes.c_void_p * len(pointers))(*pointers)
    dims = (ctypes.c_int64 * 4)(*[N] * 4)
    times = np.zeros(5)
    call = ENTRY(library.addresses["entry"])
    with PoolHandle(threads, thread_pool_code()).borrowed(True) as pool:
        for _ in range(repeat):
            call(ctypes.addressof(table), ctypes.addressof(dims), pool, times.ctypes.data)
            call(ctypes.addressof(table), ctypes.addressof(dims), pool, None)
    return chain[-1], times


EXPECTED = np.arange(N, dtype=np.float32) * 16 + 15


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_four_steps(threads: int) -> None:
    before = time.monotonic()
    got, times = run(entry_library(), threads, 20)
    np.testing.assert_array_equal(got, EXPECTED)
    assert (np.diff(times) >= 0).all()
    assert before <= times[0] <= times[-1] <= time.monotonic()


@pytest.mark.parametrize("same", [(0, 1), (1, 0)])
def test_a_step_is_left_out_where_two_pointers_are_equal(same: tuple[int, int]) -> None:
    host = detect_host()
    steps = [EntryStep("f", 2, 1), EntryStep("g", 2, 1, same=same), EntryStep("f", 2, 1)]
    texts = [emitted(step("f", "serial"), host, "f"), emitted(step("g", "serial"), host, "g")]
    library = Library(
        compile_objects([(t, host) for t in (*texts, emit_entry("entry", steps, host))]), ["entry"], entry_imports(host)
    )
    dims, times = (ctypes.c_int64 * 3)(*[N] * 3), np.zeros(4)
    for is_same, wanted in ((True, 7), (False, 15)):
        a, b, c, d = (np.full(N, x, np.float32) for x in (1, 0, 0, 0))
        chain = (a, b, b, b, b, d) if is_same else (a, b, b, c, c, d)
        table = (ctypes.c_void_p * 6)(*(x.ctypes.data for x in chain))
        ENTRY(library.addresses["entry"])(ctypes.addressof(table), ctypes.addressof(dims), None, times.ctypes.data)
        np.testing.assert_array_equal(d, np.full(N, wanted, np.float32))
        assert (np.diff(times) >= 0).all()


def test_a_busy_team_leaves_the_work_to_the_caller() -> None:
    pool = PoolHandle(2, thread_pool_code())
    with pool.borrowed(True) as first, pool.borrowed(True) as second:
        assert first is not None
        assert second is None
    with pool.borrowed(False) as serial:
        assert serial is None


def test_workers_sleep_wake_and_end() -> None:
    pool = ThreadPool(thread_pool_code(), 3)
    library = entry_library()
    for pause in (0.0, 0.05, 0.0):
        time.sleep(pause)  # long enough for workers to fall asleep, so that a job must wake them
        source, result = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
        pointers = [source.ctypes.data, result.ctypes.data] * 4
        table, dims = (ctypes.c_void_p * 8)(*pointers), (ctypes.c_int64 * 4)(*[N] * 4)
        ENTRY(library.addresses["entry"])(ctypes.addressof(table), ctypes.addressof(dims), pool.address, None)
        np.testing.assert_array_equal(result, source[::-1] * 2 + 1)
    pool.close()


def _child(queue: multiprocessing.SimpleQueue[bool]) -> None:
    queue.put(bool((run(entry_library(), 2)[0] == EXPECTED).all()))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_makes_a_team_of_its_own() -> None:
    THREAD_POOLS.get(thread_pool_code(), 2)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_child, args=(queue,))
    child.start()
    child.join(20)
    assert queue.get() is True


def test_the_team_compiles_for_other_cpus() -> None:
    arm = parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    assert "yield" in assembly_text(thread_pool_text(arm), arm)


def test_code_is_freed() -> None:
    host = detect_host()
    blob = compile_object(emitted(step("f", "serial"), host, "f"), host)
    for _ in range(30):
        library = Library([blob], ["f"])
        assert library.addresses["f"]
        library.close()
        library.close()
        assert library.addresses == {}


def test_objects_are_deterministic() -> None:
    host = detect_host()
    text = emitted(step("f", "parallel"), host, "f")
    assert text == emitted(step("f", "parallel"), host, "f")
    assert len(set(compile_objects([(text, host)] * 4))) == 1


def test_other_cpus_compile() -> None:
    arm = parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    assert "fmadd" in assembly_text(emitted(step("f", "serial"), arm, "f"), arm)
    wide = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4")
    assert compile_object(emitted(step("f", "serial"), wide, "f"), wide)


def test_llvm_errors_name_the_line() -> None:
    with pytest.raises(InternalError, match="LLVM rejects the module"):
        compile_object("define void @f() {\n  %x = nonsense\n}", detect_host())
    with pytest.raises(InternalError, match="linking failed"):
        Library([compile_object("declare void @missing()\ndefine void @f() {\n  call void @missing()\n  ret void\n}",
                                detect_host())], ["f"])  # fmt: skip
