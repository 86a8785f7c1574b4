"""``If``, ``Loop`` and ``Scan`` around compiled bodies. Semantics: the ONNX operator specification.

Loops whose body is one native call run natively (:mod:`tilewright.runtime.loop_driver`), others step by step here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.core.errors import InputError, InternalError
from tilewright.core.plan import ControlStep
from tilewright.runtime.loop_driver import NativeLoop


class Body(Protocol):
    """The executor of a body."""

    def run(self, inputs: Sequence[object], /) -> list[object]: ...
    def native_loop(
        self, inputs: Sequence[object], states: int, scanned: int, conditional: bool
    ) -> NativeLoop | None: ...


def run_control_step(
    step: ControlStep, inputs: Sequence[object], captures: Sequence[Sequence[object]], bodies: Sequence[Body]
) -> list[object]:
    """The outputs of a control step. ``captures[k]`` are the outer values that body ``k`` reads."""
    if step.op == "If":
        k = 0 if bool(_single(step, "condition", inputs[0])) else 1
        return _own(bodies[k].run(captures[k]))
    if step.op == "Loop":
        return _run_loop(step, inputs, captures[0], bodies[0])
    if step.op == "Scan":
        return _run_scan(step, inputs, captures[0], bodies[0])
    raise InternalError(f"unknown control step {step.op}")


def _own(values: Sequence[object]) -> list[object]:
    """Copies of values that live in a body's arena, which the next run of the body overwrites."""
    return [v.copy() if isinstance(v, np.ndarray) and not v.flags.owndata else v for v in values]


def _single(step: ControlStep, what: str, value: object) -> Any:
    """The one element of a condition or a count. Raises InputError if there is none or more."""
    array = np.asarray(value)
    if array.size != 1:
        raise InputError(f"node {step.node!r} ({step.op}): expected a {what} of one element, got {list(array.shape)}")
    return array.reshape(-1)[0]


def _run_loop(step: ControlStep, inputs: Sequence[object], captures: Sequence[object], body: Body) -> list[object]:
    trips = None if inputs[0] is None else int(_single(step, "trip count", inputs[0]))
    go = True if inputs[1] is None else bool(_single(step, "condition", inputs[1]))
    carried = list(inputs[2:])
    n = len(carried)
    states = [np.array(go), *carried]
    loop = body.native_loop([np.array(0, np.int64), *states, *captures], len(states), 0, True)
    if loop is not None and loop.keeps(states):
        most = None if trips is None else max(trips, 0)
        return list(loop.run(most, states, (), (0,) * (len(step.outputs) - n), captures)[1:])
    scans: list[list[object]] = [[] for _ in range(len(step.outputs) - n)]
    i = 0
    while go and (trips is None or i < trips):
        out = _own(body.run([np.array(i, np.int64), np.array(go), *carried, *captures]))
        go = bool(_single(step, "condition", out[0]))
        carried = out[1 : 1 + n]
        for acc, value in zip(scans, out[1 + n :], strict=True):
            acc.append(value)
        i += 1
    return [*carried, *(_stack(step, k, acc, 0, False) for k, acc in enumerate(scans))]


def _run_scan(step: ControlStep, inputs: Sequence[object], captures: Sequence[object], body: Body) -> list[object]:
    attrs = dict(step.attrs)
    n_scan = int(attrs["num_scan_inputs"])
    n_state = len(inputs) - n_scan
    state, xs = list(inputs[:n_state]), [np.asarray(x) for x in inputs[n_state:]]
    n_out = len(step.outputs) - n_state
    in_axes = attrs.get("scan_input_axes") or (0,) * n_scan
    in_dirs = attrs.get("scan_input_directions") or (0,) * n_scan
    out_axes = attrs.get("scan_output_axes") or (0,) * n_out
    out_dirs = attrs.get("scan_output_directions") or (0,) * n_out
    length = xs[0].shape[in_axes[0]]
    if length:
        moved = [np.ascontiguousarray(np.moveaxis(x, a, 0)) for x, a in zip(xs, in_axes, strict=True)]
        loop = body.native_loop([*state, *(x[0] for x in moved), *captures], n_state, n_scan, False)
        if loop is not None and loop.keeps(state):
            done = loop.run(length, state, list(zip(moved, in_dirs, strict=True)), out_dirs, captures)
            rows = zip(done[n_state:], out_axes, strict=True)
            return [*done[:n_state], *(np.ascontiguousarray(np.moveaxis(r, 0, a)) for r, a in rows)]
    scans: list[list[object]] = [[] for _ in range(n_out)]
    for t in range(length):
        slices = [
            np.asarray(np.take(x, length - 1 - t if d else t, axis=a), order="C")
            for x, a, d in zip(xs, in_axes, in_dirs, strict=True)
        ]
        out = _own(body.run([*state, *slices, *captures]))
        state = out[:n_state]
        for acc, value in zip(scans, out[n_state:], strict=True):
            acc.append(value)
    return [*state, *(_stack(step, k, acc, out_axes[k], bool(out_dirs[k])) for k, acc in enumerate(scans))]


def _stack(step: ControlStep, k: int, values: list[object], axis: int, backwards: bool) -> object:
    if not values:
        dtypes, shapes = dict(step.attrs)["scan_output_dtypes"], dict(step.attrs)["scan_output_shapes"]
        shape = list(shapes[k])
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, 0)
        return np.empty(shape, dtypes[k])
    return np.ascontiguousarray(np.stack([np.asarray(v) for v in (values[::-1] if backwards else values)], axis=axis))
