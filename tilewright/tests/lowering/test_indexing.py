"""Reshapes as index maps."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
import pytest

from tilewright.core.arith.expr import const, var
from tilewright.core.arith.parse import parse
from tilewright.lowering.indexing import reshape_indices


def _text(shape: list[str], source: list[str]) -> list[str]:
    index = [var(f"i{d}") for d in range(len(shape))]
    return [str(e) for e in reshape_indices(index, [parse(s) for s in shape], [parse(s) for s in source])]


def test_heads_split_off_symbolic_batch() -> None:
    assert _text(["b", "s", "12", "64"], ["b", "s", "768"]) == ["i0", "i1", "i2*64 + i3"]


def test_heads_join() -> None:
    assert _text(["b", "s", "768"], ["b", "s", "12", "64"]) == ["i0", "i1", "(i2//64)", "(i2 % 64)"]


def test_symbolic_dims_join_and_ones_vanish() -> None:
    assert _text(["b*s", "1", "8"], ["b", "s", "8"]) == ["(i0//s)", "(i0 % s)", "i2"]
    assert _text(["1", "b", "s"], ["b", "1", "s"]) == ["i1", "0", "i2"]


@pytest.mark.parametrize(
    ("shape", "source"),
    [((6, 4), (3, 8)), ((2, 3, 4), (24,)), ((24,), (2, 1, 3, 4)), ((5, 7), (7, 5)), ((), (1, 1)), ((1,), ())],
)
def test_agrees_with_numpy(shape: tuple[int, ...], source: tuple[int, ...]) -> None:
    data = np.arange(prod(source)).reshape(source)
    want = data.reshape(shape)
    index = [var(f"i{d}") for d in range(len(shape))]
    places = reshape_indices(index, [const(s) for s in shape], [const(s) for s in source])
    for point in itertools.product(*map(range, shape)):
        env = {f"i{d}": p for d, p in enumerate(point)}
        assert data[tuple(e.evaluate(env) for e in places)] == want[point]
