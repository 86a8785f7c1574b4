"""What is counted of each kernel of a model."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import MeasurementError
from tilewright.runtime import counting, model
from tilewright.runtime.counting import Counts, KernelCounts
from tilewright.runtime.resources.counters import _CALIBRATIONS, HARDWARE, Counters
from tilewright.tests.api.models import perceptron
from tilewright.tests.html_checker import checked
from tilewright.tests.runtime.resources.test_counters import Fake

FEED = {"x": np.ones((3, 32), np.float32)}


class Ticking(Fake):
    """Ten steps of work in the first call after calibration, ten more in each further one."""

    calls = -_CALIBRATIONS

    def stop(self) -> None:
        self.calls += 1
        self.work(10 * max(0, self.calls))
        super().stop()


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    real = counting.count_kernels
    refused = {3: 2}
    monkeypatch.setattr(model, "count_kernels", lambda *a: real(*a, lambda: Counters(lambda: Ticking(errors=refused))))


def test_each_kernel_is_counted_by_itself(ticking: None) -> None:
    built = tilewright.compile(perceptron(), threads=2)
    counts = built.profile(FEED, runs=2, counters=True).counts
    assert counts is not None
    assert [k.nodes for k in counts.kernels] == [("hidden", "bias", "relu"), ("readout",)]
    for k, work in zip(
        counts.kernels, (40, 50), strict=True
    ):  # medians of 30 and 50, 40 and 60; the first run is warm-up
        assert (k.counts["cycles"], k.counts["instructions"]) == (work, 2 * work)
        assert k.counts.keys() == HARDWARE.keys() - {"llc_misses"}
    assert list(counts.refused) == ["llc_misses"]
    plain = tilewright.compile(perceptron(), threads=1)
    np.testing.assert_array_equal(built.run(FEED)["y"], plain.run(FEED)["y"])


def test_a_model_without_counters_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Counters:
        raise MeasurementError("counters: none here")

    real = counting.count_kernels
    monkeypatch.setattr(model, "count_kernels", lambda *a: real(*a, refuse))
    profile = tilewright.compile(perceptron()).profile(FEED, runs=1, counters=True)
    assert profile.counts == Counts(refusal="counters: none here")
    assert "\n\ncounters: none here\na model of the inner loops instead: tilewright inspect" in str(profile)
    assert "counters: none here" in checked(profile._repr_html_())
    assert tilewright.compile(perceptron()).profile(FEED, runs=1).counts is None


COUNTS = Counts(
    (
        KernelCounts("few", ("a",), {"cycles": 100.0, "instructions": 250.0, "branch_misses": 1.0}),
        KernelCounts("<many>", ("b", "c"), {"cycles": 12_345.0, "l1_misses": 7.0}),
    ),
    refused={"llc_misses": "hidden"},
)


def test_the_table() -> None:
    lines = str(COUNTS).splitlines()
    assert lines[0].split() == [
        "kernel", "cycles", "instructions", "per", "cycle", "L1", "misses", "LLC", "misses", "branch", "misses",
        "nodes",
    ]  # fmt: skip
    assert lines[2].split() == ["<many>", "12,345", "7", "b,", "c"]
    assert lines[3].split() == ["few", "100", "250", "2.50", "1", "a"]
    assert lines[4:] == ["counted on one thread, user code only; medians of several runs", "no llc misses: hidden"]
    assert "<many>" in checked(COUNTS._repr_html_())


def test_rows() -> None:
    few, many = COUNTS.to_dicts()
    assert (few["kernel"], few["cycles"], few["instructions_per_cycle"]) == ("few", 100.0, 2.5)
    assert (many["nodes"], many["instructions_per_cycle"]) == ("b, c", None)
    assert "instructions" not in many
