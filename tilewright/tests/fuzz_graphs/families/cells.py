"""Cells of recurrent layers in products and activations, one or several behind each other. The names are of patterns,
not of operators."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Dims, Draft, Rejected, Val

SHARE = 0.5


def _one(made: list[Val]) -> Val:
    return made[0]


def _weights(d: Draft, width: int, gates: int, units: int) -> tuple[Val, Val]:
    """A matrix for all gates, its columns beside each other, and a bias."""
    return tuple(d.weight(np.float32, shape, 0.95, "unit") for shape in ((width, gates * units), (gates * units,)))  # type: ignore[return-value]


def _product(d: Draft, x: Val, weights: tuple[Val, Val], gemm: bool) -> Val:
    if gemm:
        return _one(d.emit("Gemm", [x, *weights]))
    return _one(d.emit("Add", [_one(d.emit("MatMul", [x, weights[0]])), weights[1]]))


def _gates(d: Draft, x: Val, count: int, units: int, split: bool) -> list[Val]:
    if split and d.opset >= 13:
        return d.emit("Split", [x, d.ints([units] * count, constant=1.0)], {"axis": 1}, count)
    if d.opset < 10:
        raise Rejected("starts are attributes")
    at = [d.ints([k * units], constant=1.0) for k in range(count + 1)]
    one = d.ints([1], constant=1.0)
    return [_one(d.emit("Slice", [x, at[k], at[k + 1], one])) for k in range(count)]


def _op(d: Draft, op: str, *inputs: Val) -> Val:
    return _one(d.emit(op, list(inputs)))


def _lstm(d: Draft, sums: list[Val], c: Val) -> tuple[Val, Val]:
    i, f, o = (_op(d, "Sigmoid", s) for s in sums[:3])
    c = _op(d, "Add", _op(d, "Mul", f, c), _op(d, "Mul", i, _op(d, "Tanh", sums[3])))
    return _op(d, "Mul", o, _op(d, "Tanh", c)), c


def _blend(d: Draft, update: Val, new: Val, h: Val, textbook: bool) -> Val:
    if not textbook:
        return _op(d, "Add", _op(d, "Mul", _op(d, "Sub", h, new), update), new)
    rest = _op(d, "Sub", d.scalar(1, np.float32, 1.0), update)
    return _op(d, "Add", _op(d, "Mul", rest, new), _op(d, "Mul", update, h))


def _state(d: Draft, dims: Dims) -> Val:
    """A first state: an input, now and then a constant, mostly of zeros."""
    if d.chance(0.75):
        return d.new(np.float32, dims, 0.0, "unit")
    arrays = [np.zeros(s, np.float32) for s in zip(*dims, strict=True)]
    return d.given(arrays, 1.0) if d.chance(0.7) else d.new(np.float32, dims, 1.0, "unit")


def cell(d: Draft) -> object:
    """LSTM or GRU over one to three inputs, on weights of their own or shared ones; now and then something else reads
    what is between them."""
    gates, first = d.one_of([3, 4]), len(d.vals)
    batch, width, units = (
        d.one_of([d.fixed(1), d.fixed(d.integer(1, 4)), d.dim(True)]),
        d.integer(1, 5),
        d.integer(1, 5),
    )
    gemm, split, textbook = d.chance(0.5), d.chance(0.5), d.chance(0.5)
    own, other = _weights(d, width, gates, units), _weights(d, units, gates, units)
    h = _state(d, (batch, d.fixed(units)))
    c = _state(d, h.dims) if gates == 4 else h
    order = [int(k) for k in d.rng.permutation(gates)]
    found = []
    for _ in range(d.integer(1, 3)):
        x = d.new(np.float32, (batch, d.fixed(width)), 0.1, "unit")
        if d.chance(0.1):
            own = _weights(d, width, gates, units)
        seen, kept = _product(d, x, own, gemm), _product(d, h, other, gemm)
        if gates == 4:
            parts = _gates(d, _op(d, "Add", seen, kept), 4, units, split)
            h, c = _lstm(d, [parts[k] for k in order], c)
        else:
            mine, states = (_gates(d, s, 3, units, split) for s in (seen, kept))
            reset, update = (_op(d, "Sigmoid", _op(d, "Add", states[k], mine[k])) for k in order[:2])
            inner = _op(d, "Add", mine[order[2]], _op(d, "Mul", reset, states[order[2]]))
            h = _blend(d, update, _op(d, "Tanh", inner), h, textbook)
        found.append(h)
        if d.chance(0.1):
            d.emit("Relu", [d.one_of([seen, kept, c])])
    results = [h, c] if d.chance(0.5) else [*found, c]
    if len(found) > 1 and d.chance(0.6):
        axis = d.integer(0, 1)
        results.append(_one(d.emit("Concat", [_unsqueezed(d, v, axis) for v in found], {"axis": axis})))
    if d.chance(0.9):
        d.hide(first, *results)
    return h


def _unsqueezed(d: Draft, x: Val, axis: int) -> Val:
    if d.opset < 13:
        return _one(d.emit("Unsqueeze", [x], {"axes": [axis]}))
    return _one(d.emit("Unsqueeze", [x, d.ints([axis], constant=1.0)]))


GENERATORS: Mapping[str, object] = {"RecurrentCell": cell}
