"""The native driver of loops: where the pointers of each step are, and when it stops."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.native.loop_driver import loop_driver_text
from tilewright.runtime.loop_driver import LOOP_DRIVER_TYPE

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Driven:
    """A loop whose entry writes down what it is called with; its condition becomes false after step ``last``, and step
    ``failing`` gives 3."""

    def __init__(self, last: int | None, failing: int | None = None) -> None:
        host = detect_host()
        self._library = Library([compile_object(loop_driver_text("again", host), host)], ["again"])
        self.moves = np.array([[2, 1000, 16, 1], [0, 5000, -4, -1]], np.int64)
        self.table, self.dims = np.zeros(3, np.int64), np.zeros(1, np.int64)
        self.counter, self.conditions = np.zeros((), np.int64), np.array([True, True])
        self.last, self.failing = last, failing
        self.status = np.zeros((), np.int64)
        self.seen: list[tuple[int, list[int]]] = []
        self._entry = ENTRY(self._step)

    def _step(self, table: int, dims: int, pool: int | None, times: int | None) -> int:
        assert (table, dims, pool, times) == (self.table.ctypes.data, self.dims.ctypes.data, None, None)
        i = int(self.counter)
        self.seen.append((i, self.table.tolist()))
        self.conditions[(i + 1) & 1] = i != self.last
        return 3 if i == self.failing else 0

    def run(self, start: int, stop: int) -> int:
        entry = ctypes.cast(self._entry, ctypes.c_void_p)
        places = [a.ctypes.data for a in (self.table, self.dims)]
        go = None if self.last is None else self.conditions.ctypes.data
        again = LOOP_DRIVER_TYPE(self._library.addresses["again"])
        done = again(
            entry, *places, None, self.moves.ctypes.data, len(self.moves), self.counter.ctypes.data, go, start, stop,
            self.status.ctypes.data,
        )  # fmt: skip
        return int(done)


def test_pointers_take_turns_and_walk() -> None:
    driven = Driven(None)
    assert driven.run(0, 3) == 3
    assert driven.run(3, 5) == 5
    expected = [(i, [5000 - 4 * i, 0, 1000 + 16 * (i % 2)]) for i in range(5)]
    assert driven.seen == expected


@pytest.mark.parametrize(("last", "stop", "done"), [(0, 9, 1), (3, 9, 4), (3, 4, 4), (3, 2, 2), (3, 0, 0)])
def test_a_condition_ends_the_loop(last: int, stop: int, done: int) -> None:
    driven = Driven(last)
    assert driven.run(0, stop) == done
    assert len(driven.seen) == done


def test_a_condition_that_is_false_at_first() -> None:
    driven = Driven(5)
    driven.conditions[0] = False
    assert driven.run(0, 9) == 0
    assert not driven.seen


@pytest.mark.parametrize("last", [None, 8])
def test_a_step_that_fails_is_the_last(last: int | None) -> None:
    driven = Driven(last, failing=2)
    assert driven.run(0, 9) == 2
    assert len(driven.seen) == 3
    assert driven.status == 3


@pytest.mark.parametrize("target", ["llvm -mcpu=znver4", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"])
def test_other_targets(target: str) -> None:
    assert compile_object(loop_driver_text("again", parse_target(target)), parse_target(target))
