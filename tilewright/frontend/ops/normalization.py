"""Normalisations, Dropout."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule, rename
from tilewright.graph_ir.ir import Constant


def _batch_norm(call: Call, build: GraphBuilder) -> None:
    """Until 13: extra outputs meant training; ``spatial = 0`` (until 8) meant statistics per element."""
    if any(call.outputs[1:]) or (call.version < 7 and not call.int_attr("is_test", 0)):
        raise UnsupportedError(
            f"node '{call.name}' (BatchNormalization {call.version}): training mode is not supported"
        )
    eps = call.float_attr("epsilon", 1e-5)
    if call.int_attr("spatial", 1):
        build.emit_to("BatchNormalization", call.inputs, call.outputs[:1], {"epsilon": eps})
        return
    x, scale, bias, mean, var = (call.input(i) for i in range(5))
    deviation = build.emit("Sqrt", (build.emit("Add", (var, build.scalar_like(eps, var, "epsilon"))),))
    normal = build.emit("Div", (build.emit("Sub", (x, mean)), deviation))
    build.emit_to("Add", (build.emit("Mul", (normal, scale)), bias), call.outputs[:1], {})


def _dropout(call: Call, build: GraphBuilder) -> None:
    """In inference (always until 11, by default since) Dropout hands its input on; the mask is all true."""
    if not _is_inference(call, build):
        build.emit_to("Dropout", call.inputs, call.outputs, call.attrs)
        return
    build.emit_to("Identity", (call.input(0),), call.outputs[:1], {})
    if call.output(1):
        shape = build.emit("Shape", (call.input(0),), "mask_shape")
        dtype = build.dtype(call.input(0)) if call.version < 10 else dtypes.bool_  # it had the type of the data
        true = {"value": Constant(np.ones(1, (dtype or dtypes.bool_).numpy))}
        if dtype is not None:
            build.emit_to("ConstantOfShape", (shape,), call.outputs[1:2], true)
        else:
            mask = build.emit("ConstantOfShape", (shape,), "mask", **true)
            build.emit_to("CastLike", (mask, call.input(0)), call.outputs[1:2], {})


def _is_inference(call: Call, build: GraphBuilder) -> bool:
    if call.version < 7:
        return True
    if call.version < 12 or not call.input(2):
        return True
    mode = build.constant_value(call.input(2))
    ratio = build.constant_value(call.input(1)) if call.input(1) else None
    return (mode is not None and mode.size == 1 and not mode.reshape(-1)[0]) or (
        ratio is not None and ratio.size == 1 and float(ratio.reshape(-1)[0]) == 0.0
    )


def _group_norm_18(call: Call, build: GraphBuilder) -> None:
    """GroupNormalization 18: scale and bias had an element per group, now they have one per channel."""
    groups = call.int_attr("num_groups", 0)
    if groups < 1:
        call.error("num_groups >= 1", groups)
    channels = build.emit("Shape", (call.input(0),), "channels", start=1, end=2)
    count = build.ints((groups,), "groups")
    each = build.emit("Div", (channels, count), "each")
    spread = build.emit("Concat", (count, each), "spread", axis=0)
    column, flat = build.ints((groups, 1), "column"), build.ints((-1,), "flat")
    inputs = [call.input(0)]
    for i, hint in ((1, "scale"), (2, "bias")):
        wide = build.emit("Expand", (build.emit("Reshape", (call.input(i), column)), spread))
        inputs.append(build.emit("Reshape", (wide, flat), hint))
    attrs = {k: v for k, v in call.attrs.items() if k in ("epsilon", "num_groups")}
    if build.dtype(call.input(0)) in (dtypes.float16, dtypes.bfloat16):
        attrs["stash_type"] = build.dtype(call.input(0))
    build.emit_to("GroupNormalization", inputs, call.outputs, attrs)


_BATCH_NORM_MAKES = ("BatchNormalization", "Add", "Sub", "Mul", "Div", "Sqrt")
_DROPOUT_MAKES = ("Identity", "Shape", "ConstantOfShape")

RULES: Family = {
    "BatchNormalization": (Rule(1, 13, _batch_norm, _BATCH_NORM_MAKES),),
    "Dropout": (Rule(1, 9, _dropout, (*_DROPOUT_MAKES, "CastLike")), Rule(10, None, _dropout, _DROPOUT_MAKES)),
    # before ONNX had it, onnxruntime's stood in ONNX's domain
    "LayerNormalization": (Rule(1, 16, rename("LayerNormalization"), ("LayerNormalization",)),),
    "GroupNormalization": (Rule(18, 20, _group_norm_18, ("Shape", "Div", "Concat", "Expand", "Reshape")),),
}
