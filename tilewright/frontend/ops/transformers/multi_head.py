"""MultiHeadAttention: attention of projected queries, keys and values, of the same rows or of another sequence."""

from __future__ import annotations

import numpy as np

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.frontend.ops.transformers.bert import (
    ATTENTION,
    by_head,
    count_to,
    join_heads,
    masked,
    score_scale,
    seen_by_all,
    size,
)

_REFUSED_INPUTS = {8: "past_sequence_length", 9: "cache_indirection"}


def _multi_head(call: Call, build: GraphBuilder) -> None:
    heads = call.int_attr("num_heads", 0)
    if heads < 1:
        call.error("an attribute num_heads >= 1", heads)
    for i, name in _REFUSED_INPUTS.items():
        if call.input(i):
            raise call.unsupported(f"input {i} ({name}) is not supported")
    if call.output(3):
        raise call.unsupported("output 3 (qk) is not supported")
    if bool(call.input(6)) != bool(call.input(7)):
        call.error("inputs 6 and 7 (past_key, past_value) both or neither", "one")
    q, k, v = _by_head(call, build, heads)
    k, v = (_with_past(call, build, x, i) for x, i in ((k, 6), (v, 7)))
    scores = build.emit("MatMul", (q, build.emit("Transpose", (k,), "turned", perm=(0, 1, 3, 2))), "scores")
    scores = build.emit("Mul", (scores, score_scale(call, build, q)), "scores")
    mask = _visible(call, build, scores) if call.input(4) else ""
    for term in (call.input(5), masked(call, build, mask, scores)):
        scores = build.emit("Add", (scores, term), "scores") if term else scores
    result = build.emit("MatMul", (build.emit("Softmax", (scores,), axis=-1), v), "attended")
    join_heads(build, result, heads, call.outputs[:1])


def _by_head(call: Call, build: GraphBuilder, heads: int) -> list[str]:
    """Queries, keys and values, [batch, heads, rows, size], with the bias."""
    ranks = [build.rank(call.input(i)) if call.input(i) else 0 for i in range(3)]
    match ranks:
        case [5, 0, 0]:
            if call.input(3):
                raise call.unsupported("a bias with packed queries, keys and values")
            return [_part(build, call.input(0), i) for i in range(3)]
        case [3, 5, 0]:
            if call.input(3):
                raise call.unsupported("a bias with packed keys and values")
            return [by_head(build, call.input(0), heads), *(_part(build, call.input(1), i) for i in range(2))]
        case [3, 4, 4]:
            q = call.input(0)
            if call.input(3):
                q = build.emit("Add", (q, _bias(call, build, [q])[0]), "biased")
            return [by_head(build, q, heads), call.input(1), call.input(2)]
        case [3, 3, 3]:
            parts = [call.input(i) for i in range(3)]
            if call.input(3):
                both = zip(parts, _bias(call, build, parts), strict=True)
                parts = [build.emit("Add", pair, "biased") for pair in both]
            return [by_head(build, x, heads) for x in parts]
    told = ", ".join("unknown" if r is None else str(r) for r in ranks)
    raise call.unsupported(
        f"queries, keys and values of rank 3, 3, 3 or 3, 4, 4 or packed, 3, 5 or 5, got ranks {told}"
    )


def _part(build: GraphBuilder, packed: str, i: int) -> str:
    """Part ``i`` of [batch, rows, heads, parts, size], by head."""
    part = build.emit("Gather", (packed, build.constant(np.array(i, np.int64), "part")), "part", axis=3)
    return build.emit("Transpose", (part,), "heads", perm=(0, 2, 1, 3))


def _bias(call: Call, build: GraphBuilder, parts: list[str]) -> list[str]:
    """The bias of each part: those of queries, keys and values lie one behind the other."""
    out, at = [], build.ints((0,), "start")
    for x in parts:
        end = build.emit("Add", (at, build.emit("Shape", (x,), "width", start=2, end=3)), "end")
        out.append(build.emit("Slice", (call.input(3), at, end), "bias"))
        at = end
    return out


def _with_past(call: Call, build: GraphBuilder, new: str, i: int) -> str:
    """Past and new keys or values, which are also an output."""
    if call.input(i):
        new = build.emit("Concat", (call.input(i), new), "all", axis=2)
    if call.output(i - 5):
        build.emit_to("Identity", (new,), (call.output(i - 5),), {})
    return new


def _visible(call: Call, build: GraphBuilder, scores: str) -> str:
    """Where key_padding_mask lets keys be seen: how many of each sequence (with more behind that, which only kernels
    for padded batches read), which keys, or which pairs."""
    mask = call.input(4)
    rank = build.rank(mask)
    if rank not in (1, 2, 3):
        raise call.unsupported("a key_padding_mask of unknown rank, or not of rank 1 to 3")
    if rank > 1:
        return seen_by_all(build, mask, rank)
    batch = build.emit("Shape", (scores,), "batch", start=0, end=1)
    ends = build.emit("Slice", (mask, build.ints((0,), "start"), batch), "ends")
    at = count_to(build, build.constant(np.array(0, np.int64), "start"), size(build, scores, -1))
    before = build.emit("Unsqueeze", (ends, build.ints((1, 2, 3), "axes")), "ends")
    return build.emit("Less", (build.emit("CastLike", (at, mask), "at"), before), "visible")


RULES: Family = {"MultiHeadAttention": contrib((0,), _multi_head, (*ATTENTION, "Identity"))}
