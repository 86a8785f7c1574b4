"""GroupQueryAttention: attention of a language model, with its cache of keys and values.

Several heads of queries share the keys and values of one. Their rows stand below each other, so that a product for each
head of keys gives the scores of all of them and keys are read once, and never repeated. The caches are
[batch, key heads, rows, size]: as long as what they hold, and grown by each call, or of a fixed length.

New rows are written behind those of each sequence (``seqlens_k`` tells where); rows behind the last one of a sequence
are those of the past, as where onnxruntime's past and present share a buffer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.frontend.ops.transformers.rotary import MAKES, Rotary, angles, count_from, size_of, turned, wide

_REFUSED_ATTRIBUTES = {"sliding_window_cache": 0, "qk_output": 0, "kv_cache_bit_width": 0}
_REFUSED_TYPES = ("k_quant_type", "v_quant_type")
_REFUSED_INPUTS = {12: "k_scale", 13: "v_scale", 16: "query_seqlens"}


@dataclass(frozen=True, slots=True)
class _Heads:
    """``count`` heads of queries of ``size`` elements in ``shared`` groups, one for each head of keys and values.

    ``steps``: new rows, where that is known.
    """

    count: int
    shared: int
    size: int
    steps: int | None

    @property
    def group(self) -> int:
        return self.count // self.shared

    @property
    def rows(self) -> int:
        """Of queries below each other, as Reshape takes it."""
        return -1 if self.steps is None else self.group * self.steps


def _group_query(call: Call, build: GraphBuilder) -> None:
    _require_supported(call)
    heads = _heads(call, build)
    q, k, v = _projections(call, build, heads)
    rows = _Rows(call, build, size_of(build, q, 1), _all_rows(call, build))
    if call.int_attr("do_rotary", 0):
        q, k = _rotated(call, build, heads, q, k, rows)
    else:
        q = _moved(build, q, (0, 0, heads.shared, heads.group, heads.size), (0, 2, 3, 1, 4))
        q = build.emit("Reshape", (q, build.ints((0, 0, heads.rows, heads.size), "rows")), "queries")
        k = _moved(build, k, (0, 0, heads.shared, heads.size), (0, 2, 1, 3))
    v = _moved(build, v, (0, 0, heads.shared, heads.size), (0, 2, 1, 3))
    keys = _with_past(call, build, k, 3, rows)
    values = _with_past(call, build, v, 4, rows)
    if call.output(0):
        _attend(call, build, heads, q, keys, values, rows)


# -- what is given -------------------------------------------------------------------------------------------------
def _require_supported(call: Call) -> None:
    for key, plain in _REFUSED_ATTRIBUTES.items():
        if call.int_attr(key, plain) != plain:
            raise call.unsupported(f"attribute {key} = {call.int_attr(key, plain)} is not supported")
    for key in _REFUSED_TYPES:
        if call.str_attr(key, "NONE") != "NONE":
            raise call.unsupported(f"attribute {key} = {call.str_attr(key, '')}: quantized caches are not supported")
    for i, name in _REFUSED_INPUTS.items():
        if call.input(i):
            raise call.unsupported(f"input {i} ({name}) is not supported")
    if call.output(3):
        raise call.unsupported("output 3 (output_qk) is not supported")
    for first, second in ((1, 2), (3, 4), (7, 8), (14, 15)):
        if bool(call.input(first)) != bool(call.input(second)):
            call.error(f"inputs {first} and {second} both or neither", "one")
    if call.int_attr("do_rotary", 0) and not call.input(7):
        call.error("inputs 7 and 8 (cos_cache, sin_cache) with do_rotary = 1", "none")
    if not call.int_attr("causal", 1) and _window(call):
        call.error("no local_window_size where causal is 0", _window(call))


def _window(call: Call) -> int:
    """How many keys a query sees, itself among them; 0 for all."""
    return max(call.int_attr("local_window_size", -1), 0)


def _heads(call: Call, build: GraphBuilder) -> _Heads:
    count, shared = (call.int_attr(key, 0) for key in ("num_heads", "kv_num_heads"))
    if count < 1 or shared < 1 or count % shared:
        call.error("attributes num_heads and kv_num_heads >= 1, the first a multiple of the second", (count, shared))
    hidden = build.fixed_size(call.input(0), -1) if build.rank(call.input(0)) == 3 else None
    if hidden is None:
        raise call.unsupported("queries that are not of rank 3, or of an unknown last dimension")
    packed = count if call.input(1) else count + 2 * shared
    if hidden % packed:
        call.error(f"queries with a last dimension of {packed} heads", hidden)
    size = hidden // packed
    for i, axis, wanted in ((1, -1, shared * size), (2, -1, shared * size), *((i, 1, shared) for i in (3, 4)),
                            *((i, 3, size) for i in (3, 4))):  # fmt: skip
        got = build.fixed_size(call.input(i), axis) if call.input(i) else None
        if got not in (None, wanted):
            call.error(f"input {i} with {wanted} elements along axis {axis}", got)
    return _Heads(count, shared, size, build.fixed_size(call.input(0), 1))


def _projections(call: Call, build: GraphBuilder, heads: _Heads) -> list[str]:
    """Queries, keys and values, [batch, steps, heads, size], with the norms of queries and keys."""
    counts = (heads.count, heads.shared, heads.shared)
    if call.input(1):
        parts = [
            build.emit("Reshape", (call.input(i), build.ints((0, 0, n, heads.size), "heads")), "by_head")
            for i, n in enumerate(counts)
        ]
    else:
        whole = build.ints((0, 0, sum(counts), heads.size), "heads")
        packed = build.emit("Reshape", (call.input(0), whole), "packed")
        parts, at = [], 0
        for n in counts:
            ends = (build.ints((e,), "end") for e in (at, at + n, 2))
            parts.append(build.emit("Slice", (packed, *ends), "by_head"))
            at += n
    both = call.float_attr("qk_norm_epsilon", 1e-6)
    for i, key in ((0, "q_norm_epsilon"), (1, "k_norm_epsilon")):
        if call.input(14 + i):
            attrs = {"axis": -1, "epsilon": call.float_attr(key, both)}
            parts[i] = build.emit("RMSNormalization", (parts[i], call.input(14 + i)), "norm", **attrs)
    return parts


def _moved(build: GraphBuilder, x: str, shape: tuple[int, ...], order: tuple[int, ...]) -> str:
    apart = build.emit("Reshape", (x, build.ints(shape, "shape")), "apart")
    return build.emit("Transpose", (apart,), "moved", perm=order)


def _all_rows(call: Call, build: GraphBuilder) -> str:
    """The places of the rows of the longest sequence: total_sequence_length of them, a size that follows from other
    sizes where the model computes it so."""
    given = build.emit("Cast", (call.input(6),), "total", to=dtypes.int64)
    return count_from(build, build.ints((0,), "start"), build.emit("Reshape", (given, build.ints((1,), "one"))))


# -- positions -----------------------------------------------------------------------------------------------------
class _Rows:
    """Where new rows stand: made when they are asked for, from ``seqlens_k`` and sizes.

    ``steps``: how many new rows there are; ``total``: how many rows the longest sequence has with them; both [1].
    """

    def __init__(self, call: Call, build: GraphBuilder, steps: str, places: str) -> None:
        self.steps, self.total = steps, size_of(build, places, 0)
        self._build, self._one = build, build.ints((1,), "one")
        seqlens = build.emit("Reshape", (call.input(5), build.ints((-1, 1), "column")), "seqlens")
        self.last = build.emit("Gather", (places, seqlens), "last", axis=0)  # which must be among them

    def first(self) -> str:
        """The place of the first new row of each sequence, [batch, 1]: 0 where a prompt is padded at its end."""
        build = self._build
        back = build.emit("Sub", (self._one, self.steps), "back")
        step = count_from(build, back, build.emit("Add", (back, self._one)))
        behind = build.emit("Add", (self.last, step), "behind")
        return build.emit("Max", (behind, build.constant(np.array(0, np.int64), "front")), "first")

    def places(self) -> str:
        """The places of the new rows, [batch, steps]."""
        build = self._build
        return build.emit("Add", (self.first(), count_from(build, build.ints((0,), "start"), self.steps)), "places")

    def given(self, ids: str) -> str:
        """position_ids as the angles take them: of a first prompt only the first element counts."""
        build = self._build
        ids = build.emit("Cast", (ids,), "ids", to=dtypes.int64)
        corner = build.emit("Slice", (ids, *(build.ints(e, "end") for e in ((0, 0), (1, 1), (0, 1)))), "start")
        run = build.emit("Add", (corner, count_from(build, build.ints((0,), "start"), self.steps)), "run")
        most = build.emit("ReduceMax", (self.first(), build.ints((0, 1), "axes")), "most", keepdims=1)
        is_first = build.emit("Equal", (most, build.constant(np.array(0, np.int64), "front")), "is_first")
        return build.emit("Where", (is_first, run, ids), "ids")


def _rotated(call: Call, build: GraphBuilder, heads: _Heads, q: str, k: str, rows: _Rows) -> tuple[str, str]:
    """Queries [batch, key heads, group * steps, size] and keys [batch, key heads, steps, size], turned."""
    half = build.fixed_size(call.input(7), -1)
    if half is None or not 0 < 2 * half <= heads.size:
        raise call.unsupported(f"a cache of cosines whose columns are not known to be 1 to {heads.size // 2}")
    at = rows.given(call.input(9)) if call.input(9) else rows.places()
    interleaved = bool(call.int_attr("rotary_interleaved", 0))
    out = []
    for x, lead, order, rows_of in (
        (q, (0, 0, heads.shared, heads.group), (0, 2, 3, 1), heads.rows), (k, (0, 0, heads.shared), (0, 2, 1), 0),
    ):  # fmt: skip
        shape = (0, 0, rows_of, heads.size)
        axes = build.ints(range(2, len(lead)), "axes")
        pair = angles(build, (call.input(7), call.input(8)), build.emit("Unsqueeze", (at, axes), "at"), interleaved)
        out.append(turned(build, x, lead, Rotary(*pair, 2 * half, heads.size, interleaved), order, shape))
    return out[0], out[1]


# -- the cache -----------------------------------------------------------------------------------------------------
def _with_past(call: Call, build: GraphBuilder, new: str, i: int, rows: _Rows) -> str:
    """The keys or values that are seen: ``total`` rows of the cache, which is also an output."""
    past, wanted = call.input(i), call.output(i - 2)
    if not past:
        if wanted:
            build.emit_to("Identity", (new,), (wanted,), {})
        return new
    grown = build.emit("Sub", (rows.total, size_of(build, past, 2)), "growth")
    grown = build.emit("Max", (grown, build.ints((0,), "nothing")), "growth")
    pads = build.emit("Concat", (build.ints((0,) * 6, "before"), grown, build.ints((0,), "behind")), "pads", axis=0)
    room = build.emit("Pad", (past, pads), "room")
    first = build.emit("Reshape", (rows.first(), build.ints((-1,), "flat")), "first")
    present = wanted or build.name("present")
    build.emit_to("TensorScatter", (room, new, first), (present,), {"axis": 2})
    ends = (build.ints((0,), "start"), rows.total, build.ints((2,), "axis"))
    return build.emit("Slice", (present, *ends), "seen")


# -- attention -----------------------------------------------------------------------------------------------------
def _attend(call: Call, build: GraphBuilder, heads: _Heads, q: str, k: str, v: str, rows: _Rows) -> None:
    """softmax(scale * Q @ K' + mask) @ V in float32, the group of each head of keys as rows of one product."""
    scale = call.float_attr("scale", 0.0) or 1 / math.sqrt(heads.size)
    q, k, v = (wide(build, x) for x in (q, k, v))
    turned_keys = build.emit("Transpose", (k,), "turned", perm=(0, 1, 3, 2))
    scores = build.emit("MatMul", (q, turned_keys), "scores")
    scores = build.emit("Mul", (scores, build.scalar_like(scale, scores, "scale")), "scores")
    cap = call.float_attr("softcap", 0.0)
    if cap > 0:
        limit = build.scalar_like(cap, scores, "softcap")
        scores = build.emit("Mul", (build.emit("Tanh", (build.emit("Div", (scores, limit)),)), limit), "scores")
    scores = build.emit("Add", (scores, _mask(call, build, heads, scores, rows)), "scores")
    result = build.emit("MatMul", (build.emit("Softmax", (scores,), axis=-1), v), "attended")
    if call.input(11) or call.int_attr("smooth_softmax", 0):
        result = build.emit("Mul", (result, _kept(call, build, heads, scores, rows)), "attended")
    steps = -1 if heads.steps is None else heads.steps
    apart = build.emit("Reshape", (result, build.ints((0, heads.count, steps, heads.size), "apart")), "apart")
    back = build.emit("Transpose", (apart,), "rows", perm=(0, 2, 1, 3))
    if build.dtype(call.input(0)) is None or build.dtype(call.input(0)) != build.dtype(back):
        back = build.emit("CastLike", (back, call.input(0)), "narrow")
    build.emit_to("Reshape", (back, build.ints((0, 0, heads.count * heads.size), "flat")), call.outputs[:1], {})


def _mask(call: Call, build: GraphBuilder, heads: _Heads, scores: str, rows: _Rows) -> str:
    """What is added to the scores: 0 or -inf, and attention_bias; rows as those of the queries."""
    keys = count_from(build, build.ints((0,), "start"), size_of(build, scores, -1))
    if call.int_attr("causal", 1):
        at = build.emit("Unsqueeze", (rows.places(), build.ints((1, 3), "axes")), "at")
    else:
        at = build.emit("Unsqueeze", (rows.last, build.ints((1, 3), "axes")), "at")
    is_one = heads.steps == 1 or not call.int_attr("causal", 1)
    at = at if is_one else _each_group(build, at, heads, rows)
    seen = build.emit("LessOrEqual", (keys, at), "seen")
    if window := _window(call):
        oldest = build.emit("Sub", (at, build.constant(np.array(window, np.int64), "window")), "oldest")
        seen = build.emit("And", (seen, build.emit("Greater", (keys, oldest), "near")), "seen")
    zero, hidden = (build.scalar_like(x, scores, "hidden") for x in (0.0, -math.inf))
    mask = build.emit("Where", (seen, zero, hidden), "mask")
    if not call.input(10):
        return mask
    return build.emit("Add", (mask, _bias(call, build, heads, scores, rows)), "mask")


def _each_group(build: GraphBuilder, x: str, heads: _Heads, rows: _Rows) -> str:
    """[batch, 1, steps, columns] as [batch, 1, group * steps, columns], the same for each member of a group."""
    one = build.ints((1,), "one")
    shape = build.emit("Concat", (one, build.ints((heads.group,), "group"), rows.steps, one), "shape", axis=0)
    wide_rows = build.emit("Expand", (x, shape), "each")
    columns = build.emit("Concat", (build.ints((0, 1, heads.rows), "rows"), size_of(build, x, -1)), "shape", axis=0)
    return build.emit("Reshape", (wide_rows, columns), "each")


def _bias(call: Call, build: GraphBuilder, heads: _Heads, scores: str, rows: _Rows) -> str:
    """attention_bias [batch or 1, heads or 1, steps, total] with rows as those of the queries."""
    bias = wide(build, call.input(10))
    across = build.fixed_size(bias, 1) if build.rank(bias) == 4 else None
    if across not in (1, heads.count):
        raise call.unsupported(f"an attention_bias not known to be of rank 4 with 1 or {heads.count} heads")
    if across == 1:
        return bias if heads.steps == 1 else _each_group(build, bias, heads, rows)
    shape = build.emit("Concat", (build.ints((0, heads.shared, heads.rows), "rows"), size_of(build, bias, -1)), axis=0)
    return build.emit("Reshape", (bias, shape), "bias")


def _kept(call: Call, build: GraphBuilder, heads: _Heads, scores: str, rows: _Rows) -> str:
    """What is left of weights that add up to 1 where the sum has exp(sink) besides: 1 / (1 + exp(sink - logsumexp))."""
    total = build.emit("ReduceLogSumExp", (scores, build.ints((-1,), "axis")), "total", keepdims=1)
    if call.input(11):
        sink = wide(build, call.input(11))
        sink = build.emit("Reshape", (sink, build.ints((heads.shared, heads.group, 1, 1), "sinks")), "sink")
        one = build.ints((1,), "one")
        sink = build.emit("Expand", (sink, build.emit("Concat", (one, one, rows.steps, one), axis=0)), "sink")
        sink = build.emit("Reshape", (sink, build.ints((heads.shared, heads.rows, 1), "sinks")), "sink")
        total = build.emit("Sub", (total, sink), "total")
    return build.emit("Sigmoid", (total,), "kept")


_MAKES = (
    *MAKES, "MatMul", "Softmax", "Where", "LessOrEqual", "Greater", "And", "Max", "Sub", "Pad", "TensorScatter",
    "Expand", "Tanh", "Div", "ReduceLogSumExp", "ReduceMax", "Equal", "Sigmoid", "RMSNormalization",
)  # fmt: skip
RULES: Family = {"GroupQueryAttention": contrib((0, 5, 6), _group_query, _MAKES)}
