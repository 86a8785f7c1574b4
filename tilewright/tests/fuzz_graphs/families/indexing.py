"""Gathers and scatters, one-hot vectors, selections by data, sorted and counted elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val
from tilewright.tests.fuzz_graphs.families.movement import anything

SHARE = 2.5


def indices(
    d: Draft, limit: Sequence[int], dims: Sequence[tuple[int, ...]], unique_axis: int | None = None,
    constant: float = 0.5, negative: float = 0.4,
) -> Val:  # fmt: skip
    """Random indices below ``limit`` (one per variant) of the given dims."""
    if min(limit) == 0 and all(0 not in s for s in zip(*dims, strict=True)):
        raise Rejected("nothing to index")
    dtype = d.one_of([np.int64, np.int64, np.int32])
    arrays = []
    for v, n in enumerate(limit):
        shape = tuple(s[v] for s in dims)
        low = -n if negative and d.chance(negative) else 0
        arrays.append(np.asarray(d.rng.integers(low, max(n, low + 1), shape)).astype(dtype))
    if unique_axis is not None:
        arrays = [_distinct(d, n, a, unique_axis) for n, a in zip(limit, arrays, strict=True)]
    if len({min(limit)}) and constant and all(a.shape == arrays[0].shape for a in arrays):
        least = int(np.argmin(limit))
        if d.chance(constant):
            return d.given(arrays[least], 1.0)
    return d.given(arrays, 0.0)


def _distinct(d: Draft, n: int, a: np.ndarray, axis: int) -> np.ndarray:
    """Different indices along an axis: what a scatter without reduction needs."""
    k = a.shape[axis]
    if k > n:
        raise Rejected("more indices than places")
    rows = np.moveaxis(np.empty_like(a), axis, -1)
    flat = rows.reshape(-1, k) if k else rows.reshape(0, 0)
    for row in flat:
        row[:] = d.rng.permutation(n)[:k]
    return np.moveaxis(flat.reshape(rows.shape), -1, axis) if k else a


def gather(d: Draft) -> object:
    x = anything(d, range(1, 5))
    axis = d.axis(x.rank)
    return d.emit("Gather", [x, indices(d, x.dims[axis], d.dims(d.integer(0, 2), True))], {"axis": axis})


def gather_elements(d: Draft) -> object:
    x = anything(d, range(1, 5))
    axis = d.axis(x.rank)
    dims = [d.dim(True) if k == axis % x.rank or d.chance(0.2) else s for k, s in enumerate(x.dims)]
    dims = [s if k == axis % x.rank else tuple(min(p, q) for p, q in zip(s, x.dims[k], strict=True))
            for k, s in enumerate(dims)]  # fmt: skip
    return d.emit("GatherElements", [x, indices(d, x.dims[axis], dims)], {"axis": axis})


def _nd_indices(d: Draft, x: Val, depth: int, first: int, lead: Sequence[tuple[int, ...]]) -> Val:
    """Rows of ``depth`` coordinates into the axes of ``x`` from ``first`` on."""
    dtype = np.int64
    arrays = []
    for v in range(d.variants):
        shape = tuple(s[v] for s in lead)
        sizes = [x.dims[first + k][v] for k in range(depth)]
        if 0 in sizes and 0 not in shape:
            raise Rejected("nothing to index")
        columns = [np.asarray(d.rng.integers(-n if d.chance(0.3) else 0, max(n, 1), shape)) for n in sizes]
        stacked = np.stack(columns, -1) if columns else np.zeros((*shape, 0))
        arrays.append(np.asarray(stacked).astype(dtype))
    return d.given(arrays, 0.5)


def gather_nd(d: Draft) -> object:
    x = anything(d, range(1, 5))
    batch = d.integer(0, x.rank - 1) if d.opset >= 12 and d.chance(0.4) else 0
    depth = d.integer(1, x.rank - batch)
    lead = [*x.dims[:batch], *d.dims(d.integer(0, 1), True)]
    return d.emit("GatherND", [x, _nd_indices(d, x, depth, batch, lead)], {"batch_dims": batch} if batch else {})


def _reduction(d: Draft, x: Val, since: int) -> str:
    choices = ["none"]
    if d.opset >= since:
        choices += ["add", "mul"] if x.dtype != np.bool_ else []
    if d.opset >= 18:
        choices += ["max", "min"]
    return str(d.one_of(choices))


def scatter_elements(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("from 11 on")
    x = anything(d, range(1, 4), small=True)
    axis = d.axis(x.rank)
    how = _reduction(d, x, 16)
    k = axis % x.rank
    dims = [tuple(min(p, q) for p, q in zip(d.dim(True), s, strict=True)) for s in x.dims]
    places = indices(d, x.dims[axis], dims, k if how == "none" else None)
    attrs = {"axis": axis, **({"reduction": how} if how != "none" else {})}
    return d.emit("ScatterElements", [x, places, d.new(x.dtype, places.dims, 0.3)], attrs)


def scatter_nd(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("from 11 on")
    x = anything(d, range(1, 4), small=True)
    depth = d.integer(1, x.rank)
    how = _reduction(d, x, 16)
    count = d.integer(0, 4)
    places = _nd_indices(d, x, depth, 0, [d.fixed(count)])
    if how == "none":
        for v, a in enumerate(places.arrays):
            sizes = [x.dims[k][v] for k in range(depth)]
            wrapped = {tuple(int(i) % n for i, n in zip(row, sizes, strict=True)) for row in np.asarray(a)}
            if len(wrapped) < count:
                raise Rejected("a place twice")
    updates = d.new(x.dtype, [d.fixed(count), *x.dims[depth:]], 0.3)
    return d.emit("ScatterND", [x, places, updates], {"reduction": how} if how != "none" else {})


def one_hot(d: Draft) -> object:
    depth = d.integer(1, 6)
    dtype = d.one_of([np.int64, np.float32, np.int32])
    where = d.given(np.asarray(d.rng.integers(-depth - 1, depth + 2, [d.size(True) for _ in range(d.integer(0, 2))]))
                    .astype(dtype), 0.3)  # fmt: skip
    values = d.new(d.one_of([np.float32, np.int64, np.int32]), (2,), 0.7)
    many = d.scalar(depth, d.one_of([np.int64, np.float32])) if d.chance(0.5) else d.ints([depth])
    return d.emit("OneHot", [where, many, values], {"axis": d.integer(-where.rank - 1, where.rank)})


def compress(d: Draft) -> object:
    x = anything(d, range(1, 4))
    axis = d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0) if d.chance(0.7) else None
    n = min(x.dims[axis]) if axis is not None else min(a.size for a in x.arrays)  # type: ignore[attr-defined]
    flags = d.new(np.bool_, (min(n, d.integer(1, max(1, n))),), 0.4)
    return d.emit("Compress", [x, flags], {"axis": axis} if axis is not None else {})


def non_zero(d: Draft) -> object:
    return d.emit("NonZero", [d.tensor([d.one_of([np.float32, np.int64, np.bool_, np.int32, np.uint8])], range(1, 4))])


def unique(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("from 11 on")
    x = d.tensor([d.one_of([np.float32, np.int64, np.float64, np.int8])], range(1, 3))
    attrs: dict[str, object] = {"sorted": d.integer(0, 1)}
    if d.chance(0.4):
        attrs["axis"] = d.axis(x.rank)
    return d.emit("Unique", [x], attrs, [True, *(d.chance(0.5) for _ in range(3))])


def top_k(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("an operand from 10 on")
    x = d.tensor(d.type_of("TopK"), range(1, 5))
    axis = d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0)
    k = d.ints([d.integer(0 if d.chance(0.1) else 1, max(1, min(x.dims[axis])))])
    attrs: dict[str, object] = {"axis": axis}
    if d.opset >= 11:
        attrs |= {"largest": d.integer(0, 1), "sorted": 1}
    return d.emit("TopK", [x, k], attrs, [d.chance(0.8), True])


def _arg(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        x = d.tensor(d.type_of(op), range(1, 5))
        attrs: dict[str, object] = {"axis": d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0), "keepdims": d.integer(0, 1)}
        if d.opset >= 12 and d.chance(0.4):
            attrs["select_last_index"] = 1
        return d.emit(op, [x], attrs)

    return generate


def tensor_scatter(d: Draft) -> object:
    if d.opset < 24:
        raise Rejected("from 24 on")
    batch, length, width = d.integer(1, 3), d.integer(2, 7), d.integer(1, 4)
    past = d.new(np.float32, (batch, length, width), 0.2)
    new = d.integer(1, length)
    update = d.new(np.float32, (batch, new, width), 0.2)
    circular = d.chance(0.5)
    at = d.ints([d.integer(0, length - (1 if circular else new)) for _ in range(batch)])
    return d.emit("TensorScatter", [past, update, at], {"axis": 1, "mode": "circular" if circular else "linear"})


def embedding(d: Draft) -> object:
    """A constant table and ids from outside."""
    table = d.given(d.rng.standard_normal((d.integer(3, 20), d.integer(1, 17))).astype(np.float32), 1.0)
    ids = indices(d, [table.shape[0]] * d.variants, d.dims(d.integer(1, 2), True), constant=0.1, negative=0.1)
    return d.emit("Gather", [table, ids], {"axis": 0})


GENERATORS: Mapping[str, object] = {
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd, "OneHot": one_hot, "Compress": compress, "NonZero": non_zero, "Unique": unique,
    "TopK": top_k, "ArgMax": _arg("ArgMax"), "ArgMin": _arg("ArgMin"), "TensorScatter": tensor_scatter,
    "Embedding": embedding,
}  # fmt: skip
