"""LSTM, GRU and RNN with every attribute of the standard; onnx.reference ignores lengths, activations and clipping.

Weights are ``W`` (directions, gates * hidden, input) and ``R`` (directions, gates * hidden, hidden); ``X`` is (steps,
batch, input), with ``layout`` 1 (batch, steps, input). A sequence shorter than ``X`` has zeros in ``Y`` behind its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tilewright.core.errors import ModelError

Attrs = Mapping[str, Any]
Array: TypeAlias = "np.ndarray[Any, Any]"
Activation: TypeAlias = Callable[[Array], Array]

# the parameters that an activation takes of activation_alpha and activation_beta, with their defaults
_ALPHA = {"affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0, "hardsigmoid": 0.2, "elu": 1.0}
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
_FUNCTIONS: Mapping[str, Callable[[Array, float, float], Array]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
}


def _activations(attrs: Attrs, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The functions of each direction, clipped before where the node says so."""
    names = [str(n).lower() for n in attrs.get("activations") or list(defaults) * directions]
    alphas, betas = iter(attrs.get("activation_alpha") or ()), iter(attrs.get("activation_beta") or ())
    limit = float(attrs.get("clip") or 0.0)
    out = []
    for name in names:
        if name not in _FUNCTIONS:
            raise ModelError(f"activation: expected one of {', '.join(sorted(_FUNCTIONS))}, got {name!r}")
        out.append(_one(name, _next(alphas, _ALPHA.get(name)), _next(betas, _BETA.get(name)), limit))
    count = len(defaults)
    return [out[k * count : (k + 1) * count] for k in range(directions)]


def _next(given: Iterator[float], default: float | None) -> float:
    return 0.0 if default is None else float(next(given, default))


def _one(name: str, alpha: float, beta: float, limit: float) -> Activation:
    f = _FUNCTIONS[name]

    def apply(x: Array) -> Array:
        clipped = np.clip(x, -limit, limit) if limit > 0 else x
        return np.asarray(f(clipped, alpha, beta)).astype(x.dtype)

    return apply


Step: TypeAlias = Callable[[Array, list[Array]], list[Array]]
"""From the input at a step and the states to the new states, the hidden one first."""


def _gru(attrs: Attrs, own: Sequence[Any], f: Sequence[Activation]) -> Step:
    w, r, b, _ = own
    (wz, wr, wh), (rz, rr, rh) = np.split(w, 3), np.split(r, 3)
    bz, br, bh, cz, cr, ch = np.split(b, 6)

    def step(x: Array, states: list[Array]) -> list[Array]:
        (h,) = states
        z = f[0](x @ wz.T + h @ rz.T + bz + cz)
        reset = f[0](x @ wr.T + h @ rr.T + br + cr)
        if attrs.get("linear_before_reset"):
            new = f[1](x @ wh.T + reset * (h @ rh.T + ch) + bh)
        else:
            new = f[1](x @ wh.T + (reset * h) @ rh.T + ch + bh)
        return [(1 - z) * new + z * h]

    return step


def _rnn(attrs: Attrs, own: Sequence[Any], f: Sequence[Activation]) -> Step:
    w, r, b, _ = own
    bias = sum(np.split(b, 2))
    return lambda x, states: [f[0](x @ w.T + states[0] @ r.T + bias)]


def _lstm(attrs: Attrs, own: Sequence[Any], f: Sequence[Activation]) -> Step:
    w, r, b, p = own
    bias = sum(np.split(b, 2))
    pi, po, pf = (None,) * 3 if p is None else np.split(p, 3)

    def seen(gate: Array, weight: Array | None, cell: Array) -> Array:
        return gate if weight is None else gate + weight * cell

    def step(x: Array, states: list[Array]) -> list[Array]:
        h, c = states
        i, o, forget, new = np.split(x @ w.T + h @ r.T + bias, 4, axis=-1)
        i = f[0](seen(i, pi, c))
        forget = 1 - i if attrs.get("input_forget") else f[0](seen(forget, pf, c))
        cell = forget * c + i * f[1](new)
        return [f[0](seen(o, po, cell)) * f[2](cell), cell]

    return step


def _recurrent(gates: int, states: int, defaults: Sequence[str], cell: Callable[..., Step]) -> Callable[..., Any]:
    def definition(attrs: Attrs, inputs: Sequence[Any], n_outputs: int) -> list[object]:
        given = [*inputs, *[None] * (8 - len(inputs))]
        x, w, r, b, lengths = given[:5]
        layout = int(attrs.get("layout") or 0)
        starts = given[5 : 5 + states]
        if layout:
            x = np.swapaxes(x, 0, 1)
            starts = [None if s is None else np.swapaxes(s, 0, 1) for s in starts]
        directions, hidden = w.shape[0], r.shape[2]
        steps, batch = x.shape[:2]
        b = np.zeros((directions, 2 * gates * hidden), x.dtype) if b is None else b
        p = given[7] if given[7] is not None and states == 2 else [None] * directions
        starts = [np.zeros((directions, batch, hidden), x.dtype) if s is None else s for s in starts]
        ends = np.full(batch, steps) if lengths is None else np.asarray(lengths)
        functions = _activations(attrs, defaults, directions)
        way = attrs.get("direction") or "forward"
        y = np.zeros((steps, directions, batch, hidden), x.dtype)
        last = [np.array(s) for s in starts]
        for d in range(directions):
            step = cell(attrs, (w[d], r[d], b[d], p[d]), functions[d])
            for k in range(batch):
                now = [s[d, k] for s in starts]
                times = range(int(ends[k]))
                for t in reversed(times) if way == "reverse" or d == 1 else times:
                    now = step(x[t, k], now)
                    y[t, d, k] = now[0]
                for s, value in zip(last, now, strict=True):
                    s[d, k] = value
        if layout:
            y, last = y.transpose(2, 0, 1, 3), [np.swapaxes(s, 0, 1) for s in last]
        out: list[object] = [y, *last]
        return out[: max(n_outputs, 1)]

    return definition


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {
    "LSTM": _recurrent(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm),
    "GRU": _recurrent(3, 1, ("Sigmoid", "Tanh"), _gru),
    "RNN": _recurrent(1, 1, ("Tanh",), _rnn),
}
