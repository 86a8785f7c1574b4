"""Results past the caches: when the rules ask for it, which stores it reaches, and that values do not change."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, var
from tilewright.runtime.resources.arrays import aligned_empty
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.streaming import streamed_blocks
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.lowering.lowered import TARGET

SMALL = dataclasses.replace(detect_host(), l2_bytes=256, l3_bytes=1024)
"""Caches so small that the functions here are large."""


def relu(rows: IntLike, width: IntLike) -> Func:
    """B[i, j] = max(A[i, j], 0)"""
    a = placeholder("A", (rows, width), dtypes.float32)
    return build_func("relu", [a], [compute("B", (rows, width), lambda i, j: op("max", a[i, j], 0.0))])


def scheduled(func: Func, threads: int = 1, **decisions: int) -> Func:
    return schedule_by_rule(func, SMALL.with_threads(threads), FixedDecider(decisions)).func


def aligned(shape: tuple[int, ...], first: int) -> np.ndarray:
    """An array that begins ``first`` elements after an aligned address."""
    count = int(np.prod(shape))
    raw = aligned_empty(4 * (count + first + 16)).view(np.float32)
    return raw[first : first + count].reshape(shape)


@pytest.mark.parametrize(("rows", "width"), [(64, 64), (37, 45), (1, 1027), (9, 8)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("first", [0, 1])
def test_values_at_aligned_and_other_addresses(rows: int, width: int, threads: int, first: int) -> None:
    func = relu(rows, width)
    after = scheduled(func, threads)
    assert parse_func(str(after)) == after
    kernel = build(after)
    x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
    out = aligned((rows, width), first)
    out[:] = -1
    kernel.run([x, out], {}, threads)
    np.testing.assert_array_equal(out, np.maximum(x, 0))


def test_only_large_results_that_nothing_reads() -> None:
    assert streamed_blocks(scheduled(relu(64, 64))) == {"B"}
    assert streamed_blocks(scheduled(relu(64, 64), **{"B.stream": 0})) == frozenset()
    assert streamed_blocks(scheduled(relu(4, 8))) == frozenset()
    assert streamed_blocks(scheduled(relu(12, 16))) == frozenset()
    assert streamed_blocks(scheduled(relu(12, 16), **{"B.stream": 1})) == {"B"}
    assert streamed_blocks(scheduled(relu(var("n"), 64))) == frozenset()


def test_one_fence_where_there_is_such_a_store() -> None:
    host = detect_host()
    text = emitted(scheduled(relu(64, 64)), host, "k")
    assert text.count("!nontemporal") == 4
    assert text.count("fence seq_cst") == 1
    assert "fence" not in emitted(scheduled(relu(64, 64), **{"B.stream": 0}), host, "k")


def test_rows_that_start_anywhere_are_stored_as_usual() -> None:
    s = Schedule(relu(16, 9))
    i, j = s.loops("B")
    s.vectorize(s.split(j, (None, 8))[1])
    s.stream(i, "B")
    assert streamed_blocks(s.func) == {"B"}
    assert "!nontemporal" not in emitted(s.func, detect_host(), "k")


@pytest.mark.parametrize(
    ("width", "streams"), [(1, False), (4, False), (12, False), (13, False), (8, True), (24, True)]
)
def test_whole_registers_only(width: int, streams: bool) -> None:
    """What fills no register would go alone into a line that stores of its neighbours have just fetched."""
    s = Schedule(relu(16, width))
    i, j = s.loops("B")
    if width % 8:
        _, inner = s.split(j, (None, 4 if width % 4 == 0 else 1))
        s.vectorize(inner)
    else:
        s.vectorize(j)
    s.stream(i, "B")
    assert ("!nontemporal" in emitted(s.func, TARGET, "k")) == streams


def test_a_name_that_is_no_result_does_nothing() -> None:
    s = Schedule(relu(16, 16))
    s.stream(s.loops("B")[0], "A")
    assert streamed_blocks(s.func) == frozenset()
