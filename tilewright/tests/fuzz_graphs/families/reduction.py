"""Reductions, running sums, softmax and its kin, normalisations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 3.0

_REDUCTIONS = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare".split()


def _reduce(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        x = d.tensor(d.type_of(op), range(5))
        if op == "ReduceLogSum":
            x = d.like(x, kind="positive")
        since = 13 if op == "ReduceSum" else 18
        attrs: dict[str, object] = {"keepdims": d.integer(0, 1)} if d.chance(0.8) else {}
        if d.chance(0.15):
            if d.opset >= since and d.chance(0.5):
                attrs["noop_with_empty_axes"] = d.integer(0, 1)
                return d.emit(op, [x, d.ints([])] if d.chance(0.5) else [x], attrs)
            return d.emit(op, [x], attrs)
        axes = d.axes(x.rank, 1) if d.opset >= 11 else [a % x.rank for a in d.axes(x.rank, 1)]
        if d.opset >= since:
            return d.emit(op, [x, d.ints(axes)], attrs)
        return d.emit(op, [x], {**attrs, "axes": axes})

    return generate


def _running(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        x = d.tensor(d.type_of(op), range(1, 5))
        attrs = {k: 1 for k in ("exclusive", "reverse") if d.chance(0.4)}
        return d.emit(op, [x, d.scalar(d.axis(x.rank), d.one_of([np.int64, np.int32]))], attrs)

    return generate


def _softmax(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        x = d.tensor([d.one_of([np.float32, np.float32, np.float64, np.float16])], range(1, 5))
        return d.emit(op, [x], {"axis": d.axis(x.rank, 0.4 if d.opset >= 11 else 0.0)} if d.chance(0.8) else {})

    return generate


def _float(d: Draft, least: int = 2, most: int = 4) -> Val:
    kinds = [np.float32, np.float32, np.float32, np.float64, np.float16]
    return d.tensor([d.one_of(kinds)], range(least, most + 1), ok=lambda v: v.size > 0)


def layer_norm(d: Draft) -> object:
    if d.opset < 17:
        raise Rejected("from 17 on")
    x = _float(d, 1)
    axis = d.axis(x.rank)
    tail = x.dims[axis:]
    scale = d.new(x.dtype, tail, 0.7)
    bias = [d.new(x.dtype, tail, 0.7)] if d.chance(0.6) else []
    outputs = [True, d.chance(0.2), d.chance(0.2)] if d.chance(0.3) else 1
    return d.emit("LayerNormalization", [x, scale, *bias], {"axis": axis, "epsilon": 1e-3}, outputs)


def rms_norm(d: Draft) -> object:
    if d.opset < 23:
        raise Rejected("from 23 on")
    x = _float(d, 1)
    axis = d.axis(x.rank)
    return d.emit("RMSNormalization", [x, d.new(x.dtype, x.dims[axis:], 0.7)], {"axis": axis, "epsilon": 1e-3})


def instance_norm(d: Draft) -> object:
    """Also of an image large enough that its statistics are made in one sweep, behind a convolution."""
    x = _float(d, 3) if d.chance(0.7) else _large_image(d)
    c = x.dims[1]
    return d.emit("InstanceNormalization", [x, *(d.new(x.dtype, (c,), 0.8) for _ in range(2))], {"epsilon": 1e-2})


def _large_image(d: Draft) -> Val:
    channels, sides = d.integer(1, 5), [d.fixed(d.integer(16, 22)) for _ in range(2)]
    x = d.new(np.float32, (d.dim(True), d.fixed(channels), *sides), 0.1)
    weights = d.given(d.rng.uniform(-1, 1, (d.integer(1, 20), channels, 1, 1)).astype(np.float32), 1.0)
    return d.emit("Conv", [x, weights])[0]


def group_norm(d: Draft) -> object:
    if d.opset < 21:
        raise Rejected("another meaning before 21")
    groups = d.integer(1, 4)
    dims = (d.dim(True), d.fixed(groups * d.integer(1, 3)), *d.dims(d.integer(1, 2), True))
    x = d.new(np.float32, dims, 0.1)
    scales = [d.new(np.float32, (x.dims[1],), 0.8) for _ in range(2)]
    return d.emit("GroupNormalization", [x, *scales], {"num_groups": groups, "epsilon": 1e-2})


def batch_norm(d: Draft) -> object:
    x = _float(d)
    c = x.dims[1]
    scale, bias, mean = (d.new(x.dtype, (c,), 0.8) for _ in range(3))
    variance = d.new(x.dtype, (c,), 0.8, "positive")
    return d.emit("BatchNormalization", [x, scale, bias, mean, variance], {"epsilon": 1e-2} if d.chance(0.5) else {})


def lp_norm(d: Draft) -> object:
    x = _float(d, 1)
    return d.emit("LpNormalization", [x], {"axis": d.axis(x.rank), "p": d.integer(1, 2)})


def mean_variance(d: Draft) -> object:
    x = _float(d, 4)
    axes = [a % 4 for a in d.axes(4, 1)]
    return d.emit("MeanVarianceNormalization", [x], {"axes": axes} if d.chance(0.7) else {})


def lrn(d: Draft) -> object:
    x = d.tensor([np.float32], range(3, 5))
    attrs: dict[str, object] = {"size": d.integer(1, 6)}
    attrs |= {k: v for k, v in (("alpha", 0.3), ("beta", 0.6), ("bias", 1.5)) if d.chance(0.5)}
    return d.emit("LRN", [x], attrs)


def norm_as_exported(d: Draft) -> object:
    """Mean, difference, square, mean, root, quotient, as exporters wrote it before there was an operator."""
    x = _float(d, 2)
    axis: list[int] = [-1] if d.opset >= 11 else [x.rank - 1]

    def mean(v: Val) -> Val:
        if d.opset >= 18:
            return d.emit("ReduceMean", [v, d.ints(axis, constant=1.0)])[0]
        return d.emit("ReduceMean", [v], {"axes": axis})[0]

    (centred,) = d.emit("Sub", [x, mean(x)])
    if d.chance(0.5):
        (square,) = d.emit("Pow", [centred, d.scalar(2, x.dtype, 1.0)])
    else:
        (square,) = d.emit("Mul", [centred, centred])
    (moved,) = d.emit("Add", [mean(square), d.scalar(1e-3, x.dtype, 1.0)])
    (root,) = d.emit("Sqrt", [moved])
    (normal,) = d.emit("Div", [centred, root])
    (scaled,) = d.emit("Mul", [normal, d.new(x.dtype, x.dims[-1:], 0.9)])
    return d.emit("Add", [scaled, d.new(x.dtype, x.dims[-1:], 0.9)])


GENERATORS: Mapping[str, object] = {
    **{f"Reduce{r}": _reduce(f"Reduce{r}") for r in _REDUCTIONS},
    "CumSum": _running("CumSum"), "CumProd": _running("CumProd"),
    **{op: _softmax(op) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    "LayerNormalization": layer_norm, "RMSNormalization": rms_norm, "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm, "BatchNormalization": batch_norm, "LpNormalization": lp_norm,
    "MeanVarianceNormalization": mean_variance, "LRN": lrn, "NormAsExported": norm_as_exported,
}  # fmt: skip
