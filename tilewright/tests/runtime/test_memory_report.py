"""The memory of a model: against what the executor holds, and against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.runtime.executor import Executor
from tilewright.tests.api.models import convolution, perceptron


def _arena_of(model: tilewright.CompiledModel) -> int:
    executor = model._executor
    assert isinstance(executor, Executor)
    return executor._arena.nbytes


def test_the_arena_is_the_one_of_a_call() -> None:
    model = tilewright.compile(convolution(12), threads=1)
    model.run({"x": np.ones((1, 3, 12, 12), np.float32)})
    report = model.memory()
    assert report.arena == _arena_of(model)
    assert report.missing == ()
    assert report.peak is not None
    assert 0 < report.peak.live_bytes <= report.arena


@pytest.mark.parametrize("batch", [1, 7, 33])
def test_symbolic_sizes(batch: int) -> None:
    model = tilewright.compile(perceptron(), threads=1)
    x = np.ones((batch, 32), np.float32)
    model.run({"x": x})
    report = model.memory({"x": x})
    assert report.arena == _arena_of(model)
    assert report.outputs == batch * 10 * 4
    assert report.total == report.weights + report.packed + report.arena + report.outputs
    assert [s.nodes for s in report.steps] == [("hidden", "bias", "relu"), ("readout",)]


def test_sizes_that_are_not_known() -> None:
    report = tilewright.compile(perceptron()).memory()
    assert (report.arena, report.outputs, report.steps, report.missing) == (None, None, (), ("batch",))
    assert report.peak is None
    assert "the arena depends on the sizes of batch" in str(report)


def test_weights_count_once() -> None:
    model = tilewright.compile(perceptron(width=64))
    report = model.memory()
    bias, both = 64 * 4, (32 * 64 + 64 * 10) * 4
    assert report.weights + report.packed >= bias + both
    assert report.packed <= 2 * both
    assert {n for n in model.plan.constants if n in model.plan.packed} == set(model.plan.packed)


def test_the_text_names_units_and_steps() -> None:
    text = str(tilewright.compile(convolution(12)).memory())
    assert "arena of a call" in text
    assert " KiB" in text
    assert "conv1" in text
    assert "weights rearranged for kernels" in tilewright.compile(convolution(12)).explain()
