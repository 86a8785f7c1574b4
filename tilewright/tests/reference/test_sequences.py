"""Sequences and optionals."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.reference import evaluate

A, B, C = (np.full(2, k, np.float32) for k in range(3))


def run(op: str, *inputs: object) -> object:
    return evaluate(op, "", {}, list(inputs), 1)[0]


@pytest.mark.parametrize("where", [np.array(1), np.array([-1])])
def test_insert_before_a_position(where: np.ndarray) -> None:
    out = run("SequenceInsert", [A, B], C, where)
    assert isinstance(out, list)
    assert [x[0] for x in out] == [0, 2, 1]


def test_insert_at_the_end_and_into_nothing() -> None:
    assert [x[0] for x in run("SequenceInsert", [A, B], C, np.array(2))] == [0, 1, 2]  # type: ignore[attr-defined]
    assert [x[0] for x in run("SequenceInsert", run("SequenceEmpty"), C)] == [2]  # type: ignore[attr-defined]


def test_at_erase_length() -> None:
    s = run("SequenceConstruct", A, B, C)
    assert run("SequenceAt", s, np.array([-1])) is C
    assert [x[0] for x in run("SequenceErase", s, np.array(0))] == [1, 2]  # type: ignore[attr-defined]
    assert [x[0] for x in run("SequenceErase", s)] == [0, 1]  # type: ignore[attr-defined]
    assert run("SequenceLength", s) == 3


def test_optional() -> None:
    assert run("OptionalHasElement", run("Optional", [A])) == np.True_
    assert run("OptionalHasElement", run("Optional")) == np.False_
    assert run("OptionalGetElement", [A]) == [A]


def test_refusals() -> None:
    with pytest.raises(IndexError, match=r"expected a position in \[-1, 1\], got 3"):
        run("SequenceInsert", [A], B, np.array(3))
    with pytest.raises(ValueError, match="expected an optional that has an element, got an empty one"):
        run("OptionalGetElement", None)
