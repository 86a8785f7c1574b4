"""Plots of tuning results and profiles, as matplotlib's axes (the extra ``plots``).

Each takes what has rows, ``to_dicts()``, or the rows themselves: the result of a task or of a model, a profile.
``axes``: where to draw; None makes a figure, which a notebook shows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.core.errors import InputError
from tilewright.core.extras import optional_package
from tilewright.core.options import require_choice, shown
from tilewright.core.suggestions import did_you_mean
from tilewright.inspect.report.drawing import GOOD, SOFT, dots, level, line, note, steps
from tilewright.runtime.profile import Peaks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row: TypeAlias = Mapping[str, Any]
Which: TypeAlias = "Rows | Sequence[Row]"
_MICRO = 1e6
_OWN = (
    "task", "number", "seconds", "best", "predicted", "failure", "elapsed", "batch", "recorded", "is_best",
)  # fmt: skip
"""What rows of trials have beside decisions."""


class Rows(Protocol):
    """What has rows."""

    def to_dicts(self) -> list[dict[str, object]]: ...


def plot_best(result: Which, by: str = "number", axes: Axes | None = None) -> Axes:
    """The time of each trial, and the best so far, of a task or of each task of a model. ``by``: ``number`` of the
    trial, or seconds ``elapsed``. Raises InputError where no trial succeeded."""
    require_choice("plot_best: by", by, ("number", "elapsed"))
    axes = _axes(axes)
    tasks = _by_task(_trials("plot_best", result))
    for name, rows in tasks.items():
        dots(axes, [(float(r[by]), r["seconds"] * _MICRO) for r in rows])
        steps(axes, [(float(r[by]), r["best"] * _MICRO) for r in rows])
        if len(tasks) > 1:
            note(axes, float(rows[-1][by]), rows[-1]["best"] * _MICRO, name, "right")
    axes.set_yscale("log")
    axes.set_xlabel("trial" if by == "number" else "seconds of tuning")
    axes.set_ylabel("time, µs")
    return axes


def plot_predictions(result: Which, axes: Axes | None = None) -> Axes:
    """Scores of the cost model against the measured times of the trials that it had not seen; the rank correlation in
    the title. Trials from a database have no score. Raises InputError where there is none with both."""
    axes = _axes(axes)
    rows = [r for r in _trials("plot_predictions", result) if not r["recorded"]]
    if not rows:
        raise InputError("plot_predictions: expected trials that were measured now, got only recorded ones")
    dots(axes, [(float(r["predicted"]), r["seconds"] * _MICRO) for r in rows])
    found = rank_correlation([float(r["predicted"]) for r in rows], [r["seconds"] for r in rows])
    axes.set_yscale("log")
    axes.set_xlabel("predicted score, higher for faster")
    axes.set_ylabel("measured time, µs")
    axes.set_title("too few to correlate" if found is None else f"rank correlation {found:.2f}")
    return axes


def plot_decision(result: Which, label: str, axes: Axes | None = None) -> Axes:
    """Measured times against what the trials decided for ``label``; the fastest of each choice is marked. Raises
    InputError for a decision that no trial has, with the nearest that is there."""
    axes = _axes(axes)
    trials = _trials("plot_decision", result)
    labels = {key for r in trials for key in r} - {*_OWN}
    if label not in labels:
        near = did_you_mean(label, labels)
        raise InputError(f"plot_decision: expected a decision of the trials, got {label!r}{near}")
    rows = [r for r in trials if label in r]
    choices = sorted({r[label] for r in rows}, key=_order)
    places = {choice: float(n) for n, choice in enumerate(choices)}
    dots(axes, [(places[r[label]], r["seconds"] * _MICRO) for r in rows])
    fastest = {c: min(r["seconds"] for r in rows if r[label] == c) for c in choices}
    axes.plot([places[c] for c in choices], [fastest[c] * _MICRO for c in choices], "o-", color=GOOD)
    axes.set_xticks([places[c] for c in choices], [str(c) for c in choices])
    axes.set_yscale("log")
    axes.set_xlabel(label)
    axes.set_ylabel("time, µs")
    return axes


def plot_roofline(profile: Which, peaks: Peaks | None = None, axes: Axes | None = None) -> Axes:
    """Operations per second of each kernel call against its operations per byte, larger for more time; the machine's
    limits as lines. ``peaks``: those of the profile, if it has measured them. Raises InputError where no kernel
    computes."""
    axes = _axes(axes)
    rows = [r for r in _rows(profile) if r.get("flops") and r.get("bytes") and r.get("seconds")]
    if not rows:
        raise InputError("plot_roofline: expected kernels of known operations and bytes, got none")
    total = sum(r["seconds"] for r in rows)
    for r in rows:
        x, y = r["flops"] / r["bytes"], r["flops"] / r["seconds"] / 1e9
        size = 4 + 12 * math.sqrt(r["seconds"] / total)
        axes.plot(x, y, "o", color=GOOD, alpha=0.8, markersize=size)
        note(axes, x, y, str(r["kernel"]), lift=8)
    peaks = peaks or getattr(profile, "peaks", None)
    if peaks is not None:
        ridge = peaks.flops_per_second / peaks.bytes_per_second
        intensities = [r["flops"] / r["bytes"] for r in rows]
        left, right = min(*intensities, ridge) / 2, max(*intensities, ridge) * 2
        top = peaks.flops_per_second / 1e9
        line(axes, [(left, left * peaks.bytes_per_second / 1e9), (ridge, top), (right, top)], SOFT, 1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations per byte")
    axes.set_ylabel("Gop/s")
    return axes


def plot_replay(replay: Which, axes: Axes | None = None) -> Axes:
    """The measured time after each step of a replay. Raises InputError if it was not measured."""
    axes = _axes(axes)
    rows = [r for r in _rows(replay) if r.get("seconds")]
    if not rows:
        raise InputError("plot_replay: expected measured states, got none: replay.measure() first")
    axes.plot([r["number"] for r in rows], [r["seconds"] * _MICRO for r in rows], "o-", color=GOOD)
    level(axes, rows[0]["seconds"] * _MICRO, "as declared" if rows[0]["number"] == 0 else "")
    axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("time, µs")
    return axes


def _axes(given: Axes | None) -> Axes:
    if given is not None:
        return given
    made: Axes = optional_package("matplotlib.pyplot", "plots").subplots()[1]
    return made


def _rows(given: Which) -> Sequence[Row]:
    found = given.to_dicts() if hasattr(given, "to_dicts") else given
    if isinstance(found, str | bytes | Mapping) or not isinstance(found, Sequence):
        raise InputError(f"plots: expected a result with rows, or a list of rows, got {shown(given)}")
    return found


def _trials(who: str, result: Which) -> list[Row]:
    """The rows of the trials that have a time."""
    rows = [r for r in _rows(result) if r.get("seconds") is not None and "predicted" in r]
    if not rows:
        raise InputError(f"{who}: expected trials with a time, got none")
    return rows


def _by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    out: dict[str, list[Row]] = {}
    for r in rows:
        out.setdefault(str(r["task"]), []).append(r)
    return out


def _order(choice: object) -> tuple[bool, Any]:
    """Numbers first, in their order; the rest by their text."""
    return (False, choice) if isinstance(choice, int | float) else (True, str(choice))
