"""Rules are values: each has a name of its own, says what it asks for, and the one that scheduled is known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.machine.target import Target
from tilewright.schedule.decisions import RandomDecider
from tilewright.schedule.default import DEFAULT_RULES, explained_default, schedule_by_rule
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.rules.base import ScheduleRule
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.ir import Func
from tilewright.tests.lowering.lowered import lower
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like
from tilewright.tests.schedule.rules.test_column_reduction import columns
from tilewright.tests.schedule.rules.test_gemm_chain import attention
from tilewright.tests.schedule.rules.test_recurrence import linear_recurrence
from tilewright.tests.schedule.rules.test_resample import resized
from tilewright.tests.schedule.rules.test_transpose import transposed
from tilewright.tests.schedule.rules.test_winograd import short_filter

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 8 << 20, 2)
NESTS: Mapping[str, Func] = {
    "recurrence": linear_recurrence(4, 9, 64),
    "winograd": short_filter(1, 64, 16, 32),
    "gemm_chain": lower(attention(2, 64, 48, 16, 16)).func,
    "resample": lower(resized(8, 64, 64, (96, 96))).func,
    "column_reduction": columns(4096, 1024),
    "register_tiles": packed_matmul(512, 64, 512),
    "register_tiles of a window": conv(28, 28, 32, 32, 3, 1, 1),
    "row_reduction": softmax_like(512, 768),
    "transpose": transposed(2048, 2048),
}


def test_names_are_unique():
    assert len({r.name for r in DEFAULT_RULES}) == len(DEFAULT_RULES)


@pytest.mark.parametrize("nest", NESTS)
def test_a_rule_asks_for_nothing_that_it_does_not_say(nest):
    rule = next(r for r in DEFAULT_RULES if r.name == nest.split()[0])
    seen: set[str] = set()

    def watched(s: Schedule, block: str, target: Target) -> bool:
        before = len(s.trace.steps)
        done = rule(s, block, target)
        asked = [x for x in s.trace.steps[before:] if isinstance(x, SampleCategorical)]
        seen.update(x.label.rsplit(".", 1)[-1] for x in asked)
        return done

    rules = tuple(watched if r is rule else r for r in DEFAULT_RULES)
    for seed in range(8):
        schedule_by_rule(NESTS[nest], TARGET, RandomDecider(np.random.default_rng(seed)), rules)
    assert seen
    assert seen <= set(rule.decisions)


@pytest.mark.parametrize("nest", NESTS)
def test_the_rule_that_scheduled_is_known(nest):
    assert nest.split()[0] in explained_default(NESTS[nest], TARGET)[1].values()


def test_a_match_that_is_refused_leaves_the_block_to_the_next():
    def apply(s: Schedule, block: str, match: str, target: Target) -> None:
        s.unroll("acc_ni")
        s.parallel(match)

    def matches(s: Schedule, block: str, target: Target) -> list[str]:
        return ["k", "acc_m"] if block == "acc" else []  # a reduction does not spread

    mine = ScheduleRule("mine", matches, apply)
    s = Schedule(packed_matmul(64, 64, 64))
    assert not mine(s, "C", TARGET)
    assert not s.trace.steps
    assert mine(s, "acc", TARGET)
    assert [x.name for x in s.trace.steps] == ["unroll", "parallel"]
    assert "acc_m" in s.trace.to_text()
