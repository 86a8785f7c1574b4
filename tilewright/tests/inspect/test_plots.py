"""Plots: what is drawn is what the rows say; what cannot be drawn is refused in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

from matplotlib import pyplot  # noqa: E402 - after the backend is chosen
from matplotlib.axes import Axes  # noqa: E402

from tilewright.core.errors import InputError  # noqa: E402
from tilewright.inspect.plots import plot_best, plot_decision, plot_predictions, plot_replay, plot_roofline  # noqa: E402
from tilewright.runtime.profile import KernelTime, Peaks, Profile  # noqa: E402


def trial(number: int, seconds: float | None, best: float | None, **more: Any) -> dict[str, Any]:
    return {
        "task": "k0", "number": number, "seconds": seconds, "best": best, "predicted": -float(number),
        "failure": None if seconds else "crash", "elapsed": 0.5 * number, "batch": 0, "recorded": False,
        "is_best": False, **more,
    }  # fmt: skip


TRIALS = [
    trial(0, 4e-6, 4e-6, **{"C.rows": 2}), trial(1, None, 4e-6, **{"C.rows": 16}),
    trial(2, 2e-6, 2e-6, **{"C.rows": 10}), trial(3, 3e-6, 2e-6, **{"C.rows": 2}),
]  # fmt: skip
PROFILE = Profile(
    (KernelTime("a", (), 1e-6, 1000, 2000, False), KernelTime("b", (), 3e-6, 60_000, 100, True),
     KernelTime("c", (), 1e-6, None, None, True)), Peaks(40e9, 10e9),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    pyplot.close("all")


def points(axes: Axes, place: int) -> list[tuple[float, float]]:
    """Of one drawn line, without gaps and repetitions."""
    found = np.asarray(axes.lines[place].get_xydata(), float)
    return list(dict.fromkeys((float(x), round(float(y), 6)) for x, y in found if not np.isnan(x)))


@pytest.mark.parametrize(("by", "scale"), [("number", 1.0), ("elapsed", 0.5)])
def test_best_against_trials(by: str, scale: float) -> None:
    axes = plot_best(TRIALS, by)
    assert points(axes, 0) == [(0.0, 4.0), (2 * scale, 2.0), (3 * scale, 3.0)]
    assert points(axes, 1) == [(0.0, 4.0), (2 * scale, 2.0), (3 * scale, 2.0)]


def test_each_task_is_named() -> None:
    axes = plot_best([*TRIALS, trial(0, 9e-6, 9e-6) | {"task": "k1"}])
    assert [t.get_text() for t in axes.texts] == ["k0", "k1"]


def test_predicted_against_measured() -> None:
    axes = plot_predictions(TRIALS)
    assert points(axes, 0) == [(0.0, 4.0), (-2.0, 2.0), (-3.0, 3.0)]
    assert axes.get_title() == "rank correlation -0.50"
    with pytest.raises(InputError, match="expected trials that were measured now, got only recorded ones"):
        plot_predictions([r | {"recorded": True} for r in TRIALS])


def test_decisions_against_time() -> None:
    axes = plot_decision(TRIALS, "C.rows")
    assert [t.get_text() for t in axes.get_xticklabels()] == ["2", "10"]
    assert points(axes, 1) == [(0.0, 3.0), (1.0, 2.0)]
    with pytest.raises(InputError, match=r"expected a decision of the trials, got 'C.row'.*C\.rows"):
        plot_decision(TRIALS, "C.row")
    with pytest.raises(InputError, match="got 'seconds'"):
        plot_decision(TRIALS, "seconds")


def test_roofline() -> None:
    axes = plot_roofline(PROFILE)
    assert [t.get_text() for t in axes.texts] == ["a", "b"]
    assert [points(axes, n)[0] for n in (0, 1)] == [(0.5, 1.0), (600.0, 20.0)]
    assert points(axes, 2) == [(0.25, 2.5), (4.0, 40.0), (1200.0, 40.0)]
    assert len(plot_roofline(PROFILE.to_dicts()).lines) == 2
    with pytest.raises(InputError, match="expected kernels of known operations and bytes, got none"):
        plot_roofline(PROFILE.to_dicts()[2:])


def test_replay() -> None:
    rows = [{"number": 0, "seconds": 9e-6}, {"number": 1, "seconds": None}, {"number": 2, "seconds": 1e-6}]
    axes = plot_replay(rows)
    assert points(axes, 0) == [(0.0, 9.0), (2.0, 1.0)]
    with pytest.raises(InputError, match=r"expected measured states, got none: replay.measure\(\) first"):
        plot_replay(rows[1:2])


def test_given_axes_are_drawn_on() -> None:
    axes = pyplot.figure().subplots()
    assert plot_best(TRIALS, axes=axes) is axes


@pytest.mark.parametrize("given", [3, "rows", {"a": 1}])
def test_what_has_no_rows_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match="expected a result with rows, or a list of rows, got"):
        plot_best(given)


def test_without_a_trial_that_succeeded() -> None:
    with pytest.raises(InputError, match="plot_best: expected trials with a time, got none"):
        plot_best(TRIALS[1:2])


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tilewright\[plots\]'"):
        plot_best(TRIALS)
