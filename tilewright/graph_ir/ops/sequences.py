"""Sequences and optionals: containers of tensors, kept on the host.

A symbol that inference made stands, in the type of a sequence's elements, for a size that may differ from one element
to the next; an element that is taken out gets symbols of its own.
"""

from __future__ import annotations

from typing import NoReturn

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.graph_ir.ir import OptionalType, SequenceType, TensorType, Type
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, InferRule, OpDef, table, tensor
from tilewright.graph_ir.ops.shapes import is_fresh

_HOST = "a container of tensors"


def _sequence(ctx: InferContext, i: int) -> SequenceType:
    t = ctx.value(i).type
    if isinstance(t, OptionalType):
        t = t.element if t.element is not None else t
    if not isinstance(t, SequenceType):
        _not_a_sequence(ctx, i, t)
    return t


def _not_a_sequence(ctx: InferContext, i: int, t: Type) -> NoReturn:
    ctx.error(f"a sequence as input {i}", str(t))


def _element(ctx: InferContext, t: Type | None, other: Type | None) -> Type | None:
    """An element type for both: with a symbol for each size in which they differ, without a shape if the ranks do."""
    if t is None or other is None or t == other:
        return t or other
    if isinstance(t, TensorType) and isinstance(other, TensorType):
        if t.shape is None or other.shape is None or len(t.shape) != len(other.shape):
            return TensorType(t.dtype, None)
        pairs = zip(t.shape, other.shape, strict=True)
        return TensorType(t.dtype, tuple(a if a == b or is_fresh(a) else ctx.fresh() for a, b in pairs))
    return t


def _taken(ctx: InferContext, t: Type) -> Type:
    """The type of one element."""
    if isinstance(t, TensorType) and t.shape is not None:
        return TensorType(t.dtype, tuple(ctx.fresh() if is_fresh(d) else d for d in t.shape))
    return t


def _construct(ctx: InferContext) -> tuple[Inferred, ...]:
    element: Type | None = None
    for i in range(len(ctx.inputs)):
        t = ctx.tensor_type(i)
        if isinstance(element, TensorType):
            ctx.require(t.dtype == element.dtype, f"tensors of type {element.dtype}", t.dtype)
        element = _element(ctx, element, t)
    return (Inferred(SequenceType(element)),)


def _empty(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(SequenceType(TensorType(ctx.dtype_attr("dtype") or dtypes.float32, None))),)


def _at(ctx: InferContext) -> tuple[Inferred, ...]:
    element = _sequence(ctx, 0).element
    if element is None:
        ctx.error("a sequence of known element type", "an unknown one")
    return (Inferred(_taken(ctx, element)),)


def _insert(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(SequenceType(_element(ctx, _sequence(ctx, 0).element, ctx.tensor_type(1)))),)


def _erase(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(_sequence(ctx, 0)),)


def _length(ctx: InferContext) -> tuple[Inferred, ...]:
    _sequence(ctx, 0)
    return (tensor(dtypes.int64, ()),)


def _concat(ctx: InferContext) -> tuple[Inferred, ...]:
    element = _sequence(ctx, 0).element
    if not isinstance(element, TensorType):
        ctx.error("a sequence of tensors", str(element))
    if element.shape is None:
        return (tensor(element.dtype, None),)
    new = ctx.int_attr("new_axis")
    axis = ctx.axis(len(element.shape) + (1 if new else 0))
    if new:
        sizes = [ctx.fresh() if is_fresh(d) else d for d in element.shape]
        return (tensor(element.dtype, (*sizes[:axis], ctx.fresh(), *sizes[axis:])),)
    sizes = [ctx.fresh() if i == axis or is_fresh(d) else d for i, d in enumerate(element.shape)]
    return (tensor(element.dtype, sizes),)


def _split(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    axis = ctx.axis(len(s))
    if not ctx.has(1):
        if ctx.int_attr("keepdims", 1):
            part = tensor(ctx.dtype(0), [const(1) if i == axis else d for i, d in enumerate(s)])
            return (Inferred(SequenceType(part.type)),)
        return (Inferred(SequenceType(TensorType(ctx.dtype(0), s[:axis] + s[axis + 1 :]))),)
    return (Inferred(SequenceType(TensorType(ctx.dtype(0), (*s[:axis], ctx.fresh(), *s[axis + 1 :])))),)


def _optional(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(OptionalType(ctx.value(0).type if ctx.has(0) else None)),)


def _get_element(ctx: InferContext) -> tuple[Inferred, ...]:
    v = ctx.value(0)
    if not isinstance(v.type, OptionalType):
        return (Inferred(v.type, v.data),)
    if v.type.element is None:
        ctx.error("an optional of known element type", "an unknown one")
    return (Inferred(v.type.element),)


def _has_element(_: InferContext) -> tuple[Inferred, ...]:
    return (tensor(dtypes.bool_, ()),)


def _op(name: str, rule: InferRule, least: int, most: int | None) -> OpDef:
    return OpDef(name, PatternKind.HOST, rule, least, most, host=_HOST)


OPS = table(
    _op("SequenceConstruct", _construct, 1, None),
    _op("SequenceEmpty", _empty, 0, 0),
    _op("SequenceAt", _at, 2, 2),
    _op("SequenceInsert", _insert, 2, 3),
    _op("SequenceErase", _erase, 1, 2),
    _op("SequenceLength", _length, 1, 1),
    _op("ConcatFromSequence", _concat, 1, 1),
    _op("SplitToSequence", _split, 1, 2),
    _op("Optional", _optional, 0, 1),
    _op("OptionalGetElement", _get_element, 1, 1),
    _op("OptionalHasElement", _has_element, 0, 1),
)
