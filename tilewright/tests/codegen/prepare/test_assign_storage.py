"""Where local buffers lie: on the stack while there is room, else in memory that the caller gives."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.assign_storage import STACK_LIMIT, assign_storage
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Alloc, Func, walk
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify

HOST = detect_host().with_threads(2)

INSIDE = """
def f({dim}A: float32[6, {m}], C: out(float32[6, {m}])):
    for i in {kind}(6):
        T = local(float32[{m}])
        for j in range({m}):
            T[j] = mul(A[i, j], A[i, j])
        for k in range({m}):
            C[i, k] = add(T[k], T[0])
"""
ROOT = """
def f({dim}A: float32[{m}], C: out(float32[{m}])):
    T = local(float32[{m}])
    for j in range({m}):
        T[j] = mul(A[j], A[j])
    for k in {kind}({m}):
        C[k] = add(T[k], A[k])
"""
STEPS = """
def f(A: float32[4, 8], C: out(float32[4, 8])):
    T = local(float32[8])
    for z in range(8):
        T[z] = float32(0.0)
    for t in range(4):
        for j in range(8):
            T[j] = add(T[j], A[t, j])
        for k in range(8):
            C[t, k] = T[k]
"""
ROOM = STACK_LIMIT // 4


def written(template: str, size: object, kind: str = "range") -> Func:
    return parse_func(template.format(m=size, kind=kind, dim="" if isinstance(size, int) else "m: dim, "))


def scopes(func: Func) -> dict[str, str]:
    return {s.buffer.name: s.buffer.scope for s in walk(assign_storage(func, HOST).body) if isinstance(s, Alloc)}


@pytest.mark.parametrize("kind", ["range", "parallel"])
@pytest.mark.parametrize(
    ("size", "scope"), [(8, "stack"), (ROOM, "stack"), (ROOM + 1, "workspace"), ("m", "workspace")]
)
def test_inside_of_a_nest(size: object, kind: str, scope: str) -> None:
    assert scopes(written(INSIDE, size, kind)) == {"T": scope}


@pytest.mark.parametrize(("size", "scope"), [(8, "stack"), (ROOM + 1, "global"), ("m", "global")])
def test_at_the_root(size: object, scope: str) -> None:
    assert scopes(written(ROOT, size)) == {"T": scope}


def test_what_bounds_a_size_counts() -> None:
    assert scopes(written(INSIDE, "min(m, 8)")) == {"T": "stack"}


def test_a_frame_is_shared_by_the_buffers_of_a_phase() -> None:
    two = f"""
def f(A: float32[4], C: out(float32[4])):
    for i in range(4):
        T = local(float32[{ROOM - 8}])
        T[0] = A[i]
        U = local(float32[9])
        U[0] = T[0]
        V = local(float32[8])
        V[0] = U[0]
        C[i] = V[0]
"""
    assert scopes(parse_func(two)) == {"T": "stack", "U": "workspace", "V": "stack"}


def test_what_outlives_a_phase_is_not_on_its_stack() -> None:
    """A step of a loop around threads is a call: what the next one reads must outlive it."""
    func = parse_func(STEPS.replace("for k in range", "for k in parallel"))
    assert scopes(func) == {"T": "global"}
    assert scopes(parse_func(STEPS)) == {"T": "stack"}
    alone = parse_func(
        STEPS.replace("C[t, k] = T[k]", "C[t, k] = A[t, k]").replace("for k in range", "for k in parallel")
    )
    assert scopes(alone) == {"T": "global"}


def test_lanes_have_a_copy_each() -> None:
    lanes = f"""
def f(A: float32[8], C: out(float32[8])):
    for i in vectorized(8):
        T = local(float32[{ROOM // 8}])
        T[0] = A[i]
        C[i] = T[0]
"""
    assert scopes(parse_func(lanes)) == {"T": "workspace"}
    assert scopes(parse_func(lanes.replace(f"[{ROOM // 8}]", f"[{ROOM // 8 - 1}]"))) == {"T": "stack"}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("func", [
    written(INSIDE, ROOM + 3), written(INSIDE, ROOM + 3, "parallel"), written(ROOT, ROOM + 3), written(ROOT, "m"),
    parse_func(STEPS), written(INSIDE, "min(m, 8)", "parallel"),
])  # fmt: skip
def test_values_are_those_of_the_interpreter(func: Func, threads: int) -> None:
    verify(func)
    dims = {"m": 5} if func.dims else {}
    shape = tuple(d.evaluate(dims) for d in func.params[0].shape)
    a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 7
    (want,) = interpret(func, [a], dims)
    (got,) = build(func, HOST)([a], dims, threads)
    np.testing.assert_array_equal(got, want)
