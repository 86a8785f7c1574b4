"""Elementwise operators: Clip's bounds, the explicit broadcasting of opset 6, casts by name."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule
from tilewright.graph_ir.ir import TensorType


def _clip_attributes(call: Call, build: GraphBuilder) -> None:
    """Until 10: the bounds were attributes."""
    x = call.input(0)
    bounds = [build.scalar_like(call.float_attr(k, 0.0), x, k) if k in call.attrs else "" for k in ("min", "max")]
    build.emit_to("Clip", (x, *bounds), call.outputs, {})


def _explicit_broadcast(call: Call, build: GraphBuilder) -> None:
    """Until 6: the second operand was broadcast only on demand, from ``axis`` on."""
    a, b = call.input(0), call.input(1)
    axis = call.attrs.get("axis")
    if call.int_attr("broadcast", 0) and axis is not None:
        rank_a, rank_b = build.rank(a), build.rank(b)
        if rank_a is None or rank_b is None:
            raise UnsupportedError(f"node '{call.name}' ({call.op} {call.version}): broadcast at an axis with "
                                   "operands of unknown rank")  # fmt: skip
        start = call.int_attr("axis", 0)
        start += rank_a if start < 0 else 0
        trailing = rank_a - start - rank_b
        if start < 0 or trailing < 0:
            call.error(f"axis in 0..{rank_a - rank_b}", axis)
        if trailing:
            b = build.emit("Unsqueeze", (b, build.ints(range(rank_b, rank_b + trailing), "axes")), "aligned")
    build.emit_to(call.op, (a, b), call.outputs, {})


def _prelu_channels(call: Call, build: GraphBuilder) -> None:
    """Until 6: a slope of rank 1 had an element a channel (axis 1)."""
    x, slope = call.input(0), call.input(1)
    rank, slopes = build.rank(x), build.type(slope)
    if not isinstance(slopes, TensorType) or slopes.shape is None or rank is None:
        raise UnsupportedError(f"node '{call.name}' (PRelu {call.version}): operands of unknown rank")
    if len(slopes.shape) == 1 and slopes.shape[0] != 1 and rank > 2:
        slope = build.emit("Unsqueeze", (slope, build.ints(range(1, rank - 1), "axes")), "slopes")
    build.emit_to("PRelu", (x, slope), call.outputs, {})


def _gemm_broadcast(call: Call, build: GraphBuilder) -> None:
    """Until 6: C was broadcast on demand; now always."""
    build.emit_to("Gemm", call.inputs, call.outputs, {k: v for k, v in call.attrs.items() if k != "broadcast"})


def _cast_by_name(call: Call, build: GraphBuilder) -> None:
    """Until 5: the element type was given by name."""
    name = call.str_attr("to", "").lower()
    to = {"float": "float32", "double": "float64"}.get(name, name)
    build.emit_to("Cast", call.inputs, call.outputs, {"to": dtypes.from_name(to)})


def _drop_consumed(call: Call, build: GraphBuilder) -> None:
    """Until 5: ``consumed_inputs`` was a hint for in-place execution."""
    attrs = {k: v for k, v in call.attrs.items() if k != "consumed_inputs"}
    build.emit_to(call.op, call.inputs, call.outputs, attrs)


def _broadcasting(op: str) -> tuple[Rule, ...]:
    return (Rule(1, 6, _explicit_broadcast, (op, "Unsqueeze")),)


def _consuming(op: str) -> tuple[Rule, ...]:
    return (Rule(1, 5, _drop_consumed, (op,)),)


RULES: Family = {
    "Clip": (Rule(1, 10, _clip_attributes, ("Clip",)),),
    "Add": _broadcasting("Add"),
    "Sub": _broadcasting("Sub"),
    "Mul": _broadcasting("Mul"),
    "Div": _broadcasting("Div"),
    "Pow": _broadcasting("Pow"),
    "And": _broadcasting("And"),
    "Or": _broadcasting("Or"),
    "Xor": _broadcasting("Xor"),
    "Equal": _broadcasting("Equal"),
    "Greater": _broadcasting("Greater"),
    "Less": _broadcasting("Less"),
    "PRelu": (Rule(1, 6, _prelu_channels, ("PRelu", "Unsqueeze")),),
    "Gemm": (Rule(1, 6, _gemm_broadcast, ("Gemm",)),),
    "Cast": (Rule(1, 5, _cast_by_name, ("Cast",)),),
    "Abs": _consuming("Abs"),
    "Ceil": _consuming("Ceil"),
    "Elu": _consuming("Elu"),
    "Exp": _consuming("Exp"),
    "Floor": _consuming("Floor"),
    "HardSigmoid": _consuming("HardSigmoid"),
    "LeakyRelu": _consuming("LeakyRelu"),
    "Log": _consuming("Log"),
    "Max": _consuming("Max"),
    "Mean": _consuming("Mean"),
    "Min": _consuming("Min"),
    "Neg": _consuming("Neg"),
    "Reciprocal": _consuming("Reciprocal"),
    "Relu": _consuming("Relu"),
    "Selu": _consuming("Selu"),
    "Sigmoid": _consuming("Sigmoid"),
    "Sqrt": _consuming("Sqrt"),
    "Sum": _consuming("Sum"),
    "Tanh": _consuming("Tanh"),
}
