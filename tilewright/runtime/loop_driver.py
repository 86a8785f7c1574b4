"""Loops whose body is one native call and keeps the sizes of what it carries: their steps run without Python.

A carried value lives in two buffers that take turns: a step reads one and writes the other. An element of a scan is
read where it stands in its array, and written where it belongs. How the pointers move from step to step is a table for
the native function that drives the loop (:mod:`tilewright.codegen.native.loop_driver`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.runtime.resources.arena import nbytes
from tilewright.runtime.resources.arrays import address, aligned_array

LOOP_DRIVER_TYPE = ctypes.CFUNCTYPE(
    ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 2,
    ctypes.c_void_p,
)  # fmt: skip
_STEPS_A_CALL = 4096
"""After so many steps Python has a look, so that a loop can be interrupted."""
_FIRST_ROWS, _FIRST_BYTES = 64, 1 << 26
"""Room for scan outputs at first where the number of steps is not known before; it doubles when it is full."""

_TURNS, _WALKS = 1, -1
"""Masks of a move: between two buffers, along an array."""

Drive = Callable[[int, int, int, int | None, int, int], int]
"""``(moves, count, counter, go, start, stop)``: runs steps, gives the one it stopped before."""
Result = tuple[tuple[int, ...], np.dtype, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, slots=True)
class NativeBody:
    """A loop's body, ready for the sizes at hand. ``inputs``: positions of each input, captures behind, in the table of
    pointers. ``outputs``: shape, element type and positions of each output, with the bytes to add to its address."""

    pointers: memoryview
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[Result, ...]
    drive: Drive


class NativeLoop:
    """A native body with the buffers of a loop around it.

    The body's inputs are the states, an element of each scanned array, and captures; its outputs are the states, then a
    row of each scan output. In a ``conditional`` loop the number of the step comes before the states, and state 0 says
    whether there is a next step.
    """

    def __init__(self, body: NativeBody, states: int, scanned: int, conditional: bool) -> None:
        counter = np.zeros((), np.int64)
        first = 1 if conditional else 0
        self._counter_at = body.inputs[0] if conditional else ()
        self._states = [_two(shape, dtype) for shape, dtype, _ in body.outputs[:states]]
        self._rows = body.outputs[states:]
        self._captures = body.inputs[first + states + scanned :]
        moves: list[tuple[int, int, int, int]] = []
        for pair, read, (_, _, write) in zip(self._states, body.inputs[first:], body.outputs, strict=False):
            a, b = map(address, pair)
            moves += [*((p, a, b - a, _TURNS) for p in read), *((p, b + o, a - b, _TURNS) for p, o in write)]
        self._walks: list[list[tuple[int, int]]] = []
        elements = [[(p, 0) for p in read] for read in body.inputs[first + states : first + states + scanned]]
        for positions in (*elements, *(p for _, _, p in self._rows)):
            self._walks.append([(len(moves) + k, offset) for k, (_, offset) in enumerate(positions)])
            moves += [(p, 0, 0, _WALKS) for p, _ in positions]
        table = np.array(moves, np.int64).reshape(-1)
        self._pointers = body.pointers
        self._moves = memoryview(table)  # type: ignore[arg-type]  # arrays are buffers from Python 3.12 on
        self._conditional = conditional
        self._drive = body.drive
        self._fixed = address(table), len(moves), address(counter), address(self._states[0][0]) if conditional else None
        self._counter = counter

    def keeps(self, states: Sequence[object]) -> bool:
        """True if the states have the shapes and types that a step gives them."""
        return all(
            isinstance(v, np.ndarray) and v.shape == a.shape and v.dtype == a.dtype
            for v, (a, _) in zip(states, self._states, strict=True)
        )

    def run(
        self, steps: int | None, states: Sequence[object], scanned: Sequence[tuple[np.ndarray, int]],
        backwards: Sequence[int], captures: Sequence[object],
    ) -> list[np.ndarray]:  # fmt: skip
        """The last states and the scan outputs, with the steps along their first axis.

        ``steps``: at most so many; None where only the condition ends the loop. ``scanned``: arrays with the steps
        along their first axis, and whether (1) they are read from the end. ``backwards``: whether a scan output is
        written from the end.
        """
        for positions, value in ((self._counter_at, self._counter), *zip(self._captures, captures, strict=True)):
            for p in positions:
                self._pointers[p] = address(value)  # type: ignore[arg-type]
        for (buffer, _), value in zip(self._states, states, strict=True):
            buffer[...] = value
        for k, (array, reverse) in enumerate(scanned):
            self._walk(k, array, reverse)
        room = _FIRST_ROWS if steps is None else steps
        if self._conditional:
            step = sum(nbytes(shape, dtype.itemsize) for shape, dtype, _ in self._rows)
            room = min(room, _STEPS_A_CALL, max(1, _FIRST_BYTES // max(step, 1)))
        rows = [np.empty((room, *shape), dtype) for shape, dtype, _ in self._rows]
        self._enter(rows, len(scanned), backwards)
        done = 0
        while done != steps and self._goes_on(done):
            if done == room:
                room = 2 * room if steps is None else min(2 * room, steps)
                rows = [_extended(r, room) for r in rows]
                self._enter(rows, len(scanned), backwards)
            done = self._drive(*self._fixed, done, min(room, done + _STEPS_A_CALL))
        whole = (r if room == done else r[:done].copy() for r in rows)
        return [*(pair[done & 1].copy() for pair in self._states), *whole]

    def _goes_on(self, done: int) -> bool:
        return not self._conditional or bool(self._states[0][done & 1])

    def _enter(self, rows: Sequence[np.ndarray], first: int, backwards: Sequence[int]) -> None:
        for k, (array, reverse) in enumerate(zip(rows, backwards, strict=True)):
            self._walk(first + k, array, reverse)

    def _walk(self, k: int, array: np.ndarray, backwards: int) -> None:
        """Step ``i`` has row ``i`` of ``array``, or row ``i`` from the end."""
        start, length = address(array), len(array)
        row = array.nbytes // max(length, 1)
        if backwards:
            start, row = start + row * (length - 1), -row
        for at, offset in self._walks[k]:
            self._moves[4 * at + 1], self._moves[4 * at + 2] = start + offset, row


def _two(shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Two buffers; those of conditions are one behind the other, where the native driver looks for them."""
    if not shape:
        both = np.zeros(2, dtype)
        return both[:1].reshape(()), both[1:].reshape(())
    return aligned_array(shape, dtype), aligned_array(shape, dtype)


def _extended(array: np.ndarray, rows: int) -> np.ndarray:
    out = np.empty((rows, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out
