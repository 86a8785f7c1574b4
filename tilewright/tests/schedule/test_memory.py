"""Steps that were taken before come from the memory, refusals too; several steps are taken or none."""

import pytest

from tilewright.core.errors import ScheduleError
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.schedule import Schedule
from tilewright.tests.schedule.kernels import packed_matmul


def test_the_same_steps_give_the_same_objects():
    func, memory = packed_matmul(12, 32, 8), StepMemory()

    def steps() -> Schedule:
        s = Schedule(func, memory=memory)
        s.parallel(s.split("C_m", (None, 4))[0])
        return s

    a, b = steps(), steps()
    assert a.func is b.func
    assert a.trace == b.trace
    assert Schedule(func, a.trace).func == a.func
    assert a.trace.apply(func, memory) is a.func


def test_a_refusal_is_remembered_with_its_words():
    func, memory = packed_matmul(12, 32, 8), StepMemory()
    for _ in range(2):
        with pytest.raises(ScheduleError, match=r"parallel\(k\): "):
            Schedule(func, memory=memory).parallel("k")


def test_a_full_memory_starts_anew():
    func, memory = packed_matmul(12, 32, 8), StepMemory(limit=3)
    for factor in range(2, 9):
        s = Schedule(func, memory=memory)
        s.split("C_m", (None, factor))
        assert s.func == Schedule(func, s.trace).func


def test_an_attempt_takes_all_steps_or_none():
    s = Schedule(packed_matmul(12, 32, 8))
    before, trace = s.func, s.trace

    def half_wrong(a: Schedule) -> None:
        a.split("C_m", (None, 4))
        a.parallel("k")

    assert not s.attempt(half_wrong)
    assert s.func is before
    assert s.trace == trace
    assert s.attempt(lambda a: a.split("C_m", (None, 4)))
    assert len(s.trace) == 1


def test_an_attempt_lets_other_errors_through():
    def broken(a: Schedule) -> None:
        raise ValueError("not a refusal")

    with pytest.raises(ValueError, match="not a refusal"):
        Schedule(packed_matmul(12, 32, 8)).attempt(broken)
