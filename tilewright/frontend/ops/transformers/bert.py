"""The fused operators of onnxruntime's transformer models, and their quantized forms.

Attention and QAttention, EmbedLayerNormalization and QEmbedLayerNormalization, SkipLayerNormalization become the
operators that they were fused from.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.qproducts import real_product
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.frontend.ops.scales import dequantized
from tilewright.graph_ir.ir import TensorType

_EPSILON = 1e-12
_HIDDEN = -10000.0  # what is added to a score whose key is masked


# -- attention -----------------------------------------------------------------------------------------------------
def _attention(call: Call, build: GraphBuilder) -> None:
    """Attention: inputs, weights, bias, mask, past, bias of the scores."""
    x, weights, bias, mask, past, scores_bias = (call.input(i) for i in range(6))
    projected = build.emit("MatMul", (x, weights), "projected")
    if bias:
        projected = build.emit("Add", (projected, bias), "projected")
    _attend(call, build, projected, mask, past, scores_bias)


def _quantized_attention(call: Call, build: GraphBuilder) -> None:
    """QAttention: the same with quantized inputs and weights."""
    x, weights, bias, x_scale, w_scale, mask, x_zero, w_zero, past = (call.input(i) for i in range(9))
    product = real_product(build, x, weights, x_scale, w_scale, x_zero, w_zero)
    _attend(call, build, build.emit("Add", (product, bias), "projected"), mask, past, "")


def _attend(call: Call, build: GraphBuilder, projected: str, mask: str, past: str, scores_bias: str) -> None:
    """Heads of softmax(scale * Q @ K' + mask) @ V from the projections [batch, steps, Q and K and V]."""
    for key in ("do_rotary", "past_present_share_buffer"):
        if call.int_attr(key, 0):
            raise call.unsupported(f"attribute {key} is not supported")
    heads = call.int_attr("num_heads", 0)
    if heads < 1:
        call.error("an attribute num_heads >= 1", heads)
    q, k, v = (by_head(build, part, heads) for part in _thirds(call, build, projected))
    if past:
        k, v = (build.emit("Concat", (_entry(build, past, i), new), "all", axis=2) for i, new in ((0, k), (1, v)))
    if call.output(1):
        first = build.ints((0,), "first")
        both = [build.emit("Unsqueeze", (new, first), "present") for new in (k, v)]
        build.emit_to("Concat", both, call.outputs[1:2], {"axis": 0})
    scores = build.emit("MatMul", (q, build.emit("Transpose", (k,), "turned", perm=(0, 1, 3, 2))), "scores")
    scores = build.emit("Mul", (scores, score_scale(call, build, q)), "scores")
    hidden = masked(call, build, _visible(call, build, mask, scores) if mask else "", scores)
    for term in (scores_bias, hidden):
        scores = build.emit("Add", (scores, term), "scores") if term else scores
    result = build.emit("MatMul", (build.emit("Softmax", (scores,), axis=-1), v), "attended")
    join_heads(build, result, heads, call.outputs[:1])


def join_heads(build: GraphBuilder, x: str, heads: int, outputs: tuple[str, ...]) -> None:
    """[batch, heads, steps, size] as [batch, steps, heads * size], the output."""
    rows = build.emit("Transpose", (x,), "rows", perm=(0, 2, 1, 3))
    each = build.fixed_size(x, -1)
    width = -1 if each is None else heads * each
    build.emit_to("Reshape", (rows, build.ints((0, 0, width), "shape")), outputs, {})


def _thirds(call: Call, build: GraphBuilder, projected: str) -> tuple[str, ...]:
    names = tuple(build.name(n) for n in ("q", "k", "v"))
    sizes = call.ints_attr("qkv_hidden_sizes")
    if sizes:
        build.emit_to("Split", (projected, build.ints(sizes, "sizes")), names, {"axis": 2})
    else:
        build.emit_to("Split", (projected,), names, {"axis": 2, "num_outputs": 3})
    return names


def by_head(build: GraphBuilder, x: str, heads: int) -> str:
    """[batch, steps, heads * size] as [batch, heads, steps, size]."""
    width = build.fixed_size(x, -1)
    each = -1 if width is None else width // heads
    apart = build.emit("Reshape", (x, build.ints((0, 0, heads, each), "shape")), "apart")
    return build.emit("Transpose", (apart,), "heads", perm=(0, 2, 1, 3))


def _entry(build: GraphBuilder, x: str, i: int) -> str:
    return build.emit("Gather", (x, build.constant(np.array(i, np.int64), "entry")), "past", axis=0)


def size(build: GraphBuilder, x: str, axis: int) -> str:
    """One dim of a value, as a scalar."""
    end = {} if axis == -1 else {"end": axis + 1}
    return build.emit("Squeeze", (build.emit("Shape", (x,), "size", start=axis, **end),), "size")


def score_scale(call: Call, build: GraphBuilder, q: str) -> str:
    """The attribute, or one over the root of the size of a head."""
    given = call.float_attr("scale", 0.0)
    if given:
        return build.scalar_like(given, q, "scale")
    width = build.emit("CastLike", (size(build, q, 3), q), "head_size")
    return build.emit("Reciprocal", (build.emit("Sqrt", (width,)),), "scale")


def count_to(build: GraphBuilder, start: str, stop: str) -> str:
    return build.emit("Range", (start, stop, build.constant(np.array(1, np.int64), "step")), "positions")


def masked(call: Call, build: GraphBuilder, visible: str, scores: str) -> str:
    """What is added to the scores, broadcast to [batch, heads, steps, keys], for a mask of the visible keys or "";
    "" for nothing."""
    nothing = build.scalar_like(0.0, scores, "nothing")
    hidden = nothing
    if visible:
        far = build.scalar_like(call.float_attr("mask_filter_value", _HIDDEN), scores, "hidden")
        hidden = build.emit("Where", (visible, nothing, far), "mask")
    if not call.int_attr("unidirectional", 0):
        return hidden if visible else ""
    keys, steps = size(build, scores, -1), size(build, scores, 2)
    now = count_to(build, build.emit("Sub", (keys, steps)), keys)
    at = count_to(build, build.constant(np.array(0, np.int64), "start"), keys)
    past = build.emit("LessOrEqual", (at, build.emit("Unsqueeze", (now, build.ints((1,), "axis")))), "is_past")
    dtype = build.dtype(scores) or dtypes.float32
    lowest = build.scalar_like(float(np.finfo(dtype.numpy).min), scores, "lowest")
    return build.emit("Where", (past, hidden, lowest), "mask")


def _visible(call: Call, build: GraphBuilder, mask: str, scores: str) -> str:
    """Where a mask lets keys be seen: given for keys, for pairs, or as where the keys of a sequence end (and start)."""
    t = build.type(mask)
    if not isinstance(t, TensorType) or t.shape is None or len(t.shape) not in (1, 2, 3):
        raise call.unsupported("a mask of unknown rank, or not of rank 1 to 3")
    if len(t.shape) == 1:
        return _between(build, mask, scores)
    if len(t.shape) == 2 and t.shape[1] == 1:  # stands for no mask
        return ""
    return seen_by_all(build, mask, len(t.shape))


def seen_by_all(build: GraphBuilder, mask: str, rank: int) -> str:
    """A mask of keys [batch, keys] or of pairs [batch, steps, keys] for all heads."""
    seen = build.emit("Greater", (mask, build.scalar_like(0.0, mask, "zero")), "seen")
    return build.emit("Unsqueeze", (seen, build.ints((1, 2) if rank == 2 else (1,), "axes")), "visible")


def _between(build: GraphBuilder, mask: str, scores: str) -> str:
    """The mask holds the end of every sequence, and may hold the starts behind them."""
    batch = build.emit("Shape", (scores,), "batch", start=0, end=1)
    zeros = build.emit("Expand", (build.scalar_like(0.0, mask, "zero"), batch), "zeros")
    both = build.emit("Concat", (mask, zeros), "ends_and_starts", axis=0)
    none, two, axes = build.ints((0,), "none"), build.ints((2,), "two"), build.ints((1, 2, 3), "axes")
    ends = build.emit("Slice", (both, none, batch), "ends")
    starts = build.emit("Slice", (both, batch, build.emit("Mul", (batch, two))), "starts")
    at = count_to(build, build.constant(np.array(0, np.int64), "start"), size(build, scores, -1))
    at = build.emit("CastLike", (at, mask), "at")
    before, behind = (build.emit("Unsqueeze", (v, axes)) for v in (ends, starts))
    inside = build.emit("Less", (at, before)), build.emit("GreaterOrEqual", (at, behind))
    return build.emit("And", inside, "visible")


# -- normalization -------------------------------------------------------------------------------------------------
def _normalized(call: Call, build: GraphBuilder, x: str, gamma: str, beta: str, outputs: tuple[str, ...]) -> None:
    attrs = {"axis": -1, "epsilon": call.float_attr("epsilon", _EPSILON)}
    build.emit_to("LayerNormalization", (x, gamma, beta), outputs, attrs)


def _skip_layer_norm(call: Call, build: GraphBuilder) -> None:
    """LayerNormalization of input + skip + bias; the sum is output 3."""
    x, skip, gamma, beta, bias = (call.input(i) for i in range(5))
    total = build.emit("Add", (x, skip), "sum")
    if bias:
        total = build.emit("Add", (total, bias), "sum")
    if call.output(3):
        build.emit_to("Identity", (total,), call.outputs[3:4], {})
    _normalized(call, build, total, gamma, beta, call.outputs[:3])


def _embed(call: Call, build: GraphBuilder) -> None:
    """LayerNormalization of the sum of embeddings of words, positions and segments."""
    words, segments, *tables, gamma, beta, mask, positions = (call.input(i) for i in range(9))
    parts = _embedded(build, words, segments, tables, positions)
    _embed_tail(call, build, parts, gamma, beta, mask)


def _quantized_embed(call: Call, build: GraphBuilder) -> None:
    """The same; tables, gamma and beta are quantized."""
    words, segments, *tables, gamma, beta, mask = (call.input(i) for i in range(8))
    scales, zeros = call.inputs[8:13], call.inputs[13:18]
    found = _embedded(build, words, segments, tables, "")
    parts = [dequantized(build, x, s, z) for x, s, z in zip(found, scales, zeros, strict=False)]
    real = [dequantized(build, x, scales[i], zeros[i]) for i, x in ((3, gamma), (4, beta))]
    _embed_tail(call, build, parts, real[0], real[1], mask)


def _embedded(build: GraphBuilder, words: str, segments: str, tables: list[str], positions: str) -> list[str]:
    """The rows of every table: of words, of positions, of segments if there are any."""
    if not positions:
        positions = count_to(build, build.constant(np.array(0, np.int64), "start"), size(build, words, 1))
    index = [words, positions, *([segments] if segments else [])]
    return [build.emit("Gather", pair, "rows", axis=0) for pair in zip(tables, index, strict=False)]


def _embed_tail(call: Call, build: GraphBuilder, parts: list[str], gamma: str, beta: str, mask: str) -> None:
    total = parts[0]
    for part in parts[1:]:
        total = build.emit("Add", (total, part), "sum")
    if call.output(0):
        _normalized(call, build, total, gamma, beta, call.outputs[:1])
    if call.output(1):
        _count(build, call.input(0), mask, call.outputs[1:2])
    if call.output(2):
        build.emit_to("Identity", (total,), call.outputs[2:3], {})


def _count(build: GraphBuilder, words: str, mask: str, outputs: tuple[str, ...]) -> None:
    """How many elements of every row of the mask are 1; zeros without a mask."""
    zero = build.scalar_like(0.0, words, "zero")
    if not mask:
        build.emit_to("Expand", (zero, build.emit("Shape", (words,), "batch", start=0, end=1)), outputs, {})
        return
    ones = build.emit("CastLike", (build.emit("Equal", (mask, build.scalar_like(1.0, mask, "one"))), mask), "ones")
    build.emit_to("ReduceSum", (ones, build.ints((1,), "axis")), outputs, {"keepdims": 0})


ATTENTION = (
    "MatMul", "Add", "Split", "Reshape", "Transpose", "Concat", "Gather", "Unsqueeze", "Mul", "Softmax", "Shape",
    "Squeeze", "Where", "Range", "CastLike", "Sqrt", "Reciprocal", "Sub", "Slice", "Expand", "And", "Less",
    "LessOrEqual", "Greater", "GreaterOrEqual",
)  # fmt: skip
_EMBED = ("Gather", "Add", "LayerNormalization", "Range", "Shape", "Squeeze", "Expand", "Equal", "ReduceSum",
          "CastLike", "Identity")  # fmt: skip

RULES: Family = {
    "Attention": contrib((0, 1), _attention, ATTENTION),
    "QAttention": contrib(range(5), _quantized_attention, (*ATTENTION, "MatMulInteger", "Cast")),
    "SkipLayerNormalization": contrib((0, 1, 2), _skip_layer_norm, ("Add", "LayerNormalization", "Identity")),
    "EmbedLayerNormalization": contrib((0, 2, 3, 5, 6), _embed, _EMBED),
    "QEmbedLayerNormalization": contrib(
        (0, 2, 3, 5, 6, 8, 9, 11, 12, 13, 14, 16, 17), _quantized_embed, (*_EMBED, "DequantizeLinear", "Reshape")
    ),
}
