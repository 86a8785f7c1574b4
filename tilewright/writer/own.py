"""Operators of our own, and attributes of our own, in ONNX's terms.

What they mean stands in :mod:`tilewright.graph_ir.ops.own`. A number is rounded where ONNX's operators round it: an
expansion in float16 differs from the reference in the last places.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.reference.evaluate import COMPUTED_HOW
from tilewright.writer.forms import Form, Site
from tilewright.writer.older.norms import layer_norm


# -- operators -----------------------------------------------------------------------------------------------------
def _fused_attention(s: Site) -> None:
    """``MatMul(Softmax(scale * MatMul(Q, K^T) + mask), V)``; operands of several types as float32."""
    if len({s.dtype(x) for x in s.node.inputs if x}) > 1:
        wide = [
            x and (x if s.dtype(x) == dtypes.float32 else s.op("Cast", x, to=dtypes.float32)) for x in s.node.inputs
        ]
        s.instead("Cast", s.op("FusedAttention", *wide, **dict(s.node.attrs)), to=s.value(s.node.outputs[0]).dtype)
        return
    q, k, v = (s.input(i) for i in range(3))
    scores = s.op("MatMul", q, s.op("Transpose", k, perm=_last_two_turned(s.rank(k))))
    scale = s.number("scale", 1.0)
    if scale != 1.0:
        scores = s.op("Mul", scores, s.scalar(scale, s.dtype(q), "scale"))
    if s.input(3):
        scores = s.op("Add", scores, s.input(3))
    if s.node.attr("causal"):
        scores = s.op("Where", _hidden_keys(s, q, k), s.scalar(-np.inf, s.dtype(q), "hidden"), scores)
    weights = s.op("Softmax", scores, axis=-1)
    if s.node.attr("nan_rows_to_zero"):
        weights = s.op("Where", s.op("IsNaN", weights), s.scalar(0.0, s.dtype(q), "zero"), weights)
    s.instead("MatMul", weights, v)


def _last_two_turned(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _hidden_keys(s: Site, q: str, k: str) -> str:
    """Which key ``t`` the query ``s`` does not see: ``t > s + T - S``."""
    queries, keys = (s.value(x).shape[-2].value() for x in (q, k))
    if queries is not None and keys is not None:
        hidden = np.arange(keys)[None, :] > np.arange(queries)[:, None] + (keys - queries)
        return s.const(hidden, "hidden_keys")
    n, m = (_size(s, x, -2) for x in (q, k))
    zero, one = s.const(np.array(0, np.int64), "first"), s.const(np.array(1, np.int64), "step")
    rows = s.op("Unsqueeze", s.op("Range", zero, n, one), s.const(np.array([1], np.int64), "columns"))
    return s.op("Greater", s.op("Range", zero, m, one), s.op("Add", rows, s.op("Sub", m, n)))


def _size(s: Site, x: str, axis: int) -> str:
    """A size of ``x`` as a scalar."""
    index = s.const(np.array(axis % s.rank(x), np.int64), "axis")
    return s.op("Gather", s.op("Shape", x), index, axis=0)


def _matmul_dequantized(s: Site) -> None:
    """``MatMul(x, DequantizeLinear(w, scale, zero_point))``."""
    x, w, scale, zero = (s.input(i) for i in range(4))
    blocks, depth = s.value(scale).shape[0].const, s.value(w).shape[0].const
    if blocks == 1:
        weight = s.op("DequantizeLinear", w, _flat(s, scale), _flat(s, zero) if zero else "", axis=1)
    else:
        weight = s.op("DequantizeLinear", w, scale, zero, axis=0, block_size=depth // blocks)
    if s.dtype(weight) != s.dtype(x):
        weight = s.op("Cast", weight, to=s.dtype(x))
    s.instead("MatMul", x, weight)


def _flat(s: Site, x: str) -> str:
    """``x`` as a list."""
    known = s.constant(x)
    if known is not None:
        return s.const(known.reshape(-1), "columns")
    return s.op("Reshape", x, s.const(np.array([-1], np.int64), "columns"))


def _look_up(s: Site) -> None:
    """``Gather(table, Cast(q))``: an index below 0 counts from the end."""
    s.instead("Gather", s.input(1), s.op("Cast", s.input(0), to=dtypes.int32), axis=0)


def _common_sizes(s: Site) -> None:
    """Sizes from Shape, element by element: that of the first operand, or of the next where that is 1."""
    axes, operands, dims = (s.numbers(key) or () for key in ("axes", "operands", "dims"))
    one = s.const(np.array([1], np.int64), "one")
    found: dict[int, str] = {}
    for axis, i, dim in zip(axes, operands, dims, strict=True):
        size = s.op("Gather", s.op("Shape", s.input(i)), s.const(np.array([dim], np.int64), "dim"), axis=0)
        before = found.get(axis)
        found[axis] = size if before is None else s.op("Where", s.op("Equal", before, one), size, before)
    rank = int(s.number("rank", 0))
    if not rank:
        s.instead("Identity", s.const(np.zeros(0, np.int64), "no_sizes"))
    else:
        s.instead("Concat", *(found.get(a, one) for a in range(rank)), axis=0)


def _broadcast_to(s: Site) -> None:
    s.instead("Expand", s.input(0), s.input(1))


OWN: Mapping[str, Form] = {
    "FusedAttention": _fused_attention,
    "MatMulDequantized": _matmul_dequantized,
    "LookUp": _look_up,
    "CommonSizes": _common_sizes,
    "BroadcastTo": _broadcast_to,
}


# -- operators of ONNX ---------------------------------------------------------------------------------------------
def _conv_integer(s: Site) -> None:
    """One zero point for all channels where each has the same, as onnxruntime takes no other."""
    x, w, x_zero, w_zero = (s.input(i) for i in range(4))
    known = s.constant(w_zero) if w_zero else None
    if known is not None and known.ndim and known.size and (known == known.flat[0]).all():
        w_zero = s.const(known.reshape(-1)[0], "zero")
    s.raw(x, w, x_zero, w_zero)


SAID: Mapping[str, Form] = {**OWN, "ConvInteger": _conv_integer, "LayerNormalization": layer_norm}
"""How operators are said in every opset that is asked for."""


# -- attributes ----------------------------------------------------------------------------------------------------
def _channels_first(s: Site) -> None:
    """A Transpose in front of the operator and one behind it, for ``data_layout``."""
    x, *rest = s.node.inputs
    rank = s.rank(x)
    if s.node.attr("data_layout") == "NHWC":
        x = s.op("Transpose", x, perm=(0, rank - 1, *range(1, rank - 1)))
        y = s.op(s.node.op, x, *rest, **s.attrs_without("data_layout"))
        s.instead("Transpose", y, perm=(0, *range(2, rank), 1))
    else:
        s.instead(s.node.op, x, *rest, **s.attrs_without("data_layout"))


def _wide_operands(s: Site) -> None:
    """Operands in the type of the sums, for ``output_dtype``."""
    to = s.node.attr("output_dtype")
    assert isinstance(to, DType)
    narrow = {x for x in s.node.inputs if x and s.dtype(x) != to and s.dtype(x).is_float}
    wide = [s.op("Cast", x, to=to) if x in narrow else x for x in s.node.inputs]
    s.instead(s.node.op, *wide, **s.attrs_without("output_dtype"))


def _how(s: Site) -> None:
    """Without the attributes that say how a node is computed, which ONNX does not say."""
    s.instead(s.node.op, *s.node.inputs, **s.attrs_without(*COMPUTED_HOW))


OWN_ATTRIBUTES: Mapping[str, Form] = {
    "data_layout": _channels_first,
    "output_dtype": _wide_operands,
    **dict.fromkeys(COMPUTED_HOW, _how),
}
"""By the name of an attribute: the node without it."""
