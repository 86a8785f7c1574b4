"""The space: its default is the default trace, its points replay, neighbours differ in one decision, refusals speak."""

import numpy as np
import pytest

from tilewright.autotune.space import Space
from tilewright.core.target import Target
from tilewright.schedule.default import default_trace
from tilewright.schedule.schedule import Schedule
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like
from tilewright.tests.tensor_ir.random_programs import random_program

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)
FUNCS = {"matmul": packed_matmul(50, 64, 32), "conv": conv(9, 9, 8, 16, 3, 1, 1), "softmax": softmax_like(7, 33)}


@pytest.mark.parametrize("name", FUNCS)
def test_the_default_is_the_default_trace(name):
    space = Space(FUNCS[name], TARGET)
    assert space.default().trace == default_trace(FUNCS[name], TARGET)
    assert space.size() >= 1


@pytest.mark.parametrize("name", FUNCS)
def test_samples_replay_and_depend_on_the_seed_only(name):
    space = Space(FUNCS[name], TARGET)
    a = [space.sample(np.random.default_rng(seed)) for seed in range(5)]
    b = [space.sample(np.random.default_rng(seed)) for seed in range(5)]
    assert [c.key for c in a] == [c.key for c in b]
    for c in a:
        assert c.trace.apply(FUNCS[name]) == c.func
        assert space.refusal(c) is None


def test_neighbours_change_a_decision():
    space, rng = Space(FUNCS["matmul"], TARGET), np.random.default_rng(1)
    start = space.default()
    for _ in range(10):
        found = space.neighbour(start, rng)
        assert found is not None
        assert found.key != start.key
        assert found.values() != start.values()


def test_decisions_round_trip():
    space = Space(FUNCS["conv"], TARGET)
    c = space.sample(np.random.default_rng(4))
    assert space.with_decisions(c.values()).key == c.key


def test_enumeration_is_ordered_and_without_repeats():
    space = Space(FUNCS["matmul"], TARGET)
    keys = [c.key for c in space.enumerate(30)]
    assert keys == [c.key for c in space.enumerate(30)]
    assert len(keys) == len(set(keys)) > 1


def test_refusals_come_before_compiling():
    func = packed_matmul(64, 64, 64)

    def big_tile(s: Schedule, target: Target) -> None:
        _, rows = s.split("C_m", (None, 64))
        columns, _ = s.split("C_n", (None, 16))
        s.reorder("C_m_0", columns, rows, "C_n_1")
        s.compute_at("acc", columns)

    space = Space(func, TARGET, big_tile)
    assert "register pressure: a tile of 128 vectors" in (space.refusal(space.default()) or "")

    def all_unrolled(s: Schedule, target: Target) -> None:
        for loop in s.loops("acc"):
            s.unroll(loop)

    space = Space(func, TARGET, all_unrolled)
    assert "code size" in (space.refusal(space.default()) or "")


@pytest.mark.parametrize("seed", range(8))
def test_any_function_has_a_space(seed):
    space = Space(random_program(seed).func, TARGET)
    rng = np.random.default_rng(seed)
    assert space.default().trace is not None
    space.sample(rng)
