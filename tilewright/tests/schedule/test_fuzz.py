"""Random traces on random nests, as many as CI has time for; the long run is ``python -m`` of ``fuzz_traces``."""

from __future__ import annotations

import random

import pytest

from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.tensor_ir.ir import Func
from tilewright.tests.schedule.fuzz_nests import random_nest
from tilewright.tests.schedule.fuzz_traces import GENERATORS, main, run

COUNT, BATCH = 300, 25


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_a_random_trace_is_refused_or_right(first: int) -> None:
    for seed in range(first, first + BATCH):
        run(seed)


def test_a_part_of_nothing_divides_by_no_size_of_zero() -> None:
    """compute_at of a stage that a fused loop of m*2 steps reads, with m = 0: the part's extent divided by m."""
    run(22745)


def test_every_primitive_has_a_generator() -> None:
    assert set(GENERATORS) == set(PRIMITIVES)


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_generator_makes_steps_that_are_accepted(name: str) -> None:
    rng = random.Random(name)
    for _ in range(400):
        func = random_nest(rng)[1]
        if name in ("unannotate", "tensorize", "peel"):  # there is nothing for these yet: split and annotate first
            func = _prepared(rng, func)
        arguments = GENERATORS[name][1](rng, func)
        if arguments is not None and _result(PRIMITIVES[name](*arguments), func) is not None:
            return
    raise AssertionError(f"none of 400 steps of {name} was accepted")


def _prepared(rng: random.Random, func: Func) -> Func:
    for name in ("annotate", "split", "split", "decompose_reduction"):
        arguments = GENERATORS[name][1](rng, func)
        func = (arguments and _result(PRIMITIVES[name](*arguments), func)) or func
    return func


def _result(step: Primitive, func: Func) -> Func | None:
    try:
        return step.apply(func)
    except ScheduleError:
        return None


def test_a_wrong_primitive_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A primitive that checks no dependences goes wrong soon, and is reported with its seed and its trace."""
    monkeypatch.setattr("tilewright.schedule.primitives.loops.parallel.carried_dependences", lambda *args: [])
    assert main(["--count", "120", "--seed", "0"]) == 1
    shown = capsys.readouterr().out
    assert "seed " in shown
    assert 'parallel("' in shown
    assert " 0 wrong" not in shown
