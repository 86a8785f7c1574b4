"""Calibrators on distributions whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import ModelError
from tilewright.quantization.calibration.calibrators import choose_range, scale_of
from tilewright.quantization.calibration.histogram import Histogram, Range, collect_histograms, collect_ranges
from tilewright.quantization.options import Calibrator


def _histogram(*parts: np.ndarray) -> Histogram:
    runs = [{"x": p.astype(np.float32)} for p in parts]
    return collect_histograms(runs, collect_ranges(runs))["x"]


def _normal(n: int = 200_000) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n)


def test_ranges_are_those_of_all_samples_and_have_zero_inside() -> None:
    assert collect_ranges([{"x": np.array([1.0, 2.0])}, {"x": np.array([0.5, 7.0])}])["x"] == Range(0.0, 7.0)
    assert collect_ranges([{"x": np.array([-3.0, -1.0])}, {"x": np.zeros(0)}])["x"] == Range(-3.0, 0.0)


def test_histograms_add_up() -> None:
    h = _histogram(np.linspace(0, 1, 4096), np.linspace(0, 1, 4096))
    assert h.counts.sum() == 8192
    assert np.all(h.counts[1:-1] == 4)
    assert h.centres[0] == pytest.approx(1 / 4096)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(bad: float) -> None:
    with pytest.raises(ModelError, match="activation 'inner': expected finite numbers on the calibration data"):
        collect_ranges([{"inner": np.array([1.0, bad])}])


def test_minmax_is_the_range() -> None:
    h = _histogram(np.array([-1.0, 5.0]))
    assert choose_range(h, "minmax", 99.0) == Range(-1.0, 5.0)


@pytest.mark.parametrize("percent", [90.0, 99.0, 99.9])
def test_percentile_leaves_out_as_much_at_both_ends(percent: float) -> None:
    x = _normal()
    found = choose_range(_histogram(x), "percentile", percent)
    tail = (100 - percent) / 2
    assert found.low == pytest.approx(np.percentile(x, tail), abs=0.02)
    assert found.high == pytest.approx(np.percentile(x, 100 - tail), abs=0.02)


def test_percentile_of_all_is_minmax() -> None:
    h = _histogram(_normal(1000))
    found = choose_range(h, "percentile", 100.0)
    assert (found.low, found.high) == pytest.approx((h.range.low, h.range.high))


@pytest.mark.parametrize("calibrator", ["entropy", "mse"])
def test_a_uniform_distribution_is_kept_whole(calibrator: Calibrator) -> None:
    h = _histogram(np.linspace(-1, 1, 100_000))
    found = choose_range(h, calibrator, 99.99)
    assert found.high - found.low > 0.97 * 2


@pytest.mark.parametrize("calibrator", ["percentile", "entropy"])
def test_one_far_outlier_is_cut_off(calibrator: Calibrator) -> None:
    found = choose_range(_histogram(_normal(), np.array([60.0])), calibrator, 99.99)
    assert 3.0 < found.high < 30.0
    assert -6.0 < found.low < -3.0


@pytest.mark.parametrize("calibrator", ["percentile", "entropy", "mse"])
def test_what_is_positive_stays_positive(calibrator: Calibrator) -> None:
    found = choose_range(_histogram(np.abs(_normal())), calibrator, 99.99)
    assert found.low == 0.0
    assert 2.5 < found.high < 5.5


def test_zeros_do_not_count_for_entropy() -> None:
    x = np.abs(_normal())
    rectified = np.concatenate((x, np.zeros(len(x))))
    assert choose_range(_histogram(rectified), "entropy", 99.99) == choose_range(_histogram(x), "entropy", 99.99)


def test_mse_is_the_best_of_what_is_tried() -> None:
    """Cut where saturation and rounding are in balance: as a search over thresholds of the samples finds it."""
    x = np.concatenate((np.random.default_rng(0).laplace(size=200_000), [40.0]))
    found = choose_range(_histogram(x), "mse", 99.99)

    def error(t: float) -> float:
        return float(np.square(scale_of(Range(max(x.min(), -t), t)).rounded(x) - x).mean())

    best = min(error(t) for t in np.linspace(4, 40, 100))
    assert error(found.high) < 1.02 * best


def test_a_tensor_of_zeros_has_scale_1() -> None:
    h = _histogram(np.zeros(10))
    for calibrator in ("minmax", "percentile", "entropy", "mse"):
        s = scale_of(choose_range(h, calibrator, 99.9))  # type: ignore[arg-type]
        assert (s.scale, s.zero) == (1.0, 0)


@pytest.mark.parametrize(
    ("low", "high", "zero"), [(0.0, 2.55, 0), (-2.55, 0.0, 255), (-1.0, 1.01, 127), (-1e-3, 2.549, 0)]
)
def test_zero_is_exact(low: float, high: float, zero: int) -> None:
    s = scale_of(Range(low, high))
    assert s.zero == zero
    assert s.rounded(np.zeros(1, np.float32)) == 0.0
    assert s.rounded(np.array([high], np.float32))[0] == pytest.approx(high, abs=float(s.scale))
