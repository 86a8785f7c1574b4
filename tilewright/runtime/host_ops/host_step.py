"""Host steps: operators that run in Python on the host (sequences, strings, data-dependent shapes), by name.

What a host step means is in the reference room. Where its definition is slow, there is another here in :data:`QUICK`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core.errors import OneLineError
from tilewright.core.index_ranges import OutOfRange, checked_operands
from tilewright.core.plan import SIZES_DOMAIN, HostStep
from tilewright.runtime.host_ops.non_max_suppression import non_max_suppression
from tilewright.runtime.host_ops.top_k import top_k

_REFUSALS = (
    ValueError, TypeError, LookupError, RuntimeError, AttributeError, ArithmeticError,
    OSError, EOFError, SyntaxError,  # Pillow's, for bytes that are no image or not all of one
)  # fmt: skip


class HostStepError(OneLineError):
    """A host operator failed on the values it was given; the message names the node."""


def _shape(attrs: Mapping[str, Any], inputs: Sequence[object]) -> list[object]:
    start, end = attrs.get("start", 0), attrs.get("end")
    return [np.array(np.asarray(inputs[0]).shape[start:end], np.int64)]


def _size(_: Mapping[str, Any], inputs: Sequence[object]) -> list[object]:
    return [np.array(np.asarray(inputs[0]).size, np.int64)]


def _non_zero(_: Mapping[str, Any], inputs: Sequence[object]) -> list[object]:
    x = np.asarray(inputs[0])
    return [np.array(np.nonzero(np.atleast_1d(x)), np.int64)[: x.ndim]]  # of a scalar, places have no coordinate


def _compress(attrs: Mapping[str, Any], inputs: Sequence[object]) -> list[object]:
    x, condition = (np.asarray(i) for i in inputs)
    axis = attrs.get("axis")
    size = x.size if axis is None else x.shape[axis]
    return [np.compress(condition[:size], x, axis)]


QUICK: Mapping[str, Callable[[Mapping[str, Any], Sequence[object]], list[object]]] = {
    "Compress": _compress, "NonMaxSuppression": non_max_suppression, "NonZero": _non_zero, "Shape": _shape,
    "Size": _size, "TopK": top_k,
}  # fmt: skip


def run_host_step(step: HostStep, inputs: Sequence[object], out_of_range: OutOfRange = "error") -> list[object]:
    """The outputs of a host step. The reference room and its operator library are loaded when first needed.

    Raises InputError for indices outside their range, unless they are to be clamped.
    """
    where = f"node {step.node!r} ({step.op})"
    domain = "" if step.domain == SIZES_DOMAIN else step.domain
    quick = QUICK.get(step.op) if not step.domain else None
    try:
        inputs = checked_operands(where, out_of_range, step.op, domain, dict(step.attrs), inputs)
        if quick is not None:
            return quick(dict(step.attrs), inputs)
        reference = importlib.import_module("tilewright.reference")
        attrs, count = dict(step.attrs), len(step.outputs)
        outputs = reference.evaluate(step.op, step.domain, attrs, list(inputs), count, step.definition)
    except _REFUSALS as e:
        raise HostStepError(f"{where}: {e}") from e
    return [_kept(o) for o in outputs]


def _kept(value: object) -> object:
    """A result that stays valid: contiguous, and not a view of memory that a later step or run may overwrite."""
    if isinstance(value, list):
        return [_kept(v) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    return np.ascontiguousarray(value).reshape(value.shape) if value.flags.owndata else value.copy()
