"""The matrices of Winograd's algorithms, and the error estimate."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.lowering.implementations.conv.winograd_matrices import (
    WINOGRAD,
    WholeKernels,
    estimated_error,
    transformed_weight,
)


@pytest.mark.parametrize("name", WINOGRAD)
def test_the_matrices_compute_a_convolution(name: str) -> None:
    a = WINOGRAD[name]
    rng = np.random.default_rng(1)
    d, g = rng.standard_normal((a.patch, a.patch)), rng.standard_normal((1, 1, 3, 3))
    got = a.a_t @ (transformed_weight(g, a)[..., 0, 0] * (a.b_t @ d @ a.b_t.T)) @ a.a_t.T
    windows = np.lib.stride_tricks.sliding_window_view(d, (3, 3))[:: a.stride, :: a.stride]
    np.testing.assert_allclose(got, (windows * g).sum((2, 3)), rtol=1e-12, atol=1e-12)


def test_larger_tiles_lose_more() -> None:
    w = np.random.default_rng(0).standard_normal((33, 40, 3, 3)).astype(np.float32)
    small, large = (estimated_error(w, WINOGRAD[n]) for n in ("winograd2", "winograd4"))
    assert 1e-8 < small < 1e-5
    assert small < large < 1e-4
    small, strided = (estimated_error(w, WINOGRAD[n]) for n in ("winograd2_stride2", "winograd4_stride2"))
    assert 1e-8 < small < strided < large


def test_each_channel_is_measured_by_itself() -> None:
    w = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    even = estimated_error(w, WINOGRAD["winograd4"])
    w *= np.logspace(-9, 9, 8, dtype=np.float32)[:, None, None, None]
    assert 0.1 * even < estimated_error(w, WINOGRAD["winograd4"]) < 10 * even


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_results_that_overflow_have_an_infinite_error() -> None:
    for value in (np.nan, 3e38):
        assert not estimated_error(np.full((4, 9, 3, 3), value, np.float32), WINOGRAD["winograd4"]) <= 1.0


def test_weights_without_results_have_no_error() -> None:
    assert estimated_error(np.zeros((4, 4, 3, 3), np.float32), WINOGRAD["winograd4"]) == 0.0


@pytest.mark.parametrize("name", WINOGRAD)
def test_whole_numbers_give_whole_multiples(name: str) -> None:
    a = WINOGRAD[name]
    np.testing.assert_allclose(a.whole_g, np.asarray(a.g) * np.asarray(a.whole)[:, None], rtol=1e-15)
    after = np.stack(a.whole_after(list(np.eye(a.patch))))
    np.testing.assert_allclose(after, a.a_t * (a.scale / np.asarray(a.whole)), rtol=1e-15)
    rng = np.random.default_rng(2)
    d, g = rng.integers(-255, 256, (a.patch, a.patch)), rng.integers(-128, 128, (1, 1, 3, 3))
    products = transformed_weight(g, a, whole=True)[..., 0, 0] * (a.b_t @ d @ a.b_t.T)
    windows = np.lib.stride_tricks.sliding_window_view(d, (3, 3))[:: a.stride, :: a.stride]
    np.testing.assert_array_equal(after @ products @ after.T, a.scale**2 * (windows * g).sum((2, 3)))
    assert (a.scale**2 >> a.places) * a.inverse % 2**32 == 1


@pytest.mark.parametrize("name", WINOGRAD)
def test_bytes_and_their_weights_fit_in_int16(name: str) -> None:
    a = WINOGRAD[name]
    assert np.abs(a.b_t).sum(1).max() ** 2 * 255 < 2**15
    assert np.abs(a.whole_g).sum(1).max() ** 2 * 128 < 2**15


def test_sums_are_told_apart_as_far_as_bits_are_left() -> None:
    known = WINOGRAD["winograd4"]
    assert known.places == 6
    near = np.full((2, 100, 3, 3), 100, np.int16)
    assert list(WholeKernels.of(near).middles(known, 0, 255)) == [0, 0]
    one_sign = np.full((1, 200, 3, 3), 127, np.int16)  # beyond 2^25 where it ends, and 2^26 are told apart
    assert list(WholeKernels.of(one_sign).middles(known, 0, 255)) == [200 * 9 * 127 * 255 // 2]
    assert list(WholeKernels.of(-one_sign).middles(known, 0, 255)) == [-(200 * 9 * 127 * 255) // 2]
    assert WholeKernels.of(np.repeat(one_sign, 2, 1)).middles(known, 0, 255) == (
        "sums that lie up to 116586000 apart, expected less than 67108864"
    )
    assert "int16 holds 32767" in str(WholeKernels.of(np.full((1, 1, 3, 3), 255, np.int16)).middles(known, 0, 255))
    assert WholeKernels.of(np.zeros((0, 4, 3, 3), np.int16)).middles(known, 0, 255).shape == (0,)  # type: ignore[union-attr]
