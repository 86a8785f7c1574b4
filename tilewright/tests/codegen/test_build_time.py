"""The build of one kernel or entry: what is written out is bounded, what was emitted is not emitted again."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.emit.indexing import Indexer
from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.jit import Library, compile_object, compile_objects
from tilewright.codegen.native.entry import EntryStep, emit_entry, entry_imports
from tilewright.core import dtypes
from tilewright.core.arith.bounds import upper_bound
from tilewright.core.arith.expr import Atom, ceildiv, var
from tilewright.machine.target import Target
from tilewright.schedule.decisions import DefaultDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.tensor_ir.analysis.scopes import block_path, loop_ranges, loops_in
from tilewright.tensor_ir.compute import Tensor, build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Block, Expr, Func, walk_expr
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.codegen.native.test_entry import ENTRY, step

TARGET = parse_target("llvm -mcpu=x86-64-v3").with_threads(2)


def test_what_is_emitted_is_compiled_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    host = detect_host()
    text = emitted(step("f", "serial"), host, "f")
    compiled = threading.Event()

    def noted(text: str, target: Target, opt: int) -> bytes:
        code = compile_object(text, target, opt)
        compiled.set()
        return code

    def texts() -> Iterator[tuple[str, Target]]:
        yield text, host
        assert compiled.wait(60)
        yield text, host

    monkeypatch.setattr(jit, "compile_object", noted)
    first, second = compile_objects(texts(), workers=2)
    assert first == second


def test_an_error_while_texts_are_made_is_the_callers() -> None:
    def texts() -> Iterator[tuple[str, Target]]:
        yield emitted(step("f", "serial"), detect_host(), "f"), detect_host()
        raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        compile_objects(texts(), workers=2)


@pytest.mark.parametrize("count", [999, 1000, 1001, 2500])
def test_a_long_entry_is_in_parts(count: int) -> None:
    host = detect_host()
    text = emit_entry("entry", [EntryStep("f", 2, 1)] * count, host)
    functions = [f.count("call void @f(") for f in text.split("define ")]
    assert max(functions) <= 1000
    assert sum(functions) == count
    kernel = emitted(step("f", "serial"), host, "f")
    library = Library(compile_objects([(kernel, host), (text, host)]), ["entry"], entry_imports(host))
    chain = np.zeros((count + 1, 3), np.float32)
    pointers = [chain[i + d].ctypes.data for i in range(count) for d in (0, 1)]
    table, dims = (ctypes.c_void_p * len(pointers))(*pointers), (ctypes.c_int64 * count)(*[3] * count)
    times = np.zeros(count + 1)
    call = ENTRY(library.addresses["entry"])
    call(ctypes.addressof(table), ctypes.addressof(dims), None, times.ctypes.data)
    np.testing.assert_array_equal(chain[:100, 0], np.float32([2.0**k - 1 for k in range(min(count, 99) + 1)]))
    assert times[0] > 0
    assert (np.diff(times) >= 0).all()
    library.close()


def long_formula(x: Expr, length: int) -> Expr:
    for _ in range(length):
        x = x * x + 1.0
    return x


def sampled(length: int) -> Func:
    """A sum over two axes of a long formula, as of a sampling operator."""
    x: Tensor = placeholder("X", (64, 7, 7), dtypes.float32)
    a, b = reduce_axis(2, "a"), reduce_axis(2, "b")
    total = compute("total", (64, 7, 7), lambda c, i, j: sum_over(long_formula(x[c, i, j], length), a, b))
    return build_func("sampled", [x], [compute("out", (64, 7, 7), lambda c, i, j: total[c, i, j] * 0.25)], [total])


@pytest.mark.parametrize(("length", "least"), [(1, 8), (6, 1), (9, 1)])
def test_a_tile_of_a_long_formula_is_small(length: int, least: int) -> None:
    func = schedule_by_rule(sampled(length), TARGET, DefaultDecider()).func
    path = block_path(func, "total")
    block = path[-1]
    assert isinstance(block, Block)
    loops = loops_in(path)
    extents = [upper_bound(x.extent, loop_ranges(loops)) or 0 for x in loops if x.kind == "unrolled"]
    copies = math.prod(extents)
    size = sum(1 for _ in walk_expr(block.value))
    assert least <= copies <= max(1, 1024 // size)


def shifted(count: int) -> Func:
    """Sums of ``count`` elements of a symbolic row whose size is a formula that every index repeats."""
    n = ceildiv(var("n"), 3)
    x = placeholder("X", (var("m"), n), dtypes.float32)

    def value(i: Expr, j: Expr) -> Expr:
        parts = [x[i, (j * 5 + k) % n] for k in range(count)]
        return sum(parts[1:], parts[0])

    return build_func("shifted", [x], [compute("out", (var("m"), n), value)])


def test_an_index_is_emitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, Atom, tuple[int | str | None, ...]]] = []
    operation = Indexer._operation

    def noted(self: Indexer, a: Atom) -> object:
        asked.append((id(self), a, tuple(map(self.env.get, sorted(a.free_vars())))))
        return operation(self, a)

    monkeypatch.setattr(Indexer, "_operation", noted)
    emitted(schedule_by_rule(shifted(6), TARGET, DefaultDecider()).func, TARGET, "shifted")
    assert asked
    assert len(asked) == len(set(asked))
