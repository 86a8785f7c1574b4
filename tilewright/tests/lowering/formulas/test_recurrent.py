"""LSTM, GRU and RNN with their options, interpreted and as machine code, against the equations written out in numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Loop, walk
from tilewright.tests.lowering.lowered import lower

SIZES = [(3, 2, 4, 5), (1, 1, 1, 1), (5, 1, 3, 17), (2, 3, 2, 33), (2, 7, 3, 64)]
"""Steps, batch, inputs and units; the last are whole panels, over which all stages of a step go together."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0)}
DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}


def one_direction(op, x, lengths, w, r, bias, h, c, peepholes, names, reset_after):
    """Y [steps, batch, hidden], Y_h and Y_c of a forward pass."""
    f = [ACTIVATIONS[n] for n in names]
    n = r.shape[1]
    wb, rb = bias[: w.shape[0]], bias[w.shape[0] :]
    y = np.zeros((x.shape[0], x.shape[1], n), np.float64)
    for s in range(x.shape[0]):
        a, b = x[s] @ w.T + wb, h @ r.T + rb
        g = [a[:, k * n : (k + 1) * n] + b[:, k * n : (k + 1) * n] for k in range(w.shape[0] // n)]
        if op == "LSTM":
            i, forget = f[0](g[0] + peepholes[:n] * c), f[0](g[2] + peepholes[2 * n :] * c)
            new_c = forget * c + i * f[1](g[3])
            new_h = f[0](g[1] + peepholes[n : 2 * n] * new_c) * f[2](new_c)
        elif op == "GRU":
            z, reset, new_c = f[0](g[0]), f[0](g[1]), c
            inner = reset * b[:, 2 * n :] if reset_after else (reset * h) @ r[2 * n :].T + rb[2 * n :]
            new_h = (1 - z) * f[1](a[:, 2 * n :] + inner) + z * h
        else:
            new_h, new_c = f[0](g[0]), c
        alive = (s < lengths)[:, None]
        y[s] = np.where(alive, new_h, 0)
        h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
    return y, h, c


def reversed_in_time(x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    out = x.copy()
    for b, n in enumerate(lengths):
        out[:n, b] = x[:n, b][::-1]
    return out


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "computed"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("LSTM", {}), ("LSTM", {"layout": 1}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {}),
        ("RNN", {"activations": ("Tanh", "Relu")}), ("GRU", {"activations": ("Sigmoid", "Tanh", "Tanh", "Relu")}),
    ],
    ids=str,
)  # fmt: skip
def test_both_directions_with_lengths_and_states(op: str, attrs: dict, sizes: tuple[int, ...], constant: bool) -> None:
    steps, batch, size, hidden = sizes
    rng, gates = np.random.default_rng(7), GATES[op]
    x = rng.standard_normal((steps, batch, size)).astype(np.float32)
    w = rng.standard_normal((2, gates * hidden, size)).astype(np.float32) / 2
    r = rng.standard_normal((2, gates * hidden, hidden)).astype(np.float32) / 2
    bias = rng.standard_normal((2, 2 * gates * hidden)).astype(np.float32) / 2
    h, c = (rng.standard_normal((2, batch, hidden)).astype(np.float32) for _ in range(2))
    peepholes = rng.standard_normal((2, 3 * hidden)).astype(np.float32)
    lengths = rng.integers(1, steps + 1, batch).astype(np.int32)
    batch_first = bool(attrs.get("layout"))
    feed = {"x": x, "w": w, "r": r, "b": bias, "n": lengths, "h": h, "c": c, "p": peepholes}
    if batch_first:
        feed |= {k: np.ascontiguousarray(np.swapaxes(feed[k], 0, 1)) for k in ("x", "h", "c")}
    b = GraphBuilder()
    operands = [
        b.constant(feed[k], k) if constant and k in "wrbp" else b.input(k, str(feed[k].dtype), feed[k].shape)
        for k in ("x", "w", "r", "b", "n", "h", *(("c", "p") if op == "LSTM" else ()))
    ]
    attrs = {**attrs, "hidden_size": hidden, "direction": "bidirectional"}
    outs = b.ops(op, *operands, outputs=3 if op == "LSTM" else 2, **attrs)
    graph = b.build(*outs)
    low = lower(graph)
    args = [feed[i] for i in low.inputs] + [p.evaluate(graph.constants) for p in low.constants]

    names = attrs.get("activations", DEFAULTS[op] * 2)
    half = len(names) // 2
    parts = []
    for d in (0, 1):
        seen = reversed_in_time(x, lengths) if d else x
        y, last_h, last_c = one_direction(
            op, seen, lengths, w[d], r[d], bias[d], h[d], c[d], peepholes[d], names[d * half : (d + 1) * half],
            bool(attrs.get("linear_before_reset")),
        )  # fmt: skip
        parts.append((reversed_in_time(y, lengths) if d else y, last_h, last_c))
    want = [np.stack([p[0] for p in parts], 1), *(np.stack([p[k] for p in parts]) for k in (1, 2))]
    if batch_first:
        want = [want[0].transpose(2, 0, 1, 3), want[1].swapaxes(0, 1), want[2].swapaxes(0, 1)]
    host = detect_host().with_threads(2)
    kernel = build(default_trace(low.func, host).apply(low.func))
    for results in (interpret(low.func, args, {}), kernel(args, {}, 1), kernel(args, {}, 2)):
        for got, expected in zip(results, want, strict=False):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(expected).max())))


@pytest.mark.parametrize(("op", "attrs", "shared"), [
    ("LSTM", {}, True), ("GRU", {"linear_before_reset": 1}, True), ("GRU", {}, False),
])  # fmt: skip
@pytest.mark.parametrize("batch", [1, 12, "b"])
def test_threads_share_panels_of_units_where_no_product_waits_for_another(
    op: str, attrs: dict, shared: bool, batch: int | str
) -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", ("s", batch, 32))
    w, r = (b.constant(np.zeros((1, GATES[op] * 512, n), np.float32), k) for k, n in (("w", 32), ("r", 512)))
    func = lower(b.build(b.op(op, x, w, r, hidden_size=512, **attrs))).func
    after = default_trace(func, detect_host().with_threads(2)).apply(func)
    loops = {s.var: s for s in walk(after.body) if isinstance(s, Loop)}
    assert ("panel" in loops) == shared
    assert loops["step"].kind == "serial"
    assert loops["panel" if shared else "h_products_no"].kind == "parallel"
