"""Reductions, softmax and its kin, TopK."""

from __future__ import annotations

import numpy as np

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule
from tilewright.graph_ir.ir import TensorType


def _reduce(call: Call, build: GraphBuilder) -> None:
    """Until 12 (ReduceSum) or 17: the axes were an attribute; none or an empty list meant all."""
    axes = call.ints_attr("axes")
    attrs = {k: v for k, v in call.attrs.items() if k != "axes"}
    build.emit_to(call.op, (call.input(0), build.ints(axes, "axes") if axes else ""), call.outputs, attrs)


def _keeping_dims(call: Call, build: GraphBuilder) -> None:
    """Axes that only the run knows: the dimensions are kept and squeezed afterwards, so that the rank stays known."""
    axes = call.input(1) if len(call.inputs) > 1 else ""
    known = axes and (build.constant_value(axes) is not None or build.fixed_size(axes, 0) == 0)
    if not axes or call.int_attr("keepdims", 1) or known:
        build.emit_to(call.op, call.inputs, call.outputs, call.attrs)
        return
    axes = axes if call.int_attr("noop_with_empty_axes", 0) else _all_if_empty(build, call.input(0), axes)
    kept = build.emit(call.op, (call.input(0), axes), "kept", **{**call.attrs, "keepdims": 1})
    build.emit_to("Squeeze", (kept, axes), call.outputs, {})


def _all_if_empty(build: GraphBuilder, x: str, axes: str) -> str:
    """The axes, or all of ``x`` where the run gives none: ``Concat(axes, Range(0, none ? rank : 0))``."""
    t, rank = build.type(axes), build.rank(x)
    if rank is None or (isinstance(t, TensorType) and t.shape is not None and (t.shape[0].value() or 0) > 0):
        return axes
    zero, one, every = (build.constant(np.array(i, np.int64), "number") for i in (0, 1, rank))
    is_empty = build.emit("Equal", (build.emit("Size", (axes,)), zero))
    rest = build.emit("Range", (zero, build.emit("Where", (is_empty, every, zero)), one))
    return build.emit("Concat", (axes, rest), "axes", axis=0)


def _coerced(call: Call, build: GraphBuilder) -> None:
    """Until 12: the input was made a matrix at ``axis`` (default 1), and the rows normalised."""
    axis = call.int_attr("axis", 1)
    x = call.input(0)
    if axis == -1 or build.rank(x) == axis + 1:
        build.emit_to(call.op, (x,), call.outputs, {"axis": -1})
        return
    flat = build.emit("Flatten", (x,), "flat", axis=axis)
    rows = build.emit(call.op, (flat,), "rows", axis=-1)
    shape = build.emit("Shape", (x,), "shape")
    t = build.type(x)
    has_elements = isinstance(t, TensorType) and t.shape is not None and all(d.value() for d in t.shape)
    build.emit_to("Reshape", (rows, shape), call.outputs, {} if has_elements else {"allowzero": 1})


def _top_k_attribute(call: Call, build: GraphBuilder) -> None:
    """Until 9: k was an attribute; always the largest, sorted."""
    k = build.ints((call.int_attr("k", 0),), "k")
    build.emit_to("TopK", (call.input(0), k), call.outputs, {a: v for a, v in call.attrs.items() if a != "k"})


_ALL_IF_EMPTY_MAKES = ("Equal", "Size", "Range", "Where", "Concat")
_SOFTMAX_MAKES = ("Flatten", "Shape", "Reshape")


def _softmax(op: str) -> tuple[Rule, ...]:
    return (Rule(1, 12, _coerced, (op, *_SOFTMAX_MAKES)),)


def _reduction(op: str, until: int = 17) -> tuple[Rule, ...]:
    newer = Rule(until + 1, None, _keeping_dims, (op, "Squeeze", *_ALL_IF_EMPTY_MAKES))
    return Rule(1, until, _reduce, (op,)), newer


RULES: Family = {
    "ReduceSum": _reduction("ReduceSum", 12),
    "ReduceL1": _reduction("ReduceL1"),
    "ReduceL2": _reduction("ReduceL2"),
    "ReduceLogSum": _reduction("ReduceLogSum"),
    "ReduceLogSumExp": _reduction("ReduceLogSumExp"),
    "ReduceMax": _reduction("ReduceMax"),
    "ReduceMean": _reduction("ReduceMean"),
    "ReduceMin": _reduction("ReduceMin"),
    "ReduceProd": _reduction("ReduceProd"),
    "ReduceSumSquare": _reduction("ReduceSumSquare"),
    "Softmax": _softmax("Softmax"),
    "LogSoftmax": _softmax("LogSoftmax"),
    "Hardmax": _softmax("Hardmax"),
    "TopK": (Rule(1, 9, _top_k_attribute, ("TopK",)),),
}
