"""Operators on several inputs with broadcasting: arithmetic, comparison, logic, bits, Where.

Shape arithmetic is followed: where the inputs' elements are known, so are the outputs'. Comparisons are decided
when they hold, or fail, for all sizes (dimension symbols are at least 0).
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import MAX_DATA, Data, InferContext, Inferred, InferRule, OpDef, table, tensor
from tilewright.graph_ir.ops.broadcasting import broadcast_inputs
from tilewright.graph_ir.ops.shapes import broadcast_index, const_shape, decide_equal, decide_less

Fold = Callable[..., "IntExpr | None"]


def _fold(ctx: InferContext, shape: Shape, fold: Fold, first: int = 0) -> Data | None:
    """Known elements of the result: ``fold`` over the broadcast elements of the inputs from ``first`` on."""
    count = len(ctx.inputs)
    if any(ctx.data(i) is None for i in range(first, count)):
        return None
    dims = const_shape(shape)
    if dims is None:
        return None
    n = 1
    for d in dims:
        n *= d
    if n > MAX_DATA:
        return None
    operands: list[tuple[Data, tuple[int, ...]]] = []
    for i in range(first, count):
        data, shape_i = ctx.data(i), const_shape(ctx.shape(i))
        if data is None or shape_i is None:
            return None
        operands.append((data, shape_i))
    out = []
    for flat in range(n):
        e = fold(*(d[broadcast_index(flat, dims, s)] for d, s in operands))
        if e is None:
            return None
        out.append(e)
    return tuple(out)


def _same_dtypes(ctx: InferContext, first: int = 0) -> DType:
    dt = ctx.dtype(first)
    for i in range(first + 1, len(ctx.inputs)):
        if ctx.dtype(i) != dt:
            ctx.error(f"inputs of one element type ({dt})", f"{ctx.dtype(i)} as input {i}")
    return dt


def _broadcast(fold: Fold | None = None, result: DType | None = None, uniform: bool = True) -> InferRule:
    def infer(ctx: InferContext) -> tuple[Inferred, ...]:
        dt = _same_dtypes(ctx) if uniform else ctx.dtype(0)
        shape = broadcast_inputs(ctx)
        data = None
        if fold is not None and all(v is not None and v.data is not None for v in ctx.inputs):
            data = _fold(ctx, shape, fold if dt.kind != "f" else _float_fold(fold))
        return (tensor(result or dt, shape, data),)

    return infer


def _float_fold(fold: Fold) -> Fold:
    """Known elements of float tensors are whole numbers; a quotient stays known only where it is exact."""
    if fold is _divide:
        return _divide_exactly
    return fold


def _bool(b: bool | None) -> IntExpr | None:
    return None if b is None else const(int(b))


def _divide(a: IntExpr, b: IntExpr) -> IntExpr | None:
    bv = b.value()
    if bv == 0:
        return None
    if a.is_const and bv is not None:  # ONNX integer division truncates
        q = abs(a.const) // abs(bv)
        return const(q if (a.const < 0) == (bv < 0) else -q)
    if decide_less(a, const(0)) is False and decide_less(const(0), b) is True:
        return a // b
    exact = a // b
    return exact if exact * b == a else None


def _divide_exactly(a: IntExpr, b: IntExpr) -> IntExpr | None:
    if b == 0:
        return None
    q = a // b
    return q if q * b == a else None


def _remainder(a: IntExpr, b: IntExpr) -> IntExpr | None:
    return a % b if decide_less(const(0), b) is True else None


def _mod(ctx: InferContext) -> tuple[Inferred, ...]:
    return (_broadcast(_remainder) if not ctx.int_attr("fmod") else _broadcast())(ctx)


def _and(a: IntExpr, b: IntExpr) -> IntExpr | None:
    if a == 0 or b == 0:
        return const(0)
    return const(1) if a.is_const and b.is_const else None


def _or(a: IntExpr, b: IntExpr) -> IntExpr | None:
    if a == 1 or b == 1:
        return const(1)
    return const(0) if a.is_const and b.is_const else None


def _not_less(a: IntExpr, b: IntExpr) -> IntExpr | None:
    less = decide_less(a, b)
    return None if less is None else const(int(not less))


def _power(a: IntExpr, b: IntExpr) -> IntExpr | None:
    n = b.value()
    if n is None or not 0 <= n <= 8:
        return None
    out = const(1)
    for _ in range(n):
        out = out * a
    return out


def _choose(c: IntExpr, x: IntExpr, y: IntExpr) -> IntExpr | None:
    v = c.value()
    if v is None:
        return x if x == y else None
    return x if v else y


def _where(ctx: InferContext) -> tuple[Inferred, ...]:
    dt = _same_dtypes(ctx, 1)
    ctx.require(ctx.dtype(0) == dtypes.bool_, "a bool condition", ctx.dtype(0))
    shape = broadcast_inputs(ctx)
    return (tensor(dt, shape, _fold(ctx, shape, _choose)),)


def _second_dtype(ctx: InferContext) -> tuple[DType, ...]:
    return (ctx.dtype(1),)


def _bool_dtype(_: InferContext) -> tuple[DType, ...]:
    return (dtypes.bool_,)


def _op(
    name: str, rule: InferRule, commutative: bool = False, n: int | None = 2,
    cost: ElementCost = ElementCost.ARITHMETIC,
) -> OpDef:  # fmt: skip
    return OpDef(name, PatternKind.BROADCAST, rule, 2 if n else 1, n, commutative=commutative, cost=cost)


def _compare(name: str, fold: Fold | None, commutative: bool = False) -> OpDef:
    rule = _broadcast(fold, dtypes.bool_)
    return OpDef(name, PatternKind.BROADCAST, rule, 2, 2, commutative=commutative, dtypes=_bool_dtype)


OPS = table(
    _op("Add", _broadcast(lambda a, b: a + b), commutative=True),
    _op("Sub", _broadcast(lambda a, b: a - b)),
    _op("Mul", _broadcast(lambda a, b: a * b), commutative=True),
    _op("Div", _broadcast(_divide), cost=ElementCost.EXPENSIVE),
    _op("Mod", _mod, cost=ElementCost.EXPENSIVE),
    _op("Pow", _broadcast(_power, uniform=False), cost=ElementCost.EXPENSIVE),
    _op("Min", _broadcast(minimum), commutative=True, n=None),
    _op("Max", _broadcast(maximum), commutative=True, n=None),
    _op("Sum", _broadcast(lambda *a: sum(a[1:], a[0])), commutative=True, n=None),
    _op("Mean", _broadcast(), commutative=True, n=None),
    _op("BitShift", _broadcast()),
    _op("BitwiseAnd", _broadcast(), commutative=True),
    _op("BitwiseOr", _broadcast(), commutative=True),
    _op("BitwiseXor", _broadcast(), commutative=True),
    OpDef("SwiGLU", PatternKind.BROADCAST, _broadcast(), 2, 2, arithmetic=True),
    _compare("Equal", lambda a, b: _bool(decide_equal(a, b)), commutative=True),
    _compare("Less", lambda a, b: _bool(decide_less(a, b))),
    _compare("Greater", lambda a, b: _bool(decide_less(b, a))),
    _compare("LessOrEqual", lambda a, b: _not_less(b, a)),
    _compare("GreaterOrEqual", _not_less),
    _compare("And", _and, commutative=True),
    _compare("Or", _or, commutative=True),
    _compare("Xor", lambda a, b: const(a.const ^ b.const) if a.is_const and b.is_const else None, commutative=True),
    OpDef("Where", PatternKind.BROADCAST, _where, 3, 3, dtypes=_second_dtype),
)
