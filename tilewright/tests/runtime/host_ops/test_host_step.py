"""Host steps keep what they return apart from the arena."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.plan import HostStep
from tilewright.reference import evaluate
from tilewright.runtime.host_ops.host_step import QUICK, run_host_step


def _step(op: str, inputs: int) -> HostStep:
    return HostStep(op, "", (), tuple(f"x{i}" for i in range(inputs)), ("y",), "node", "a container of tensors")


def test_elements_of_a_sequence_are_not_views_of_the_arena() -> None:
    arena = np.zeros(64, np.uint8)
    value = arena[:8].view(np.float32)
    (sequence,) = run_host_step(_step("SequenceConstruct", 1), [value])
    arena[:] = 255
    assert isinstance(sequence, list)
    np.testing.assert_array_equal(sequence[0], np.zeros(2, np.float32))


def test_scalars_keep_their_rank() -> None:
    (length,) = run_host_step(_step("SequenceLength", 1), [[np.zeros(2)]])
    assert isinstance(length, np.ndarray)
    assert length.shape == ()


X = np.arange(12, dtype=np.float32).reshape(3, 1, 4) % 3
QUICK_CASES = [
    *[("Shape", attrs, (X,)) for attrs in ({}, {"start": 1}, {"start": -2, "end": 3}, {"end": -1})],
    ("Size", {}, (X,)),
    ("Size", {}, (X[:0],)),
    *[("NonZero", {}, (x,)) for x in (X, X[:0], X[0, 0] > 0, X.astype(np.int64), np.zeros(5, np.bool_))],
    ("Compress", {"axis": 0}, (X, np.array([True, False, True]))),
    ("Compress", {"axis": -1}, (X, np.array([False, True]))),
    ("Compress", {}, (X, np.array([False, True, True]))),
    ("Compress", {"axis": 1}, (X, np.array([False]))),
]


@pytest.mark.parametrize(("op", "attrs", "inputs"), QUICK_CASES)
def test_quick_forms_are_the_definitions(op: str, attrs: dict[str, object], inputs: tuple[np.ndarray, ...]) -> None:
    names = tuple(f"x{k}" for k in range(len(inputs)))
    (got,) = run_host_step(HostStep(op, "", tuple(attrs.items()), names, ("y",), "node", "a quick form"), list(inputs))
    (expected,) = evaluate(op, "", attrs, list(inputs), 1)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, np.asarray(expected))
    assert (got.dtype, got.shape) == (np.asarray(expected).dtype, np.shape(expected))


def test_every_quick_form_is_tested() -> None:
    with_own_files = {"NonMaxSuppression", "TopK"}
    assert {op for op, *_ in QUICK_CASES} == QUICK.keys() - with_own_files
