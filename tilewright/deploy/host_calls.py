"""Operators that are no kernels, in native form: which there are (``native/host_*.c``), and how they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import UnsupportedError
from tilewright.core.plan import SIZES_DOMAIN, ControlStep, HostStep, Plan
from tilewright.deploy.c_text import quoted
from tilewright.deploy.formulas import Code, literal

_BOTH = {
    "ConstantOfShape": "constant_of_shape", "Expand": "expand", "OneHot": "one_hot", "Pad": "pad", "Range": "range",
    "Reshape": "reshape", "Slice": "slice", "Squeeze": "squeeze", "Tile": "tile", "Unsqueeze": "unsqueeze",
    **{f"Reduce{name}": f"reduce_{name.lower()}" for name in ("Max", "Mean", "Min", "Prod", "Sum")},
}  # fmt: skip
"""Operators of which a form gives the results, and their sizes where those are asked for."""
_SIZES = {
    "AffineGrid": "affine_grid", "BlackmanWindow": "window", "CenterCropPad": "center_crop_pad",
    "HammingWindow": "window", "HannWindow": "window", "Resize": "resize",
    **{f"Reduce{name}": "reduced_sizes" for name in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}  # fmt: skip
_RESULTS = {
    "Concat": "concat", "Flatten": "flatten", "Identity": "identity", "Shape": "shape", "Size": "size",
    "Split": "split", "Transpose": "transpose",
    "Compress": "compress", "Gather": "gather", "GatherElements": "gather_elements", "GatherND": "gather_nd",
    "NonMaxSuppression": "non_max_suppression", "NonZero": "non_zero", "TopK": "top_k", "Unique": "unique",
    "ConcatFromSequence": "concat_from_sequence", "SequenceAt": "sequence_at",
    "SequenceConstruct": "sequence_construct", "SequenceEmpty": "sequence_empty", "SequenceErase": "sequence_erase",
    "SequenceInsert": "sequence_insert", "SequenceLength": "sequence_length", "SplitToSequence": "split_to_sequence",
    "Optional": "identity", "OptionalGetElement": "optional_get_element",
    "OptionalHasElement": "optional_has_element",
}  # fmt: skip
FORMS: Mapping[tuple[str, str], str] = {
    **{(SIZES_DOMAIN, op): f"tw_host_{name}" for op, name in (_BOTH | _SIZES).items()},
    **{("", op): f"tw_host_{name}" for op, name in (_BOTH | _RESULTS).items()},
}
"""(domain, operator) -> the C function."""


def native_form(step: HostStep, plan: Plan) -> str | None:
    """The C function of a host step; None if there is none, or one for numbers alone and the step has strings."""
    names = [n for n in (*step.inputs, *step.outputs) if n]
    attributes = () if step.domain == SIZES_DOMAIN else step.attrs
    if any(plan.slots[n].dtype == dtypes.string for n in names) or any(_is_strings(v) for _, v in attributes):
        return None
    return FORMS.get((step.domain, step.op))


def missing(plan: Plan) -> Iterator[HostStep]:
    """The host steps of a plan and its bodies that have no native form."""
    for step in plan.steps:
        if isinstance(step, HostStep) and native_form(step, plan) is None:
            yield step
        elif isinstance(step, ControlStep):
            for body in step.bodies:
                yield from missing(body)


def require_native(plan: Plan) -> None:
    """Raises UnsupportedError, with all of them, if there are host steps without a native form, or inputs or outputs
    that are no tensors of numbers."""
    for what, names in (("input", plan.inputs), ("output", plan.outputs)):
        for n in names:
            if plan.slots[n].dtype.kind == "s":
                kind = "strings" if plan.slots[n].dtype == dtypes.string else "a sequence or an optional"
                raise UnsupportedError(f"{plan.name}: an artifact has tensors of numbers, {what} {n!r} is {kind}")
    steps = list(missing(plan))
    if steps:
        lines = "".join(f"\n  node {s.node!r}: {s.op} ({s.reason})" for s in steps)
        raise UnsupportedError(f"{plan.name}: an artifact runs without Python, and these operators need it:{lines}")


def host_call(step: HostStep, plan: Plan, inputs: Sequence[str], outputs: Sequence[str], c: Code) -> None:
    """Append the call of a host step of ``plan``. ``inputs``, ``outputs``: C pointers to values. Raises
    UnsupportedError for one without a native form."""
    form = native_form(step, plan)
    if form is None:
        raise UnsupportedError(f"node {step.node!r}: {step.op} has no native form ({step.reason})")
    attributes = [_attribute(name, value, c) for name, value in step.attrs if value is not None and not _is_strings(value)]
    fields = {
        "frame": "f", "where": quoted(f"node {step.node!r} ({step.op})"),
        "attributes": c.array("const tw_attribute", attributes or ["{0}"]),
        "attribute_count": len(attributes), "inputs": c.array("const tw_value *const", inputs),
        "input_count": len(inputs), "outputs": c.array("tw_value *const", outputs), "output_count": len(outputs),
        "clamps": int(plan.out_of_range == "clamp"), "sizes": int(step.domain == SIZES_DOMAIN),
    }  # fmt: skip
    text = ", ".join(f".{k} = {v}" for k, v in fields.items())
    c.add(f"const tw_call call = {{{text}}};", f"TRY({form}(&call));")


def _is_strings(value: object) -> bool:
    return isinstance(value, tuple | list) and any(isinstance(v, str | bytes) for v in value)


def _attribute(name: str, value: object, c: Code) -> str:
    """A ``tw_attribute``."""
    if isinstance(value, bytes):
        value = value.decode()
    if isinstance(value, str):
        return f"{{{quoted(name)}, NULL, NULL, {quoted(value)}, 1, 0}}"
    if isinstance(value, DType):
        value = value.onnx
    if isinstance(value, bool | int | float | Sequence | np.ndarray | np.generic):
        array = np.asarray(value)
        dtype = dtypes.from_numpy(array.dtype) if isinstance(value, np.ndarray) else None
        ends = f"NULL, {array.size}, {0 if dtype is None else dtype.onnx}}}"
        if array.dtype.kind in "iub" or (dtype is not None and dtype.kind in "iu"):
            numbers = [literal(int(x)) for x in array.reshape(-1)]
            return f"{{{quoted(name)}, {c.array('static const int64_t', numbers)}, NULL, {ends}"
        if array.dtype.kind == "f" or (dtype is not None and dtype.kind == "f"):
            reals = [_real(float(x)) for x in array.reshape(-1)]
            return f"{{{quoted(name)}, NULL, {c.array('static const double', reals)}, {ends}"
    raise UnsupportedError(f"attribute {name!r}: a {type(value).__name__} is no part of an artifact")


def _real(value: float) -> str:
    if value != value:
        return "(0.0 / 0.0)"
    if value in (float("inf"), float("-inf")):
        return "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
    return value.hex()
