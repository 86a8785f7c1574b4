"""Products: MatMul, Gemm, Einsum, integer products, determinants, attention as exporters write it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Dim, Draft, Rejected, Val

SHARE = 2.0


def _types(d: Draft) -> np.dtype:
    return np.dtype(d.one_of([np.float32, np.float32, np.float32, np.float64, np.float16, np.int32, np.int64]))


def matmul(d: Draft) -> object:
    t = _types(d)
    a = d.tensor([t], range(1, 5))
    inner = a.dims[-1]
    rank = d.one_of([1, 2, 2, 2, 3, 4])
    batch: list[Dim] = []
    if rank > 2:
        own = a.dims[:-2][-(rank - 2) :] if a.rank > 2 else ()
        batch = [d.fixed(1) if d.chance(0.3) else s for s in own]
        batch = [d.fixed(1)] * (rank - 2 - len(batch)) + batch
    dims = [inner] if rank == 1 else [*batch, inner, d.dim(small=d.chance(0.5))]
    found = d.pick(lambda v: v.is_tensor and v.dtype == t and v.rank == 2 and v.dims[0] == inner)
    b = found if found is not None and d.chance(0.4) else d.new(t, dims, 0.6)
    return d.emit("MatMul", [a, b])


def product_left(d: Draft) -> object:
    """A constant or an input on the left."""
    t = np.dtype(np.float32)
    b = d.tensor([t], range(2, 4))
    return d.emit("MatMul", [d.new(t, (d.dim(), b.dims[-2]), 0.6), b])


def gemm(d: Draft) -> object:
    t = np.dtype(d.one_of([np.float32, np.float32, np.float64, np.float16]))
    a = d.tensor([t], 2)
    ta, tb = d.integer(0, 1), d.integer(0, 1)
    m, k = a.dims[::-1] if ta else a.dims
    n = d.dim()
    b = d.new(t, (n, k) if tb else (k, n), 0.7)
    operands: list[Val] = [a, b]
    if d.chance(0.7) or d.opset < 11:
        shape = d.one_of([(n,), (m, n), (d.fixed(1), n), (m, d.fixed(1)), (d.fixed(1),), ()])
        operands.append(d.new(t, shape, 0.6))
    attrs: dict[str, object] = {"transA": ta, "transB": tb}
    if d.chance(0.3):
        attrs |= {"alpha": d.one_of([0.5, 2.0, 0.0]), "beta": d.one_of([0.5, 1.0, 0.0])}
    return d.emit("Gemm", operands, attrs)


_EQUATIONS = ("ab,bc->ac", "ab,ab->a", "abc,abd->acd", "ab->ba", "ab->b", "ab,cb->ac", "abc,c->ab", "a,b->ab",
              "aab->ab", "ii->i", "...ab,...bc->...ac", "ab,bc,cd->ad", "ab,b", "abc->", "abcd,abcd->ad")  # fmt: skip


def einsum(d: Draft) -> object:
    if d.opset < 12:
        raise Rejected("from 12 on")
    t = d.one_of([np.float32, np.float32, np.float64])
    sizes = {c: d.dim(small=True) for c in "abcd"}
    equation = d.one_of(_EQUATIONS)
    terms = equation.split("->")[0].split(",")
    sizes["i"] = sizes["a"]
    operands = []
    for term in terms:
        lead = [sizes["d"]] if term.startswith("...") and d.chance(0.7) else []
        operands.append(d.new(t, [*lead, *(sizes[c] for c in term.removeprefix("..."))], 0.3))
    return d.emit("Einsum", operands, {"equation": equation})


def any_einsum(d: Draft) -> object:
    """Up to three operands with any labels in any order, some twice, some summed in one operand alone."""
    if d.opset < 12:
        raise Rejected("from 12 on")
    t = np.dtype(d.one_of([np.float32, np.float32, np.float64]))
    sizes = {c: d.dim(small=True) for c in "abcde"}
    lead = d.dims(d.integer(1, 2), True) if d.chance(0.2) else ()
    terms, operands = [], []
    for _ in range(d.one_of([1, 2, 2, 2, 2, 3])):
        labels = [str(c) for c in d.rng.permutation([*sizes])[: d.integer(1, 4)]]
        if d.chance(0.05):
            labels.append(labels[0])
        own = [d.fixed(1) if d.chance(0.3) else s for s in lead[d.integer(0, len(lead)) :]]
        terms.append("..." * bool(lead) + "".join(labels))
        operands.append(d.new(t, [*own, *(sizes[c] for c in labels)], 0.4))
    used = dict.fromkeys(c for x in terms for c in x if c != ".")
    kept = "".join(str(c) for c in d.rng.permutation([*used]) if d.chance(0.65))
    return d.emit("Einsum", operands, {"equation": f"{','.join(terms)}->{'...' * bool(lead)}{kept}"})


def matmul_integer(d: Draft) -> object:
    if d.opset < 10:
        raise Rejected("from 10 on")
    ta, tb = d.one_of([np.uint8, np.int8]), d.one_of([np.uint8, np.int8])
    a = d.tensor([ta], range(2, 4))
    b = d.new(tb, (a.dims[-1], d.dim(small=True)), 0.7)
    operands: list[Val | None] = [a, b]
    if d.chance(0.6):
        operands.append(d.scalar(d.integer(0, 9), ta))
        if d.chance(0.6):
            operands.append(d.scalar(d.integer(0, 9), tb) if d.chance(0.5) else d.new(tb, (b.dims[1],), 0.8))
    return d.emit("MatMulInteger", operands)


_ROWS = (0, 1, 5, 7, 8, 12, 13, 14, 15, 28, 29, 40)
_WEIGHTS = ((64, 64), (48, 96), (96, 56), (128, 40))


def product_of_many_rows(d: Draft) -> object:
    """Rows for whole register tiles, and some that are over, by a weight that is large enough for panels.

    Where variants differ a call says how many rows there are, and few are summed one by one.
    """
    depth, columns = d.one_of(_WEIGHTS)
    rows = tuple(int(d.one_of(_ROWS)) for _ in range(d.variants))
    integer = d.opset >= 10 and d.chance(0.4)
    types = [d.one_of([np.uint8, np.int8]) for _ in range(2)] if integer else [np.float32] * 2
    a = d.new(types[0], (rows, depth), 0.0)
    b = d.new(types[1], (depth, columns), 1.0)
    if integer:
        return d.emit("MatMulInteger", [a, b])
    return d.emit("Gemm", [a, b, d.new(np.float32, (columns,), 1.0)]) if d.chance(0.3) else d.emit("MatMul", [a, b])


def det(d: Draft) -> object:
    if d.opset < 11:
        raise Rejected("from 11 on")
    n = d.one_of([1, 2, 3, 4, 4, 5, 7])
    return d.emit("Det", [d.weight(d.one_of([np.float32, np.float64]), (*d.dims(d.integer(0, 2), True), n, n), 0.2)])


def attention_as_exported(d: Draft) -> object:
    """Queries by keys, scale, mask, softmax, by values: with or without heads."""
    t = np.dtype(np.float32)
    lead = d.dims(d.integer(0, 2), True)
    rows, columns, width = d.dim(), d.dim(), d.fixed(d.one_of([1, 3, 8, 16, 17]))
    q, k, v = (d.new(t, (*lead, s, width), 0.1) for s in (rows, columns, columns))
    axes = [*range(len(lead)), len(lead) + 1, len(lead)]
    (turned,) = d.emit("Transpose", [k], {"perm": axes})
    if d.chance(0.3):
        (q,) = d.emit("Mul", [q, d.scalar(0.3, t, 1.0)])
    (scores,) = d.emit("MatMul", [q, turned])
    if d.chance(0.6):
        (scores,) = d.emit(d.one_of(["Div", "Mul"]), [scores, d.scalar(2.0, t, 1.0)])
    if d.chance(0.5):
        mask = d.new(t, d.one_of([(rows, columns), (d.fixed(1), columns), scores.dims, (columns,)]), 0.3)
        (scores,) = d.emit("Add", [scores, mask] if d.chance(0.7) else [mask, scores])
    elif d.chance(0.3):
        keep = d.new(np.bool_, (rows, columns), 0.3)
        (scores,) = d.emit("Where", [keep, scores, d.scalar(d.one_of([-1e9, -np.inf, -3e38]), t, 1.0)])
    (weights,) = d.emit("Softmax", [scores], {"axis": -1 if d.opset >= 11 else scores.rank - 1})
    return d.emit("MatMul", [weights, v])


def attention(d: Draft) -> object:
    if d.opset < 23:
        raise Rejected("from 23 on")
    t = np.dtype(d.one_of([np.float32, np.float32, np.float64, np.float16]))
    batch, heads, width = d.dim(True), d.fixed(d.one_of([2, 4])), d.fixed(d.one_of([2, 4, 8]))
    shared = d.fixed(d.one_of([1, 2])) if d.chance(0.4) else heads
    rows, columns = d.dim(True), d.dim(True)
    q = d.new(t, (batch, heads, rows, width), 0.1)
    k, v = (d.new(t, (batch, shared, columns, width), 0.1) for _ in range(2))
    operands: list[Val | None] = [q, k, v]
    if d.chance(0.4):
        operands.append(d.new(d.one_of([t, np.dtype(np.bool_)]), (rows, columns), 0.3))
    attrs: dict[str, object] = {}
    if d.chance(0.3):
        attrs["is_causal"] = 1
    if d.chance(0.3):
        attrs["scale"] = 0.4
    if d.chance(0.2):
        attrs["softcap"] = 2.0
    return d.emit("Attention", operands, attrs)


GENERATORS: Mapping[str, object] = {
    "MatMul": matmul, "ProductLeft": product_left, "Gemm": gemm, "Einsum": einsum, "AnyEinsum": any_einsum,
    "MatMulInteger": matmul_integer, "ProductOfManyRows": product_of_many_rows, "Det": det,
    "AttentionAsExported": attention_as_exported, "Attention": attention,
}  # fmt: skip
