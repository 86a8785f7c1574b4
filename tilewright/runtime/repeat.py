"""Loops whose body is one native call and keeps the sizes of what it carries: their steps run without Python.

A carried value lives in two buffers that take turns: a step reads one and writes the other. An element of a scan is
read where it stands in its array, and written where it belongs. How the pointers move from step to step is a table for
the native function that drives the loop (:mod:`tilewright.codegen.repeat`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.runtime.arrays import address, aligned_array

REPEAT_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_int64, *[ctypes.c_void_p] * 2,
                               ctypes.c_int64, ctypes.c_int64)  # fmt: skip
_STEPS_A_CALL = 4096
"""After so many steps Python has a look, so that a loop can be interrupted."""
_FIRST_ROWS = 64
"""Room for scan outputs at first where the number of steps is not known before; it doubles when it is full."""

Drive = Callable[[int, int, int, int | None, int, int], int]
"""``(moves, count, counter, go, start, stop)``: runs steps, gives the one it stopped before."""


@dataclass(frozen=True, slots=True)
class NativeBody:
    """A loop's body, ready for the sizes at hand. ``inputs``: positions of each input, captures behind, in the table of
    pointers. ``outputs``: shape, element type and positions of each output."""

    pointers: memoryview
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype, tuple[int, ...]], ...]
    drive: Drive

    def keeps(self, carried: Sequence[object], first: int) -> bool:
        """True if the outputs from ``first`` on have the shapes and types of the ``carried`` values."""
        outputs = self.outputs[first : first + len(carried)]
        return all(
            isinstance(v, np.ndarray) and (v.shape, v.dtype) == (shape, dtype)
            for v, (shape, dtype, _) in zip(carried, outputs, strict=True)
        )


@dataclass(slots=True)
class _Moves:
    """The table for the native driver: position, base, stride, mask."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, positions: Sequence[int], base: int, stride: int, mask: int) -> None:
        self.rows.extend((p, base, stride, mask) for p in positions)

    def take_turns(self, read: Sequence[int], write: Sequence[int], first: np.ndarray, second: np.ndarray) -> None:
        """A step reads what the step before it wrote, beginning with ``first``."""
        a, b = address(first), address(second)
        self.add(read, a, b - a, 1)
        self.add(write, b, a - b, 1)

    def walk(self, positions: Sequence[int], array: np.ndarray, backwards: int = 0) -> None:
        """Step ``i`` has row ``i`` of ``array``, or row ``i`` from the end."""
        row = array[0].nbytes if len(array) else 0
        start = address(array) + (row * (len(array) - 1) if backwards and len(array) else 0)
        self.add(positions, start, -row if backwards else row, -1)

    def table(self) -> np.ndarray:
        return np.array(self.rows, np.int64).reshape(-1, 4)


def _two(value: object) -> tuple[np.ndarray, np.ndarray]:
    """Two buffers for a carried value, the first with its initial contents."""
    initial = np.asarray(value)
    first, second = aligned_array(initial.shape, initial.dtype), aligned_array(initial.shape, initial.dtype)
    first[...] = initial
    return first, second


def _point(body: NativeBody, first: int, values: Sequence[object]) -> None:
    """Enter the addresses of inputs that stay where they are."""
    for positions, value in zip(body.inputs[first : first + len(values)], values, strict=True):
        where = address(np.asarray(value)) if positions else 0
        for p in positions:
            body.pointers[p] = where


def repeat_loop(
    body: NativeBody, trips: int | None, go: bool, carried: Sequence[object], captures: Sequence[object]
) -> list[object]:
    """Outputs of ``Loop``: the carried values, then the scan outputs."""
    n = len(carried)
    counter, conditions = np.zeros((), np.int64), np.array([go, False])
    buffers = [_two(v) for v in carried]
    _point(body, 0, [counter])
    _point(body, 2 + n, captures)
    fixed = _Moves()
    fixed.take_turns(body.inputs[1], body.outputs[0][2], conditions[:1], conditions[1:])
    for k, pair in enumerate(buffers):
        fixed.take_turns(body.inputs[2 + k], body.outputs[1 + k][2], *pair)
    scans = body.outputs[1 + n :]
    room = _FIRST_ROWS if trips is None else min(trips, _STEPS_A_CALL)
    rows = [aligned_array((room, *shape), dtype) for shape, dtype, _ in scans]
    done, stop = 0, 0
    while done == stop and conditions[done & 1] and (trips is None or done < trips):
        if scans and done == room:
            room = 2 * room if trips is None else min(2 * room, trips)
            rows = [_extended(r, room) for r in rows]
        moves = _Moves(list(fixed.rows))
        for (_, _, positions), array in zip(scans, rows, strict=True):
            moves.walk(positions, array)
        stop = min(x for x in (trips, room if scans else None, done + _STEPS_A_CALL) if x is not None)
        table = moves.table()
        done = body.drive(address(table), len(table), address(counter), address(conditions), done, stop)
    return [*(pair[done & 1] for pair in buffers), *(r if len(r) == done else r[:done].copy() for r in rows)]


def _extended(array: np.ndarray, rows: int) -> np.ndarray:
    out = aligned_array((rows, *array.shape[1:]), array.dtype)
    out[: len(array)] = array
    return out


def repeat_scan(
    body: NativeBody, states: Sequence[object], scanned: Sequence[tuple[np.ndarray, int]], backwards: Sequence[int],
    captures: Sequence[object],
) -> list[np.ndarray]:  # fmt: skip
    """Outputs of ``Scan``: the states, then the scan outputs with the steps along their first axis.

    ``scanned``: arrays with the steps along their first axis, and whether (1) they are read from the end.
    ``backwards``: whether a scan output is written from the end.
    """
    n, length = len(states), len(scanned[0][0])
    counter = np.zeros((), np.int64)
    buffers = [_two(v) for v in states]
    _point(body, n + len(scanned), captures)
    moves = _Moves()
    for k, pair in enumerate(buffers):
        moves.take_turns(body.inputs[k], body.outputs[k][2], *pair)
    for k, (array, reverse) in enumerate(scanned):
        moves.walk(body.inputs[n + k], array, reverse)
    rows = [aligned_array((length, *shape), dtype) for shape, dtype, _ in body.outputs[n:]]
    for (_, _, positions), array, reverse in zip(body.outputs[n:], rows, backwards, strict=True):
        moves.walk(positions, array, reverse)
    table, done = moves.table(), 0
    while done < length:
        stop = min(done + _STEPS_A_CALL, length)
        done = body.drive(address(table), len(table), address(counter), None, done, stop)
    return [*(pair[length & 1] for pair in buffers), *rows]
