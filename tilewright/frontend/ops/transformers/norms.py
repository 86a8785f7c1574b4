"""Norms without a mean, as onnxruntime calls them: SimplifiedLayerNormalization and its sum with a skip connection.

onnxruntime puts the first also in ONNX's domain, which has it as RMSNormalization since opset 23.
"""

from __future__ import annotations

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib

_SKIP_EPSILON = 1e-12


def _require_inference(call: Call) -> None:
    """The saved statistics are for training."""
    for k in (1, 2):
        if call.output(k):
            raise call.unsupported(f"output {k} (saved for training) is not supported")


def _simplified(call: Call, build: GraphBuilder) -> None:
    """x / sqrt(mean(x * x) + epsilon) * scale over the axes from ``axis`` on."""
    _require_inference(call)
    attrs = {"axis": call.int_attr("axis", -1), "epsilon": call.float_attr("epsilon", 1e-5)}
    build.emit_to("RMSNormalization", (call.input(0), call.input(1)), call.outputs[:1], attrs)


def _skip_simplified(call: Call, build: GraphBuilder) -> None:
    """The same of input + skip + bias along the last axis; the sum is output 3."""
    _require_inference(call)
    x, skip, gamma, bias = (call.input(i) for i in range(4))
    if bias:
        x = build.emit("Add", (x, bias), "biased")
    total = call.output(3) or build.name("sum")
    build.emit_to("Add", (x, skip), (total,), {})
    if call.output(0):
        attrs = {"axis": -1, "epsilon": call.float_attr("epsilon", _SKIP_EPSILON)}
        build.emit_to("RMSNormalization", (total, gamma), call.outputs[:1], attrs)


RULES: Family = {
    "SimplifiedLayerNormalization": contrib((0, 1), _simplified, ("RMSNormalization",)),
    "SkipSimplifiedLayerNormalization": contrib((0, 1, 2), _skip_simplified, ("RMSNormalization", "Add")),
}
STANDARD: Family = {"SimplifiedLayerNormalization": RULES["SimplifiedLayerNormalization"]}
