"""Variables of fused loops that are counted up instead of divided out."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tests.codegen.helpers import emitted

F32 = dtypes.float32
H, W, P, Q, R = (var(n) for n in "hwpqr")


def _check(func: Func, inputs: Sequence[np.ndarray], dims: dict[str, int]) -> None:
    (want,) = interpret(func, list(inputs), dims)
    kernel = build(func)
    for threads in (1, 3):
        np.testing.assert_allclose(kernel(list(inputs), dims, threads)[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("unroll", [False, True])
def test_fused_loops_of_symbolic_size_count_instead_of_dividing(parallel: bool, unroll: bool) -> None:
    """Divisions by sizes stand in front of the loop, and none is left inside it."""
    a, b, c, x = (placeholder(n, s, F32) for n, s in (("A", (P, Q, R)), ("B", (Q,)), ("C", (R,)), ("X", (3,))))
    func = build_func(
        "f", [a, b, c, x], [compute("Y", (P, Q, R, 3), lambda i, j, k, u: a[i, j, k] * b[j] + c[k] * x[u])]
    )
    s = Schedule(func)
    if unroll:
        i, j, k, u = s.loops("Y")
        s.unroll(u)
        fused = s.fuse(s.fuse(i, j), k)
    else:
        fused = s.fuse(*s.loops("Y"))
    if parallel:
        s.parallel(fused)
    text = emitted(s.func, detect_host(), "kernel")
    loop = text[text.index("\nloop") : text.index("\nlatch")]
    assert not re.search(r"(div|rem) i64 %\w+, %", loop)
    rng = np.random.default_rng(0)
    for p, q, r in ((1, 1, 1), (2, 3, 5), (4, 1, 7), (3, 7, 1), (0, 2, 2), (2, 0, 3), (13, 2, 3)):
        arrays = (rng.random(shape, np.float32) for shape in ((p, q, r), (q,), (r,), (3,)))
        _check(s.func, list(arrays), {"p": p, "q": q, "r": r})


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 13])
def test_neighbours_of_a_divided_index_are_counted_up(width: int) -> None:
    """Rows of a tile over the pixels of images of symbolic width, which may end within the tile, more than once."""
    a = placeholder("A", (H, W), F32)
    s = Schedule(build_func("f", [a], [compute("Y", (H, W), lambda i, j: a[i, j] + a[0, j])]))
    _, inner = s.split(s.fuse(*s.loops("Y")), (None, 6))
    s.unroll(inner)
    text = emitted(s.func, detect_host(), "kernel")
    assert len(re.findall(r"rem i64 %\w+, %", text)) <= 1
    for height in (1, 2, 7):
        _check(s.func, [np.random.default_rng(0).random((height, width), np.float32)], {"h": height, "w": width})
