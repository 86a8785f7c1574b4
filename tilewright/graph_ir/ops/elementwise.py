"""Unary elementwise operators and activations: the output has the input's shape and (mostly) its element type."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.minmax import maximum
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import Data, InferContext, Inferred, InferRule, OpDef, table
from tilewright.graph_ir.ops.broadcasting import broadcast_onto, dims_of
from tilewright.graph_ir.ops.operands import require_single
from tilewright.graph_ir.ops.shapes import decide_less

_CHEAP = (
    "BitwiseNot", "HardSigmoid", "LeakyRelu", "Reciprocal", "Relu", "Shrink", "Sign", "Softsign", "ThresholdedRelu",
)  # fmt: skip
_EXPENSIVE = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Gelu",
    "HardSwish", "Log", "Mish", "Selu", "Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt", "Swish", "Tan", "Tanh",
)  # fmt: skip


def same(ctx: InferContext) -> tuple[Inferred, ...]:
    """The first input's type."""
    return (Inferred(ctx.value(0).type),)


def _mapped(fn: Callable[[IntExpr], IntExpr | None]) -> InferRule:
    def infer(ctx: InferContext) -> tuple[Inferred, ...]:
        data = ctx.data(0)
        out: Data | None = None
        if data is not None:
            mapped = [fn(d) for d in data]
            if all(m is not None for m in mapped):
                out = tuple(m for m in mapped if m is not None)
        return (Inferred(ctx.value(0).type, out),)

    return infer


def _abs(d: IntExpr) -> IntExpr | None:
    negative = decide_less(d, d * 0)
    if negative is None:
        return maximum(d, -d)
    return -d if negative else d


def _test(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(TensorType(dtypes.bool_, ctx.tensor_type(0).shape)),)


def _prelu(ctx: InferContext) -> tuple[Inferred, ...]:
    x, slope = dims_of(ctx, 0), dims_of(ctx, 1)
    ctx.require(len(slope) <= len(x), f"a slope of rank <= {len(x)}", len(slope))
    broadcast_onto(ctx, slope, x)
    return same(ctx)


def _clip(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 1, 2)
    return same(ctx)


def _dropout(ctx: InferContext) -> tuple[Inferred, ...]:
    require_single(ctx, 1, 2)
    return (Inferred(ctx.value(0).type, ctx.data(0)), Inferred(TensorType(dtypes.bool_, ctx.tensor_type(0).shape)))


def _unary(name: str, rule: InferRule = same, cost: ElementCost = ElementCost.ARITHMETIC) -> OpDef:
    return OpDef(name, PatternKind.BROADCAST, rule, 1, 1, cost=cost)


_IDENTITY_ON_INTEGERS = _mapped(lambda d: d)

OPS = table(
    *(_unary(name) for name in _CHEAP),
    *(_unary(name, cost=ElementCost.EXPENSIVE) for name in _EXPENSIVE),
    _unary("Abs", _mapped(_abs)),
    _unary("Neg", _mapped(lambda d: -d)),
    _unary("Not", _mapped(lambda d: 1 - d if d.is_const else None)),
    _unary("Ceil", _IDENTITY_ON_INTEGERS),
    _unary("Floor", _IDENTITY_ON_INTEGERS),
    _unary("Round", _IDENTITY_ON_INTEGERS),
    _unary("IsInf", _test),
    _unary("IsNaN", _test),
    OpDef("PRelu", PatternKind.BROADCAST, _prelu, 2, 2),
    OpDef("Clip", PatternKind.BROADCAST, _clip, 1, 3),
    OpDef("Dropout", PatternKind.BROADCAST, _dropout, 1, 3, 1, 2, mixed_operands=True),
)
