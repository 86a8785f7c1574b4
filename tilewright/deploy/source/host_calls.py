"""Operators that are no kernels, in native form: which there are (``native/host_*.c``), and how they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.core.index_ranges import OutOfRange
from tilewright.core.plan import ControlStep, HostStep, Plan
from tilewright.deploy.source.c_text import quoted
from tilewright.deploy.source.formulas import Code, literal

FORMS: Mapping[tuple[str, str], str] = {}
"""(domain, operator) -> the C function."""


def missing(plan: Plan) -> Iterator[HostStep]:
    """The host steps of a plan and its bodies that have no native form."""
    for step in plan.steps:
        if isinstance(step, HostStep) and (step.domain, step.op) not in FORMS:
            yield step
        elif isinstance(step, ControlStep):
            for body in step.bodies:
                yield from missing(body)


def require_native(plan: Plan) -> None:
    """Raises UnsupportedError, with all of them, if there are host steps without a native form."""
    steps = list(missing(plan))
    if steps:
        lines = "".join(f"\n  node {s.node!r}: {s.op} ({s.reason})" for s in steps)
        raise UnsupportedError(f"{plan.name}: an artifact runs without Python, and these operators need it:{lines}")


def host_call(step: HostStep, inputs: Sequence[str], outputs: Sequence[str], ranges: OutOfRange, c: Code) -> None:
    """Append the call of a host step. ``inputs``, ``outputs``: C pointers to values; ``ranges``: what indices out of
    range lead to. Raises UnsupportedError for one without a native form."""
    form = FORMS.get((step.domain, step.op))
    if form is None:
        raise UnsupportedError(f"node {step.node!r}: {step.op} has no native form ({step.reason})")
    attributes = [_attribute(name, value, c) for name, value in step.attrs]
    fields = {
        "frame": "f", "node": quoted(step.node), "attributes": c.array("const tw_attribute", attributes or ["{0}"]),
        "attribute_count": len(attributes), "inputs": c.array("const tw_value *const", inputs),
        "input_count": len(inputs), "outputs": c.array("tw_value *const", outputs), "output_count": len(outputs),
        "clamps": int(ranges == "clamp"),
    }  # fmt: skip
    text = ", ".join(f".{k} = {v}" for k, v in fields.items())
    c.add(f"const tw_call call = {{{text}}};", f"TRY({form}(&call));")


def _attribute(name: str, value: object, c: Code) -> str:
    """A ``tw_attribute``."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return f"{{{quoted(name)}, NULL, NULL, {quoted(value)}, 1}}"
    if isinstance(value, bool | int | float | Sequence | np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            numbers = [literal(int(x)) for x in array.reshape(-1)]
            return f"{{{quoted(name)}, {c.array('static const int64_t', numbers)}, NULL, NULL, {len(numbers)}}}"
        if array.dtype.kind == "f":
            reals = [_real(float(x)) for x in array.reshape(-1)]
            return f"{{{quoted(name)}, NULL, {c.array('static const double', reals)}, NULL, {len(reals)}}}"
    raise UnsupportedError(f"attribute {name!r}: a {type(value).__name__} is no part of an artifact")


def _real(value: float) -> str:
    if value != value:
        return "(0.0 / 0.0)"
    if value in (float("inf"), float("-inf")):
        return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
    return value.hex()
