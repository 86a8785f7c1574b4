"""DFT, STFT and determinants against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.backend import NativeBackend
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import TARGET, lower, require_twin

RNG = np.random.default_rng(3)


def _run(graph: Graph, feed: dict[str, np.ndarray]) -> np.ndarray:
    low = lower(graph)
    args = [feed[i] for i in low.inputs] + [p.evaluate(graph.constants) for p in low.constants]
    return np.asarray(interpret(low.func, args, {})[0])


def _complex(x: np.ndarray) -> np.ndarray:
    return x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0].astype(complex)


@pytest.mark.parametrize("length", [None, 5, 8, 11])
@pytest.mark.parametrize(("parts", "inverse", "onesided"), [(1, 0, 0), (2, 0, 0), (2, 1, 0), (1, 0, 1), (2, 1, 1)])
def test_dft(length: int | None, parts: int, inverse: int, onesided: int) -> None:
    x = RNG.standard_normal((2, 8, 3, parts)).astype(np.float32)
    b = GraphBuilder("g")
    size = None if length is None else np.array(length, np.int64)
    name = b.input("x", "float32", x.shape)
    g = b.build(b.op("DFT", name, size, np.array(1, np.int64), inverse=inverse, onesided=onesided))
    got = _run(g, {"x": x})
    if onesided and inverse:
        want = np.fft.irfft(_complex(x), length or 14, axis=1)[..., None]
    else:
        f = np.fft.ifft if inverse else np.fft.fft
        full = f(_complex(x), length or 8, axis=1)
        full = full[:, : (length or 8) // 2 + 1] if onesided else full
        want = np.stack([full.real, full.imag], axis=-1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("windowed", [False, True])
def test_stft(windowed: bool) -> None:
    x = RNG.standard_normal((2, 32, 1)).astype(np.float32)
    window = np.hanning(8).astype(np.float32)
    b = GraphBuilder("g")
    name = b.input("x", "float32", x.shape)
    step, length = np.array(4, np.int64), np.array(8, np.int64)
    g = b.build(b.op("STFT", name, step, window if windowed else None, length))
    got = _run(g, {"x": x})
    frames = np.stack([x[:, k : k + 8, 0] for k in range(0, 25, 4)], axis=1) * (window if windowed else 1)
    want = np.fft.rfft(frames)
    np.testing.assert_allclose(_complex(got), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_det(n: int) -> None:
    x = RNG.standard_normal((3, n, n)).astype(np.float32)
    b = GraphBuilder("g")
    require_twin(b.build(b.op("Det", b.input("x", "float32", x.shape))), {"x": x}, tolerance=1e-4)


def test_large_determinants_run_on_the_host() -> None:
    b = GraphBuilder("g")
    g = b.build(b.op("Det", b.input("x", "float32", (5, 5))))
    reason = NativeBackend(TARGET).host_reason(g, g.nodes[0])
    assert reason == "matrices of 5 rows; native code has up to 4"
