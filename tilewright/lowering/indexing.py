"""Index arithmetic that several operator families share: reshapes as index maps, axes, flat positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.core.arith.bounds import Ranges, loop_range, simplify
from tilewright.core.arith.expr import IntExpr, as_var, const, product
from tilewright.core.errors import ModelError
from tilewright.tensor_ir.compute import Val, index_value, select


def normal_axis(axis: int, rank: int, where: str) -> int:
    """``axis`` counted from the front. Raises ModelError when it is out of range."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"{where}: axis must be in [{-rank}, {rank - 1}], got {axis}")
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Sequence[int], rank: int, where: str) -> tuple[int, ...]:
    return tuple(sorted({normal_axis(a, rank, where) for a in axes}))


def ranges_of(index: Sequence[IntExpr], shape: Sequence[IntExpr]) -> Ranges:
    """The ranges of those indices that are bare loop variables."""
    out = {}
    for i, extent in zip(index, shape, strict=True):
        name = as_var(i)
        if name is not None:
            out[name] = loop_range(extent)
    return out


def linear_index(index: Sequence[IntExpr], shape: Sequence[IntExpr]) -> IntExpr:
    """The row-major position of ``index`` in ``shape``."""
    flat = const(0)
    for i, extent in zip(index, shape, strict=True):
        flat = flat * extent + i
    return flat


def split_index(flat: IntExpr, shape: Sequence[IntExpr], ranges: Ranges) -> tuple[IntExpr, ...]:
    """The index in ``shape`` of row-major position ``flat``, which must lie inside."""
    out: list[IntExpr] = []
    for d in range(len(shape)):
        stride = product(shape[d + 1 :])
        i = flat if stride == 1 else flat // stride
        if d > 0 and any(s != 1 for s in shape[:d]):
            i = i % shape[d]
        out.append(simplify(i, ranges))
    return tuple(out)


def reshape_indices(
    index: Sequence[IntExpr], shape: Sequence[IntExpr], source: Sequence[IntExpr]
) -> tuple[IntExpr, ...]:
    """Where the element ``index`` of a tensor of ``shape`` stands in its reshape source of shape ``source``.

    Runs of dimensions whose products agree are mapped by themselves, so that ``[B, S, 12, 64]`` from ``[B, S, 768]``
    gives ``b, s, h*64 + d``. Symbolic dimensions match when their products are equal expressions.
    """
    ranges = ranges_of(index, shape)
    out_dims = [d for d in range(len(shape)) if shape[d] != 1]
    in_dims = [d for d in range(len(source)) if source[d] != 1]
    result = [const(0)] * len(source)
    i = j = 0
    while i < len(in_dims) or j < len(out_dims):
        a, b = _matching_run([source[d] for d in in_dims[i:]], [shape[d] for d in out_dims[j:]])
        ins, outs = in_dims[i : i + a], out_dims[j : j + b]
        flat = linear_index([index[d] for d in outs], [shape[d] for d in outs])
        for d, e in zip(ins, split_index(flat, [source[d] for d in ins], ranges), strict=True):
            result[d] = e
        i, j = i + a, j + b
    return tuple(result)


def _matching_run(a: Sequence[IntExpr], b: Sequence[IntExpr]) -> tuple[int, int]:
    """The shortest prefixes of ``a`` and ``b`` with equal products; everything where none agree."""
    for total in range(2, len(a) + len(b) + 1):
        for m in range(max(1, total - len(b)), min(total - 1, len(a)) + 1):
            if product(a[:m]) == product(b[: total - m]):
                return m, total - m
    return len(a), len(b)


def choose(position: IntExpr, bounds: Sequence[IntExpr], pick: Callable[[int], Val]) -> Val:
    """``pick(k)`` for the k with ``bounds[k-1] <= position < bounds[k]``; a balanced tree of selects."""

    known, ends = position.value(), [b.value() for b in bounds]
    if known is not None and all(e is not None for e in ends):
        return pick(next((k for k, e in enumerate(ends) if e is not None and known < e), len(ends) - 1))

    def tree(low: int, high: int) -> Val:
        if high - low == 1:
            return pick(low)
        mid = (low + high) // 2
        return select(index_value(position) < index_value(bounds[mid - 1]), tree(low, mid), tree(mid, high))

    return tree(0, len(bounds))
