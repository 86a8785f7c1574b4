"""Strings: always on the host."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.shapes import broadcast_shapes

_HOST = "strings"


def _concat(ctx: InferContext) -> tuple[Inferred, ...]:
    return (tensor(dtypes.string, broadcast_shapes(ctx, [ctx.shape(0), ctx.shape(1)])),)


def _normalize(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    if ctx.node.attr("stopwords"):
        return (tensor(dtypes.string, (*s[:-1], ctx.fresh())),)
    return (tensor(dtypes.string, s),)


def _split(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    return tensor(dtypes.string, (*s, ctx.fresh())), tensor(dtypes.int64, s)


def _match(ctx: InferContext) -> tuple[Inferred, ...]:
    return (Inferred(TensorType(dtypes.bool_, ctx.tensor_type(0).shape)),)


def _tfidf(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    indexes = ctx.ints_attr("ngram_indexes") or ()
    return (tensor(dtypes.float32, (*s[:-1], const(max(indexes, default=-1) + 1))),)


OPS = table(
    OpDef("StringConcat", PatternKind.HOST, _concat, 2, 2, host=_HOST),
    OpDef("StringNormalizer", PatternKind.HOST, _normalize, 1, 1, host=_HOST),
    OpDef("StringSplit", PatternKind.HOST, _split, 1, 1, 2, 2, host=_HOST),
    OpDef("RegexFullMatch", PatternKind.HOST, _match, 1, 1, host=_HOST),
    OpDef("TfIdfVectorizer", PatternKind.HOST, _tfidf, 1, 1, host="a dictionary of n-grams", fold_limit=1 << 18),
)
