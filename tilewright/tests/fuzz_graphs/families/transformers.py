"""onnxruntime's operators of language models: rotary positions, grouped attention with caches, norms with a skip."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Dim, Draft, Val

SHARE = 0.6
MS = "com.microsoft"
PLACES = 40


def _real(d: Draft, dims: tuple[Dim, ...], constant: float = 0.1) -> Val:
    return d.weight(np.float32, dims, constant)


def _tables(d: Draft, half: int) -> list[Val]:
    angles = d.rng.uniform(-3, 3, (PLACES, half))
    return [d.given(f(angles).astype(np.float32), 0.9, 0.0) for f in (np.cos, np.sin)]


def rotary(d: Draft) -> object:
    batch, rows, heads, half = d.dim(True), d.dim(True), d.integer(1, 3), d.one_of([2, 4, 8])
    partial = d.chance(0.3)
    size = 2 * half + (4 if partial else 0)
    flat = partial or d.chance(0.6)  # with 4 axes onnxruntime reads other elements of a partial rotation
    dims = (batch, rows, d.fixed(heads * size)) if flat else (batch, d.fixed(heads), rows, d.fixed(size))
    if d.chance(0.3):
        ids = d.given(np.array([d.integer(0, 5)]), 0.2)
    else:
        shapes = zip(batch, rows, strict=True)
        ids = d.given([d.rng.integers(0, PLACES, shape) for shape in shapes], 0.2)
    attrs: dict[str, object] = {"interleaved": d.integer(0, 1)}
    if partial or d.chance(0.3):
        attrs |= {"num_heads": heads} | ({"rotary_embedding_dim": 2 * half} if partial else {})
    return d.emit("RotaryEmbedding", [_real(d, dims), ids, *_tables(d, half)], attrs, domain=MS)


def group_query(d: Draft) -> object:
    """A prompt, a row, or several rows of one sequence behind a past; caches without rows that no sequence has."""
    shared, group, size = d.one_of([1, 2]), d.one_of([1, 2, 3]), 16
    past = d.fixed(0) if d.chance(0.3) else d.dim(True)
    steps = d.fixed(1) if d.chance(0.5) else d.dim(True)
    prompt = all(p == 0 for p in past)
    batch = d.dim(True) if prompt or set(steps) == {1} else d.fixed(1)
    heads = shared * group
    total = tuple(p + s for p, s in zip(past, steps, strict=True))
    room = total if d.chance(0.3) else past  # of a fixed length, or grown
    widths = [heads * size, shared * size, shared * size]
    packed = d.chance(0.3)
    new = [_real(d, (batch, steps, d.fixed(w))) for w in ([sum(widths)] if packed else widths)]
    caches = [_real(d, (batch, d.fixed(shared), room, d.fixed(size)), 0.0) for _ in range(2)]
    last = d.given([np.full(b, t - 1, np.int32) for b, t in zip(batch, total, strict=True)], 0.0, 0.0)
    whole = d.given([np.array(t, np.int32) for t in total], 0.0)
    operands: list[Val | None] = [*new, *([None, None] if packed else []), *caches, last, whole]
    attrs: dict[str, object] = {"num_heads": heads, "kv_num_heads": shared}
    if d.chance(0.6):
        operands += _tables(d, 8)
        attrs |= {"do_rotary": 1, "rotary_interleaved": d.integer(0, 1)}
    if d.chance(0.3):
        attrs["local_window_size"] = d.integer(1, 4)
    if d.chance(0.3):
        attrs["softcap"] = 2.0
    if d.chance(0.3):
        attrs["smooth_softmax"] = 1
    return d.emit("GroupQueryAttention", operands, attrs, 3, domain=MS)


def multi_head(d: Draft) -> object:
    batch, steps, rows = d.dim(True), d.dim(True), d.dim(True)
    heads, size = d.integer(1, 3), d.one_of([1, 4, 8])
    width = d.fixed(heads * size)
    past = d.chance(0.4)
    rows = steps if past else rows
    operands: list[Val | None] = [_real(d, (batch, n, width)) for n in (steps, rows, rows)]
    operands.append(_real(d, (d.fixed(3 * heads * size),), 0.8) if d.chance(0.4) else None)
    operands += [None, None]
    if past:
        before = d.dim(True)
        operands += [_real(d, (batch, d.fixed(heads), before, d.fixed(size)), 0.0) for _ in range(2)]
    attrs: dict[str, object] = {"num_heads": heads}
    if past and d.chance(0.5):
        attrs["unidirectional"] = 1
    return d.emit("MultiHeadAttention", operands, attrs, 3 if past else 1, domain=MS)


def skip_norm(d: Draft) -> object:
    dims = (d.dim(True), d.dim(True), d.fixed(d.integer(1, 20)))
    x = _real(d, dims)
    operands: list[Val | None] = [x, _real(d, dims), _real(d, dims[2:], 0.8)]
    if d.chance(0.4):
        operands.append(_real(d, dims[2:], 0.8))
    wanted = [True, False, False, True] if d.chance(0.6) else [True]
    return d.emit("SkipSimplifiedLayerNormalization", operands, {"epsilon": 1e-3}, wanted, MS)


GENERATORS: Mapping[str, object] = {
    "RotaryEmbedding": rotary, "GroupQueryAttention": group_query, "MultiHeadAttention": multi_head,
    "SkipSimplifiedLayerNormalization": skip_norm,
}  # fmt: skip
