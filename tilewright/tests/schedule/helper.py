"""The four tests of a rewrite: golden text, numeric twin, round trip with verification, refusals.

Inputs are small integers (also as floats), so that sums are exact and reassociation cannot be seen as an error.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike
from tilewright.core.arith.expr import var as ir_var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import substitute_stmt
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.compute import (
    build_func,
    compute,
    max_over,
    op,
    placeholder,
    reduce_axis,
    select,
    self_load,
    sum_over,
)
from tilewright.tensor_ir.compute import index_value as index
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func, Loop, Seq, Stmt, map_children
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify

AWKWARD = (1, 2, 7, 13, 16, 0)
"""One, small, prime, not divisible, divisible, and no iteration at all."""

f32 = dtypes.float32


def random_args(func: Func, dims: Mapping[str, int], seed: int = 0) -> list[np.ndarray]:
    """Arrays for the inputs of ``func``: integers from -3 to 3."""
    rng = np.random.default_rng(seed)
    inputs = func.params[: len(func.params) - func.outputs]
    return [rng.integers(-3, 4, tuple(d.evaluate(dims) for d in b.shape)).astype(b.dtype.numpy) for b in inputs]


def check_round_trip(func: Func) -> None:
    """The function verifies, and its text reads back as the same function."""
    verify(func)
    text = str(func)
    assert parse_func(text) == func, text


def check_twin(before: Func, after: Func, sizes: Sequence[Mapping[str, int]], note: str = "") -> None:
    """Both functions compute the same arrays for every assignment of dims in ``sizes``."""
    for dims in sizes or ({},):
        args = random_args(before, dims)
        want = interpret(before, args, dims)
        ways = {"": after, ", backwards": backwards(after), ", lanes together": lanes_together(after)}
        for way, func in ways.items():
            for w, g in zip(want, interpret(func, args, dims), strict=True):
                np.testing.assert_array_equal(g, w, err_msg=f"{note}\ndims={dict(dims)}{way}\n{after!s}")


def backwards(func: Func) -> Func:
    """``func`` with every parallel and vectorized loop run from its end: the same, if these loops carry nothing."""

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        if isinstance(s, Loop) and s.kind in ("parallel", "vectorized"):
            return dataclasses.replace(s, body=substitute_stmt(s.body, {s.var: s.extent - 1 - ir_var(s.var)}))
        return s

    return dataclasses.replace(func, body=visit(func.body))


def lanes_together(func: Func) -> Func:
    """``func`` with each vectorized loop around single statements: every lane is done with one before the next."""

    def push(loop: Loop, s: Stmt) -> Stmt:
        if isinstance(s, Seq) or (isinstance(s, Loop) and loop.var not in s.extent.free_vars()):
            return map_children(s, lambda c: push(loop, c))
        return dataclasses.replace(loop, body=s)

    def visit(s: Stmt) -> Stmt:
        s = map_children(s, visit)
        return push(s, s.body) if isinstance(s, Loop) and s.kind == "vectorized" else s

    return dataclasses.replace(func, body=visit(func.body))


def every_size(func: Func, values: Sequence[int] = AWKWARD) -> list[dict[str, int]]:
    """All dims at each of ``values`` in turn, and once all different."""
    out = [dict.fromkeys(func.dims, v) for v in values]
    if len(func.dims) > 1:
        out.append({d: values[(n + 1) % len(values)] for n, d in enumerate(func.dims)})
    return out


def check(func: Func, trace: str, golden: str | None = None, sizes: Sequence[Mapping[str, int]] | None = None) -> Func:
    """Apply a trace given as text: verify, round trip, numeric twin, and its body's text if ``golden`` is given."""
    parsed = Trace.from_text(textwrap.dedent(trace))
    assert Trace.from_text(parsed.to_text()) == parsed
    assert Trace.from_json(parsed.to_json()) == parsed
    after = parsed.apply(func)
    check_round_trip(func)
    check_round_trip(after)
    check_twin(func, after, every_size(func) if sizes is None else sizes, parsed.to_text())
    if golden is not None:
        assert body_text(after) == textwrap.dedent(golden).strip()
    return after


def body_text(func: Func) -> str:
    """The text of a function without its header."""
    lines = str(func).rstrip("\n").split("\n")
    start = next(n for n, line in enumerate(lines) if line.startswith("def "))
    return textwrap.dedent("\n".join(lines[start + 1 :]))


def refuses(func: Func, trace: str, message: str) -> None:
    """The last step of the trace is refused with exactly this message."""
    parsed = Trace.from_text(textwrap.dedent(trace))
    ready = Trace(parsed.steps[:-1]).apply(func)
    with pytest.raises(ScheduleError, match="^" + re.escape(message) + "$"):
        parsed.steps[-1].apply(ready)


def refuse_bullets(primitive: type) -> list[str]:
    """The bullets of the ``Refuses:`` part of a primitive's docstring."""
    part = (primitive.__doc__ or "").split("Refuses:")[1].split("Cost:")[0]
    return [" ".join(x.split()) for x in re.split(r"^\s*- ", part, flags=re.MULTILINE)[1:]]


def check_refusals(primitive: type, cases: Mapping[str, tuple[Func, str, str]]) -> None:
    """``cases``: bullet -> (function, trace, message). Every bullet of the docstring is there, and is refused."""
    assert list(cases) == refuse_bullets(primitive)
    for func, trace, message in cases.values():
        refuses(func, trace, message)


# -- programs ----------------------------------------------------------------------------------------------------
def elementwise(n: IntLike, m: IntLike = 3) -> Func:
    """B[i, j] = A[i, j] + A[i, j]"""
    a = placeholder("A", (n, m), f32)
    return build_func("elementwise", [a], [compute("B", (n, m), lambda i, j: a[i, j] + a[i, j])])


def matmul(m: IntLike, n: IntLike, k: IntLike) -> Func:
    """C = A @ B"""
    a, b = placeholder("A", (m, k), f32), placeholder("B", (k, n), f32)
    r = reduce_axis(k, "k")
    return build_func("matmul", [a, b], [compute("C", (m, n), lambda i, j: sum_over(a[i, r] * b[r, j], r))])


def matmul_relu(m: IntLike, n: IntLike, k: IntLike) -> Func:
    """D = max(A @ B + bias, 0), in three stages"""
    a, b, bias = placeholder("A", (m, k), f32), placeholder("B", (k, n), f32), placeholder("bias", (n,), f32)
    r = reduce_axis(k, "k")
    c = compute("C", (m, n), lambda i, j: sum_over(a[i, r] * b[r, j], r))
    e = compute("E", (m, n), lambda i, j: c[i, j] + bias[j])
    d = compute("D", (m, n), lambda i, j: op("max", e[i, j], 0))
    return build_func("matmul_relu", [a, b, bias], [d], [c, e])


def prefix_sum(n: IntLike, m: IntLike) -> Func:
    """S[i, t] = A[i, t] + S[i, t-1], an ordered axis"""
    a = placeholder("A", (n, m), f32)

    def formula(i: IntLike, t: IntLike) -> object:
        first = index(t, dtypes.int64)
        return select(op("equal", first, 0), a[i, t], a[i, t] + self_load("S", f32, i, t - 1))

    return build_func("prefix_sum", [a], [compute("S", (n, m), formula, ordered=(1,), axis_names=("i", "t"))])


def row_max(n: IntLike, m: IntLike) -> Func:
    """B[i, j] = A[i, j] - max(A[i, :]), two stages with a reduction"""
    a = placeholder("A", (n, m), f32)
    r = reduce_axis(m, "r")
    top = compute("M", (n,), lambda i: max_over(a[i, r], r))
    return build_func("row_max", [a], [compute("B", (n, m), lambda i, j: a[i, j] - top[i])], [top])


def blur(n: IntLike) -> Func:
    """B[i] = T[i] + T[i+1] + T[i+2] with T[i] = A[i] + A[i]"""
    a = placeholder("A", (n + 2,), f32)
    t = compute("T", (n + 2,), lambda i: a[i] + a[i])
    return build_func("blur", [a], [compute("B", (n,), lambda i: t[i] + t[i + 1] + t[i + 2])], [t])


def conv(n: IntLike, c: IntLike) -> Func:
    """C[o, x] = max(sum A[i, 2*x + k] * W[o, i, k], 0), padded by one on the left through an intermediate"""
    a, w = placeholder("A", (2, n * 2 + 1), f32), placeholder("W", (c, 2, 3), f32)
    pad = compute("P", (2, n * 2 + 2), lambda i, x: select(op("greater", index(x, dtypes.int64), 0), a[i, x - 1], 0))
    i, k = reduce_axis(2, "i"), reduce_axis(3, "k")
    s = compute("S", (c, n), lambda o, x: sum_over(pad[i, x * 2 + k] * w[o, i, k], i, k))
    out = compute("C", (c, n), lambda o, x: op("max", s[o, x], 0))
    return build_func("conv", [a, w], [out], [pad, s])


def gather(n: IntLike, m: IntLike) -> Func:
    """C[i, j] = A[j, I[i]] + A[j, I[i]], through a transposed copy"""
    a, at = placeholder("A", (m, 7), f32), placeholder("I", (n,), dtypes.int64)
    t = compute("T", (7, m), lambda x, j: a[j, x])
    c = compute("C", (n, m), lambda i, j: t[at[i] + 3, j] + t[at[i] + 3, j])
    return build_func("gather", [a, at], [c], [t])


PROGRAMS: dict[str, Callable[..., Func]] = {
    "elementwise": elementwise, "matmul": matmul, "matmul_relu": matmul_relu, "prefix_sum": prefix_sum,
    "row_max": row_max, "blur": blur, "conv": conv, "gather": gather,
}  # fmt: skip
