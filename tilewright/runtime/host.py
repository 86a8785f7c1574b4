"""Host steps: operators that run in Python on the host (sequences, strings, data-dependent shapes), by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import numpy as np

from tilewright.core.errors import TilewrightError
from tilewright.core.plan import HostStep


class HostStepError(TilewrightError):
    """A host operator failed on the values it was given; the message names the node."""


def run_host_step(step: HostStep, inputs: Sequence[object]) -> list[object]:
    """The outputs of a host step, by its reference definition. The operator library is loaded at the first use."""
    reference = importlib.import_module("tilewright.reference")
    try:
        outputs = reference.evaluate(step.op, step.domain, dict(step.attrs), list(inputs), len(step.outputs))
    except (ValueError, TypeError, IndexError, KeyError, RuntimeError) as e:
        raise HostStepError(f"node {step.node!r} ({step.op}): {e}") from e
    return [_kept(o) for o in outputs]


def _kept(value: object) -> object:
    """A result that stays valid: contiguous, and not a view of memory that a later step or run may overwrite."""
    if isinstance(value, list):
        return [_kept(v) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    return np.ascontiguousarray(value).reshape(value.shape) if value.flags.owndata else value.copy()
