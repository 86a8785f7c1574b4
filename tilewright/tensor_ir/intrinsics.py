"""The built-in tensor intrinsics: what each computes. Their machine code is in
:mod:`tilewright.codegen.emit.intrinsics`.

An intrinsic of one's own needs no entry here: :func:`with_intrinsics` lets a function bring it along, through traces,
texts, caches and worker processes.
"""

from __future__ import annotations

import dataclasses

from tilewright.core.arith.expr import as_var
from tilewright.tensor_ir.ir import (
    Block,
    Cast,
    Const,
    Func,
    Load,
    Loop,
    Op,
    Select,
    Seq,
    Store,
    TensorIntrin,
    loads,
    walk,
    walk_expr,
)
from tilewright.tensor_ir.text import parse_func

_TRANSPOSE_8X8 = """
def transpose_8x8_f32(A: float32[8, 8], B: out(float32[8, 8])):
    for i in range(8):
        for j in range(8):
            B[i, j] = A[j, i]
"""

_OUTER_6X16 = """
def outer_6x16_f32(A: float32[6, 1], B: float32[16], C: out(float32[6, 16])):
    for i in range(6):
        for j in range(16):
            C[i, j] = add(C[i, j], mul(A[i, 0], B[j]))
"""

_DOT_8X4 = """
def dot_8x4_u8s8s32(A: uint8[4], B: int8[8, 4], C: out(int32[8])):
    for i in range(8):
        for k in range(4):
            C[i] = add(C[i], mul(cast(A[k], int32), cast(B[i, k], int32)))
"""

TENSOR_INTRINSICS: dict[str, TensorIntrin] = {
    "transpose_8x8_f32": TensorIntrin(parse_func(_TRANSPOSE_8X8)),
    "outer_6x16_f32": TensorIntrin(parse_func(_OUTER_6X16)),
    "dot_8x4_u8s8s32": TensorIntrin(parse_func(_DOT_8X4), dense=("B",)),
}


def with_intrinsics(func: Func, *intrinsics: TensorIntrin) -> Func:
    """``func`` with intrinsics of its own, for :class:`tilewright.schedule.schedule.Schedule` to use by name."""
    return dataclasses.replace(func, intrinsics=(*func.intrinsics, *intrinsics))


def find_intrinsic(func: Func, name: str) -> TensorIntrin | None:
    """The intrinsic called ``name``: one of the function's own, else a built-in one."""
    own = next((x for x in func.intrinsics if x.name == name), None)
    return own if own is not None else TENSOR_INTRINSICS.get(name)


def intrinsic_names(func: Func) -> tuple[str, ...]:
    """The names that opaque loops of ``func`` may use."""
    return tuple(sorted({*TENSOR_INTRINSICS, *(x.name for x in func.intrinsics)}))


def malformed(intrinsic: TensorIntrin) -> str | None:
    """Why a description is none that a nest can be compared with; None if it is.

    A description is one nest of loops of constant extent around blocks or stores without initial values. Each index is
    0 or one of the loops, no loop twice in one access; values are loads, constants and operations.
    """
    d = intrinsic.description
    if d.dims or not isinstance(d.body, Loop):
        return "a description is one loop nest of constant size"
    shapes = {b.name: b.shape for b in d.params}
    if any(not b.shape or any(not x.is_const for x in b.shape) for b in d.params):
        return "its parameters have constant shapes of at least one dimension"
    unknown = sorted(set(intrinsic.dense) - shapes.keys())
    if unknown:
        return f"dense parameter {unknown[0]} is none of its own"
    used: set[str] = set()
    extents = {s.var: s.extent for s in walk(d.body) if isinstance(s, Loop)}
    for s in walk(d.body):
        if isinstance(s, (Loop, Seq)):
            if isinstance(s, Loop) and not s.extent.is_const:
                return f"loop {s.var} has the extent {s.extent}"
            continue
        if not isinstance(s, (Block, Store)):
            return f"it holds a {type(s).__name__.lower()}"
        if isinstance(s, Block) and s.init is not None:
            return f"block {s.name} stores an initial value"
        env = {a.name: b for a, b in zip(s.axes, s.bindings, strict=True)} if isinstance(s, Block) else {}
        if not all(isinstance(e, (Load, Const, Cast, Op, Select)) for e in walk_expr(s.value)):
            return "an index is used as a value"
        for buffer, indices in [(s.buffer, s.indices), *((x.buffer, x.indices) for x in loads(s.value))]:
            used.add(buffer)
            bound = [i.substitute(env) for i in indices]
            names = [as_var(i) for i in bound if i != 0]
            if None in names or len(set(names)) != len(names):
                return f"an index of {buffer}[{', '.join(map(str, bound))}] is neither 0 nor a loop of its own"
            for i, extent in zip(bound, shapes[buffer], strict=True):
                if extents.get(as_var(i) or "", 1) != extent:
                    return f"{buffer}[{', '.join(map(str, bound))}] does not run over the parameter's shape"
    unused = sorted(shapes.keys() - used)
    return f"parameter {unused[0]} is not used" if unused else None
