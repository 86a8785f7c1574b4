"""Decisions: recorded in the trace, changing nothing, answered by deciders."""

import numpy as np

from tilewright.core.arith.expr import var
from tilewright.machine.target import Target
from tilewright.schedule.decisions import DefaultDecider, FixedDecider, RandomDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.primitives.sampling.sample_compute_location import SampleComputeLocation
from tilewright.schedule.primitives.sampling.sample_perfect_tile import SamplePerfectTile, perfect_tiles
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import check, check_refusals, elementwise
from tilewright.tests.schedule.kernels import packed_matmul

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)

F = elementwise(2)


def test_decisions_change_nothing():
    check(
        F,
        """
        sample_categorical("rows", candidates=(1, 2, 4), decision=2)
        sample_perfect_tile("B_j", max_innermost=3, decision=(1, 3))
        sample_compute_location("B", candidates=("root", "B_i"), decision="B_i")
        """,
        """
        for B_i in range(2):
            for B_j in range(3):
                with block("B", B_i_=spatial(2, B_i), B_j_=spatial(3, B_j)):
                    B[B_i_, B_j_] = add(A[B_i_, B_j_], A[B_i_, B_j_])
        """,
    )


def test_refusals_of_sample_categorical():
    case = 'sample_categorical("rows", candidates=(1, 2), decision=3)'
    message = "sample_categorical(rows): the decision is not one of the candidates 1, 2: 3"
    check_refusals(SampleCategorical, {"the decision is not one of the candidates": (F, case, message)})


def test_refusals_of_sample_perfect_tile():
    symbolic = elementwise(var("n"))
    check_refusals(
        SamplePerfectTile,
        {
            "the extent is not a constant": (
                symbolic,
                'sample_perfect_tile("B_i", max_innermost=4, decision=(1, 4))',
                "sample_perfect_tile(B_i): the extent is not a constant",
            ),
            "the factors do not multiply to the extent": (
                F,
                'sample_perfect_tile("B_j", max_innermost=3, decision=(2, 2))',
                "sample_perfect_tile(B_j): the factors do not multiply to the extent 3: (2, 2)",
            ),
            "the innermost factor is above the limit": (
                F,
                'sample_perfect_tile("B_j", max_innermost=2, decision=(1, 3))',
                "sample_perfect_tile(B_j): the innermost factor is above the limit 2: 3",
            ),
        },
    )


def test_refusals_of_sample_compute_location():
    case = 'sample_compute_location("B", candidates=("root", "B_i"), decision="B_j")'
    message = "sample_compute_location(B): the decision is not one of the candidates root, B_i: B_j"
    check_refusals(SampleComputeLocation, {"the decision is not one of the candidates": (F, case, message)})


def test_perfect_tiles_are_all_factorisations():
    tiles = perfect_tiles(12, 2, 4)
    assert tiles == ((3, 4), (4, 3), (6, 2), (12, 1))
    assert all(np.prod(t) == 24 for t in perfect_tiles(24, 3, 24))


def test_the_rules_ask_and_a_fixed_answer_is_followed():
    func = packed_matmul(20, 8, 32)
    default = schedule_by_rule(func, TARGET, DefaultDecider())
    asked = {s.label: s for s in default.trace.steps if isinstance(s, SampleCategorical)}
    rows = next(label for label in asked if label.endswith(".rows"))
    fixed = schedule_by_rule(func, TARGET, FixedDecider({rows: 2}))
    chosen = next(s for s in fixed.trace.steps if isinstance(s, SampleCategorical) and s.label == rows)
    assert chosen.decision == 2 != asked[rows].decision
    ignored = schedule_by_rule(func, TARGET, FixedDecider({rows: 999}))
    assert ignored.trace == default.trace


def test_random_decisions_are_a_function_of_the_seed():
    func = packed_matmul(20, 8, 32)
    a, b = (schedule_by_rule(func, TARGET, RandomDecider(np.random.default_rng(3))).trace for _ in range(2))
    assert a == b
    replayed = Trace.from_text(a.to_text()).apply(func)
    assert replayed == schedule_by_rule(func, TARGET, RandomDecider(np.random.default_rng(3))).func


def test_a_perfect_tile_is_asked_through_the_schedule():
    s = Schedule(elementwise(12), decider=RandomDecider(np.random.default_rng(0)))
    factors = s.sample_perfect_tile("B_i", 2, 4)
    assert factors in perfect_tiles(12, 2, 4)
    s.split("B_i", factors)
    assert s.sample_compute_location("B", ("B_i_0",)) in ("root", "B_i_0")
