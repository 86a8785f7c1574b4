"""The space: its default is the default trace, its points replay, neighbours differ in one decision, refusals speak."""

from dataclasses import replace

import numpy as np
import pytest

from tilewright.autotune.base.space import Space
from tilewright.machine.target import Target
from tilewright.schedule.default import DEFAULT_RULES, default_trace
from tilewright.schedule.schedule import Schedule
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like
from tilewright.tests.tensor_ir.random_programs import random_program

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)
BIG = {"matmul": packed_matmul(48, 64, 64), "conv": conv(12, 12, 16, 32, 3, 1, 1), "softmax": softmax_like(64, 96)}
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


@pytest.mark.parametrize(
    ("name", "labels", "least"),
    [
        ("matmul", {"acc.vectors", "acc.rows", "acc.order", "acc.depth", "acc.unroll", "acc.epilogue"}, 500),
        ("conv", {"acc.vectors", "acc.row_block", "acc.steps", "Xp.at", "Y.parallel", "Y.chunk"}, 10_000),
        ("softmax", {"Y.rows", "mx.partials", "Y.vectors", "Y.parallel", "Y.chunk"}, 20),
    ],
)
def test_decisions_by_structure(name: str, labels: set[str], least: int):
    space = Space(BIG[name], TARGET)
    rng = np.random.default_rng(0)
    asked = {d.label for _ in range(12) if (c := space.sample(rng)) is not None for d in c.decisions}
    assert labels <= asked
    assert space.size() >= least


def test_a_rule_of_the_users_own_comes_before_the_default_ones():
    func = FUNCS["softmax"]

    def whole_rows(s: Schedule, block: str, target: Target) -> bool:
        if block != "Y":
            return False

        def steps(a: Schedule) -> None:
            if a.sample_categorical("Y.spread", ("rows", "elements"), "rows") == "elements":
                a.parallel(a.fuse("Y_i", "Y_j"))
            else:
                a.parallel("Y_i")

        return s.attempt(steps)

    space = Space(func, TARGET, rules=(whole_rows, *DEFAULT_RULES))
    default, other = space.default(), space.with_decisions({"Y.spread": "elements"})
    assert [d.label for d in default.decisions if d.label.startswith("Y")] == ["Y.spread"]
    assert 'parallel("Y_i")' in default.trace.to_text()
    assert 'parallel("Y_i_Y_j_f")' in other.trace.to_text()
    rest = [d.label for d in default.decisions if not d.label.startswith("Y")]
    assert rest  # the other nests are still scheduled by the default rules


def test_an_answer_that_leads_to_a_refused_step_is_no_candidate():
    """What the rules do instead is not what was asked for."""

    def rule(s: Schedule, block: str, target: Target) -> bool:
        def steps(a: Schedule) -> None:
            loop = a.sample_categorical(f"{block}.spread", ("C_m", "k"), "C_m")
            a.parallel(loop)  # over a reduction: refused

        return block == "C" and s.attempt(steps)

    space = Space(FUNCS["matmul"], TARGET, rules=(rule, *DEFAULT_RULES))
    assert space.with_decisions({"C.spread": "k"}) is None
    assert space.with_decisions({"C.spread": "C_m"}) is not None


def test_refusals_come_before_compiling():
    func = packed_matmul(64, 64, 64)

    def big_tile(s: Schedule, target: Target) -> None:
        columns, _ = s.split("C_n", (None, 16))
        s.reorder(columns, "C_m", "C_n_1")
        s.compute_at("acc", columns)
        s.reorder("k", "acc_m", "acc_ni")
        s.unroll("acc_m")
        s.vectorize("acc_ni")

    space = Space(func, TARGET, big_tile)
    assert "register pressure: a tile of 128 vectors in 16 registers" in (space.refusal(space.default()) or "")

    def all_unrolled(s: Schedule, target: Target) -> None:
        for loop in s.loops("acc"):
            s.unroll(loop)

    space = Space(func, TARGET, all_unrolled)
    assert "code size" in (space.refusal(space.default()) or "")


def test_buffers_that_leave_no_room_in_a_cache_are_refused():
    def large_block(s: Schedule, target: Target) -> None:
        outer, _ = s.split("C_m", (None, 256))
        s.compute_at("acc", outer)

    small = replace(TARGET, l2_bytes=128 << 10)
    func = packed_matmul(512, 128, 16)
    assert Space(func, TARGET, large_block).refusal(Space(func, TARGET, large_block).default()) is None
    space = Space(func, small, large_block)
    assert "cache footprint: 131072 bytes of local buffers" in (space.refusal(space.default()) or "")


def test_a_tile_that_reads_more_than_the_cache_holds_is_refused_if_the_default_reads_less():
    func = packed_matmul(64, 256, 1024)
    small = replace(TARGET, l2_bytes=96 << 10)
    space = Space(func, small)
    wide = {"acc.vectors": 6, "acc.rows": 2}
    assert space.with_decisions({"acc.vectors": 2}) is not None
    assert Space(func, TARGET).with_decisions({"acc.vectors": 4, "acc.rows": 2}) is not None
    assert space.with_decisions({**wide, "acc.vectors": 4}) is None


@pytest.mark.parametrize("seed", range(8))
def test_any_function_has_a_space(seed):
    space = Space(random_program(seed).func, TARGET)
    rng = np.random.default_rng(seed)
    assert space.default().trace is not None
    space.sample(rng)
