"""Convolutions and pools against direct sums over places; channels-last against channels-first."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.reference import evaluate


def _direct_conv(x: np.ndarray, w: np.ndarray, stride: int, pad: int, dilation: int, group: int) -> np.ndarray:
    n, _, h, wd = x.shape
    m, per_in, kh, kw = w.shape
    oh = (h + 2 * pad - (kh - 1) * dilation - 1) // stride + 1
    ow = (wd + 2 * pad - (kw - 1) * dilation - 1) // stride + 1
    y = np.zeros((n, m, oh, ow))
    for b, f, i, j, c, p, q in itertools.product(*map(range, (n, m, oh, ow, per_in, kh, kw))):
        r, s = i * stride - pad + p * dilation, j * stride - pad + q * dilation
        if 0 <= r < h and 0 <= s < wd:
            y[b, f, i, j] += x[b, f // (m // group) * per_in + c, r, s] * w[f, c, p, q]
    return y


@pytest.mark.parametrize(
    ("stride", "pad", "dilation", "group"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 2), (2, 1, 1, 4)]
)
def test_conv(stride: int, pad: int, dilation: int, group: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 7, 5))
    w = rng.normal(size=(8, 4 // group, 3, 3))
    attrs = {"strides": (stride,) * 2, "pads": (pad,) * 4, "dilations": (dilation,) * 2, "group": group}
    (y,) = evaluate("Conv", "", attrs, [x, w], 1)
    np.testing.assert_allclose(y, _direct_conv(x, w, stride, pad, dilation, group))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "attrs", "more"),
    [
        ("Conv", {"strides": (2, 1), "pads": (1, 0, 1, 2)}, [(6, 4, 3, 3)]),
        ("ConvTranspose", {"strides": (2, 2), "output_padding": (1, 0)}, [(4, 3, 3, 2)]),
        ("MaxPool", {"kernel_shape": (2, 3), "strides": (2, 2), "ceil_mode": 1}, []),
        ("AveragePool", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1), "count_include_pad": 1}, []),
        ("LpPool", {"kernel_shape": (2, 2), "p": 3}, []),
        ("GlobalAveragePool", {}, []),
        ("GlobalMaxPool", {}, []),
        ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, []),
        ("SpaceToDepth", {"blocksize": 2}, []),
        ("InstanceNormalization", {"epsilon": 1e-3}, [(4,), (4,)]),
    ],
)
def test_channels_last(op: str, attrs: dict[str, object], more: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4, 6, 8)).astype(np.float32)
    rest = [rng.normal(size=s).astype(np.float32) for s in more]
    (first,) = evaluate(op, "", attrs, [x, *rest], 1)
    (last,) = evaluate(op, "", {**attrs, "data_layout": "NHWC"}, [np.moveaxis(x, 1, -1), *rest], 1)
    np.testing.assert_array_equal(np.moveaxis(last, -1, 1), first)  # type: ignore[arg-type]


def test_resize_sizes_are_products_in_float32() -> None:
    x = np.zeros((1, 1, 400, 1), np.float32)
    (y,) = evaluate("Resize", "", {"mode": "linear"}, [x, None, np.array([1, 1, 0.64, 1], np.float32)], 1)
    assert isinstance(y, np.ndarray)
    assert y.shape == (1, 1, 256, 1)


def test_resize_channels_last() -> None:
    x = np.random.default_rng(2).normal(size=(1, 2, 5, 4)).astype(np.float32)
    scales = np.array([1, 1, 2, 1.5], np.float32)
    attrs = {"mode": "linear"}
    (first,) = evaluate("Resize", "", attrs, [x, None, scales], 1)
    (last,) = evaluate("Resize", "", {**attrs, "data_layout": "NHWC"}, [np.moveaxis(x, 1, -1), None, scales], 1)
    np.testing.assert_array_equal(np.moveaxis(last, -1, 1), first)  # type: ignore[arg-type]


def test_max_pool_indices_of_padded_windows() -> None:
    x = -np.arange(1.0, 10.0, dtype=np.float32).reshape(1, 1, 3, 3)
    attrs = {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (1, 1, 0, 0)}
    y, places = evaluate("MaxPool", "", attrs, [x], 2)
    np.testing.assert_array_equal(y, [[[[-1, -2], [-4, -5]]]])  # type: ignore[arg-type]
    np.testing.assert_array_equal(places, [[[[0, 1], [3, 4]]]])  # type: ignore[arg-type]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_nan_times_a_weight_of_zero_is_nan(op: str) -> None:
    """numpy's ``tensordot`` makes it zero where the weight is the only element of its factor."""
    x = np.full((1, 1, 2, 2), np.nan, np.float32)
    (y,) = evaluate(op, "", {}, [x, np.zeros((1, 1, 1, 1), np.float32)], 1)
    assert np.isnan(y).all()
