"""Operators that are no kernels, in native form: which there are (``native/host_*.c``), and how they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import UnsupportedError
from tilewright.core.plan import SIZES_DOMAIN, ControlStep, HostStep, Plan
from tilewright.deploy.source.c_text import quoted
from tilewright.deploy.source.formulas import Code, literal

_SIZES = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), "window"),
    **{f"Reduce{name}": "reduced_sizes" for name in ("L1", "L2", "LogSum", "LogSumExp", "SumSquare")},
}
"""Forms that give the sizes of results alone, where they are not called as the operator is."""
_SIZED = ("AffineGrid", "CenterCropPad", "Resize", *_SIZES)
_BOTH = (
    "ConstantOfShape", "Expand", "OneHot", "Pad", "Range", "Reshape", "Slice", "Squeeze", "Tile", "Unsqueeze",
    "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
)  # fmt: skip
_MOVES = (
    "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape", "Expand", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "OptionalGetElement", "OptionalHasElement", "Pad", "Reshape",
    "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "Shape",
    "Size", "Slice", "Split", "SplitToSequence", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where",
)  # fmt: skip
"""Operators with a form that takes elements of any type but strings."""
_COMPUTED = (
    "Abs", "Add", "And", "Cast", "CastLike", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater",
    "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "NonMaxSuppression", "NonZero",
    "Not", "OneHot", "Or", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "Round", "Sign", "Sqrt", "Sub", "TopK", "Unique",
)  # fmt: skip
"""Those with a form that reads numbers."""


_NUMBERS = frozenset(t for t in dtypes.ALL if t.kind in "iufb" and t.bits >= 8 and not t.name.startswith("float8"))


def _function(op: str) -> str:
    return f"tw_host_{re.sub('(?<=[a-z])(?=[A-Z])', '_', op).lower()}"


_NOT_READ = ("begin",)
"""Attributes that say where a kernel would begin."""
FORMS: Mapping[tuple[str, str], str] = {
    **{("", op): _function(op) for op in (*_MOVES, *_COMPUTED)},
    ("", "Optional"): _function("Identity"),
    **{(SIZES_DOMAIN, op): _function(_SIZES.get(op, op)) for op in (*_SIZED, *_BOTH)},
}
"""(domain, operator) -> the C function."""


def native_form(step: HostStep, plan: Plan) -> str | None:
    """The C function of a host step; None if there is none, or none for its element types."""
    types = {plan.slots[n].dtype for n in (*step.inputs, *step.outputs) if n} - {dtypes.object_}
    if dtypes.string in types or any(_is_strings(v) for _, v in _attributes(step)):
        return None
    if not step.domain and step.op in _COMPUTED and not types <= _NUMBERS:
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
    attributes = [_attribute(name, value, c) for name, value in _attributes(step)]
    fields = {
        "frame": "f", "where": quoted(f"node {step.node!r} ({step.op})"),
        "attributes": c.array("const tw_attribute", attributes or ["{0}"]),
        "attribute_count": len(attributes), "inputs": c.array("const tw_value *const", inputs),
        "input_count": len(inputs), "outputs": c.array("tw_value *const", outputs), "output_count": len(outputs),
        "clamps": int(plan.out_of_range == "clamp"), "sizes": int(step.domain == SIZES_DOMAIN),
    }  # fmt: skip
    text = ", ".join(f".{k} = {v}" for k, v in fields.items())
    c.add(f"const tw_call call = {{{text}}};", f"TRY({form}(&call));")


def _attributes(step: HostStep) -> list[tuple[str, object]]:
    return [(name, value) for name, value in step.attrs if value is not None and name not in _NOT_READ]


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
