"""What became of each kernel from one log to another; nothing is said that the samples do not show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.autotune.records.record import Line, Record
from tilewright.autotune.records.session import make_session
from tilewright.autotune.review.comparing import Change, compare
from tilewright.autotune.review.selection import Selection, parse_time
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, with_threads, wrong


def measured(m: int, typical: float, count: int = 9, seed: int = 0, candidate: int = 0, noise: float = 0.01) -> Record:
    """A record with samples around a time."""
    rng = np.random.default_rng(seed)
    samples = tuple((typical * (1.0 + noise * np.abs(rng.standard_normal(count)))).tolist())
    r = record(dense(m), candidates(dense(m), HERE, candidate + 1)[candidate], float(np.median(samples)))
    return dataclasses.replace(r, samples=samples)


def test_each_change() -> None:
    old = [measured(24, 1e-3), measured(30, 1e-3), measured(31, 1e-3), measured(32, 1e-3), measured(33, 1e-3, count=3)]
    new = [
        measured(24, 2e-3, seed=1), measured(30, 5e-4, seed=1), measured(31, 1e-3, seed=1), measured(40, 1e-3),
        measured(33, 2e-3, count=3, seed=1),
    ]  # fmt: skip
    found = compare(old, new)
    changes = {k.record.workload.text.split("float32[")[1].split(",")[0]: k.change for k in found.kernels}
    assert changes == {
        "24": Change.SLOWER, "30": Change.FASTER, "31": Change.SAME, "32": Change.GONE, "40": Change.NEW,
        "33": Change.TOO_FEW,
    }  # fmt: skip
    assert found.kernels[0].ratio == pytest.approx(2.0, rel=0.05)
    (slower,) = found.of(Change.SLOWER)
    assert slower.p is not None
    assert slower.p < 1e-3
    assert found.geometric_mean == pytest.approx((2.0 * 0.5 * 1.0 * 2.0) ** 0.25, rel=0.05)
    assert found.of(Change.SLOWER)[0].to_json()["same_schedule"] is True


def test_noise_is_no_difference() -> None:
    """5 % apart, with samples that scatter by 20 %."""
    assert (
        compare([measured(24, 1e-3, noise=0.2)], [measured(24, 1.05e-3, seed=5, noise=0.2)]).kernels[0].change
        is Change.SAME
    )


def test_what_is_significant_and_small_is_no_difference() -> None:
    old, new = measured(24, 1e-3, noise=1e-4), measured(24, 1.01e-3, seed=1, noise=1e-4)
    assert compare([old], [new]).kernels[0].change is Change.SAME
    assert compare([old], [new], threshold=0.001).kernels[0].change is Change.SLOWER


def test_a_time_against_its_samples_is_no_difference() -> None:
    """A record's time is that of its fastest visit; the samples as a whole may say the opposite."""
    old = measured(24, 1e-3)
    new = dataclasses.replace(measured(24, 2e-3, seed=1), seconds=5e-4)
    assert compare([old], [new]).kernels[0].change is Change.SAME


def test_many_kernels_are_many_chances() -> None:
    """One of 60 that would be significant alone is not among so many."""
    rng = np.random.default_rng(3)
    old: list[Line] = []
    new: list[Line] = []
    for m in range(24, 84):
        r = record(dense(m), candidates(dense(m), HERE, 1)[0], 1e-3)
        old.append(dataclasses.replace(r, samples=tuple(rng.normal(1.0, 0.1, 9).tolist()), seconds=1.0))
        new.append(dataclasses.replace(r, samples=tuple(rng.normal(1.0, 0.1, 9).tolist()), seconds=1.05))
    assert compare(old, new).of(Change.SLOWER) == ()


def test_the_best_of_each_machine_is_compared() -> None:
    slow, fast = measured(24, 2e-3), measured(24, 1e-3, seed=1, candidate=1)
    bad = dataclasses.replace(wrong(dense(), candidates(dense(), HERE, 3)[2]), time=5.0)
    found = compare([slow, fast, bad], [slow, with_threads(fast, 8)])
    assert [(k.change, k.record.target.threads) for k in found.kernels] == [(Change.SLOWER, 2), (Change.NEW, 8)]
    assert found.kernels[0].to_json()["same_schedule"] is False


# -- filters -------------------------------------------------------------------------------------------------------
def test_filters() -> None:
    a = dataclasses.replace(
        measured(24, 1e-3), session=make_session("resnet18.onnx", "ab12" + "0" * 60, commit="c0ffee")
    )
    b = dataclasses.replace(measured(30, 1e-3), time=1000.0)
    c = with_threads(dataclasses.replace(a, target=dataclasses.replace(HERE, cpu="skylake")), 4)
    on_a, on_b = verdict(a, "net a", True, 2.0), verdict(b, "net b", True, 2.0)
    whole = dataclasses.replace(on_a, workload="net a")
    lines: list[Line] = [a, b, c, on_a, on_b, whole]
    assert Selection().of(lines) == lines
    assert Selection(model="resnet*").of(lines) == [a, c, on_a, whole]
    assert Selection(model="ab12", cpu="znver?").of(lines) == [a, on_a, whole]
    assert Selection(model="vgg*").of(lines) == []
    assert Selection(model="").of(lines) == []
    assert Selection(since=1.0, until=1000.0).of(lines) == [a, c, on_a, whole]
    assert Selection(since=1000.0).of(lines) == [b]
    assert Selection(version="c0f").of(lines) == [a, c, on_a, whole]
    assert Selection(version=a.versions["tilewright"]).of(lines) == lines
    assert not Selection()


def test_times_of_filters() -> None:
    assert parse_time("1970-01-02") == 86400.0
    assert parse_time("1970-01-01T01:00+01:00") == 0.0
    with pytest.raises(InputError, match="expected a date like 2026-11-24 or 2026-11-24T09:30, got 'soon'"):
        parse_time("soon")
