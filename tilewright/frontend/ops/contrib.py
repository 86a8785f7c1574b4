"""Operators of the ``com.microsoft`` domain that are spellings of standard ones."""

from __future__ import annotations

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule


def _gelu(call: Call, build: GraphBuilder) -> None:
    build.emit_to("Gelu", (call.input(0),), call.outputs, {"approximate": "none"})


def _bias_gelu(call: Call, build: GraphBuilder) -> None:
    """Gelu of input plus bias; FastGelu is the tanh form with an optional bias."""
    x = call.input(0)
    if call.input(1):
        x = build.emit("Add", (x, call.input(1)), "biased")
    build.emit_to("Gelu", (x,), call.outputs, {"approximate": "tanh" if call.op == "FastGelu" else "none"})


def _quick_gelu(call: Call, build: GraphBuilder) -> None:
    """x * sigmoid(alpha * x)."""
    x = call.input(0)
    scaled = build.emit("Mul", (x, build.scalar_like(call.float_attr("alpha", 1.702), x, "alpha")), "scaled")
    build.emit_to("Mul", (x, build.emit("Sigmoid", (scaled,))), call.outputs, {})


RULES: Family = {
    "Gelu": (Rule(1, None, _gelu, ("Gelu",)),),
    "BiasGelu": (Rule(1, None, _bias_gelu, ("Gelu", "Add")),),
    "FastGelu": (Rule(1, None, _bias_gelu, ("Gelu", "Add")),),
    "QuickGelu": (Rule(1, None, _quick_gelu, ("Mul", "Sigmoid")),),
}
