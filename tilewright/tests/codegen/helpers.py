"""Small functions that the codegen tests compile."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.core.arith.minmax import minimum
from tilewright.core.dtypes import DType
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Axis, Block, Buffer, Cast, Expr, Func, Load, Loop, LoopKind, Op, Stmt


def emitted(func: Func, target: Target, symbol: str = "kernel") -> str:
    """The LLVM IR of a scheduled function."""
    return emit_kernel(prepare(func, target), target, symbol)


def nest(value: Expr, out: Buffer, vector: int | None = None, kind: LoopKind = "serial") -> Stmt:
    """``out[x] = value`` over a one-dimensional buffer, split by ``vector`` lanes (the last ones masked)."""
    extent = out.shape[0]
    if vector is None:
        block = Block("store", (Axis("x", extent),), (var("i"),), out.name, (var("x"),), value)
        return Loop("i", extent, block, kind)
    from_outer = var("io") * vector + var("ii")
    block = Block("store", (Axis("x", extent),), (from_outer,), out.name, (var("x"),), value)
    inner = ragged(vector, extent, var("io"))
    return Loop("io", (extent + vector - 1) // vector, Loop("ii", inner, block, "vectorized"), kind)


def ragged(factor: int, extent: IntExpr, outer: IntExpr) -> IntExpr:
    """The extent of the inner loop of a split."""
    value = extent.value()
    if value is not None and value % factor == 0:
        return const(factor)
    return minimum(const(factor), extent - outer * factor)


def apply_unary(
    make: object, data: np.ndarray, source: DType, to: DType, vector: int | None = 8, target: Target | None = None
) -> np.ndarray:
    """``out[i] = make(A[i])`` compiled and run on ``data``."""
    n = const(data.size)
    a, c = Buffer("A", source, (n,)), Buffer("C", to, (n,))
    value = make(Load("A", (var("x"),), source))  # type: ignore[operator]
    func = Func("unary", (a, c), 1, (), nest(value, c, vector))
    return build(func, target)([data])[0]


def apply_op(
    name: str, data: np.ndarray, dtype: DType, vector: int | None = 8, target: Target | None = None
) -> np.ndarray:
    """A unary scalar operation on an array."""
    return apply_unary(lambda x: Op(name, (x,), dtype), data, dtype, dtype, vector, target)


def apply_cast(
    data: np.ndarray, source: DType, to: DType, vector: int | None = 8, target: Target | None = None
) -> np.ndarray:
    """A cast of an array."""
    return apply_unary(lambda x: Cast(x, to), data, source, to, vector, target)


def apply_binary(
    name: str,
    a: np.ndarray,
    b: np.ndarray,
    dtype: DType,
    out: DType | None = None,
    vector: int | None = 8,
    target: Target | None = None,
) -> np.ndarray:
    """A binary scalar operation on two arrays."""
    n = const(a.size)
    result = out or dtype
    buffers = (Buffer("A", dtype, (n,)), Buffer("B", dtype, (n,)), Buffer("C", result, (n,)))
    value = Op(name, (Load("A", (var("x"),), dtype), Load("B", (var("x"),), dtype)), result)
    func = Func("binary", buffers, 1, (), nest(value, buffers[2], vector))
    return build(func, target)([a, b])[0]
