"""Arguments of primitives: what stands for a whole number or a tuple becomes one, the rest is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core.arith.expr import var
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.schedule.primitives.buffers.storage_align import StorageAlign
from tilewright.schedule.primitives.loops.reorder import Reorder
from tilewright.schedule.primitives.loops.split import Split
from tilewright.schedule.primitives.stages.compute_at import ComputeAt
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import matmul


def test_numpy_integers_and_lists_become_plain() -> None:
    s = Schedule(matmul(var("n"), 16, 16))
    s.split("C_j", [None, np.int64(4)])
    s.split("k", np.array([4, 4]))  # type: ignore[arg-type]
    assert s.trace.steps == (Split("C_j", (None, 4)), Split("k", (4, 4)))
    assert all(type(f) is int for f in s.trace.steps[1].factors)  # type: ignore[attr-defined]
    assert Trace.from_text(s.trace.to_text()) == s.trace
    assert str(s.trace) == 'split("C_j", factors=(None, 4))\nsplit("k", factors=(4, 4))\n'
    assert StorageAlign("B", np.int8(-1), np.uint64(8)) == StorageAlign("B", -1, 8)  # type: ignore[arg-type]
    assert ComputeAt("A", "i", np.True_).whole is True  # type: ignore[arg-type]
    assert Reorder(["a", "b"]) == Reorder(("a", "b"))  # type: ignore[arg-type]


def test_a_plain_argument_stays_the_same_object() -> None:
    factors = (None, 8)
    assert Split("i", factors).factors is factors


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda s: s.split("k", (None, 2.5)), r"^split\(k\): factors: expected whole numbers or None, got \(None, 2"),
        (lambda s: s.split("k", (None, True)), r"split\(k\): factors: .* got \(None, True\)"),
        (lambda s: s.split("k", (None, "4")), r"split\(k\): factors: .* got \(None, '4'\)"),
        (lambda s: s.split("k", 4), r"split\(k\): factors: expected whole numbers or None, got 4"),
        (lambda s: s.split("k", True), r"split\(k\): factors: expected whole numbers or None, got True"),
        (lambda s: s.split("k", (None, 2**70)), r"split\(k\): factors: expected whole numbers or None"),
        (lambda s: s.split(3, (None, 4)), r"split\(3\): loop: expected text, got 3"),
        (lambda s: s.fuse(["C_i", "C_j"]), r"loops: expected text, got \(\['C_i', 'C_j'\],\)"),
        (lambda s: s.vectorize(None), r"vectorize\(None\): loop: expected text, got None"),
        (lambda s: s.annotate("k", "stream", 4), r"annotate\(k\): value: expected text, got 4"),
        (lambda s: s.compute_at("C", "k", 1), r"compute_at\(C\): whole: expected True or False, got 1"),
        (lambda s: s.pad_einsum("C", (4.0, 1, 1)), r"pad_einsum\(C\): padding: expected whole numbers, got \(4\.0"),
        (lambda s: s.storage_align("C", 0, 8.0), r"storage_align\(C\): factor: expected a whole number, got 8\.0"),
        (lambda s: s.sample_categorical("x", (1, 0.5), 1), r"categorical\(x\): candidates: expected whole numbers or"),
        (lambda s: s.sample_perfect_tile("k", 2.0, 8), r"tile\(k\): parts: expected a whole number, got 2\.0"),
        (lambda s: s.sample_perfect_tile("k", 2, "8"), r"tile\(k\): max_innermost: expected a whole number"),
        (lambda s: s.sample_perfect_tile("k", 0, 8), r"sample_perfect_tile\(k\): parts must be >= 1, got 0"),
        (lambda s: s.sample_compute_location("C", [1]), r"sample_compute_location\(C\): candidates: expected text"),
        (lambda s: s.stream("k", "\ud800"), r"annotate\(k\): value: expected text, got '\\ud800'"),
    ],
)
def test_what_is_not_meant_is_refused(step: Callable[[Schedule], object], message: str) -> None:
    s = Schedule(matmul(16, 16, 16))
    with pytest.raises(ScheduleError, match=message):
        step(s)
    assert len(s.trace) == 0


def test_a_trace_of_wrong_types_does_not_parse() -> None:
    with pytest.raises(ParseError, match=r"step 1: split\(i\): factors: expected whole numbers or None, got \['4'\]"):
        Trace.from_json([{"primitive": "split", "args": {"loop": "i", "factors": ["4"]}}])
    with pytest.raises(ParseError, match=r"trace line 1: vectorize\(3\): loop: expected text, got 3"):
        Trace.from_text("vectorize(3)")
