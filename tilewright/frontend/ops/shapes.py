"""Shape changes whose parameters moved from attributes to inputs: Squeeze, Split, Slice, Pad, Reshape, Scatter."""

from __future__ import annotations

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule, rename


def _axes_input(call: Call, build: GraphBuilder) -> None:
    """Until 12: the axes were an attribute."""
    axes = call.ints_attr("axes")
    if axes is None and call.op == "Unsqueeze":
        call.error("an attribute axes", "none")
    build.emit_to(call.op, (call.input(0), "" if axes is None else build.ints(axes, "axes")), call.outputs, {})


def _split_attribute(call: Call, build: GraphBuilder) -> None:
    """Until 12: the sizes were an attribute; without it, equal parts as many as there are outputs."""
    sizes = call.ints_attr("split")
    attrs = {k: v for k, v in call.attrs.items() if k != "split"}
    if sizes is None:
        build.emit_to("Split", (call.input(0),), call.outputs, attrs | {"num_outputs": len(call.outputs)})
    else:
        build.emit_to("Split", (call.input(0), build.ints(sizes, "split")), call.outputs, attrs)


def _split_count(call: Call, build: GraphBuilder) -> None:
    """Until 17: without sizes, equal parts as many as there are outputs."""
    extra = {} if call.input(1) else {"num_outputs": len(call.outputs)}
    build.emit_to("Split", call.inputs, call.outputs, dict(call.attrs) | extra)


def _slice_attributes(call: Call, build: GraphBuilder) -> None:
    """Until 9: starts, ends and axes were attributes."""
    starts, ends, axes = call.ints_attr("starts"), call.ints_attr("ends"), call.ints_attr("axes")
    if starts is None or ends is None or len(starts) != len(ends) or len(axes or starts) != len(starts):
        call.error("starts, ends and axes of one length", f"{starts}, {ends}, {axes}")
    if axes is None:
        axes = tuple(range(len(starts)))
    inputs = (call.input(0), build.ints(starts, "starts"), build.ints(ends, "ends"), build.ints(axes, "axes"))
    build.emit_to("Slice", inputs, call.outputs, {})


def _pad_attributes(call: Call, build: GraphBuilder) -> None:
    """Until 10: pads and value were attributes."""
    pads = call.ints_attr("pads") or call.ints_attr("paddings")
    if pads is None:
        call.error("an attribute pads", "none")
    mode = call.str_attr("mode", "constant")
    value = call.float_attr("value", 0.0)
    fill = build.scalar_like(value, call.input(0), "value") if mode == "constant" and value != 0.0 else ""
    build.emit_to("Pad", (call.input(0), build.ints(pads, "pads"), fill), call.outputs, {"mode": mode})


def _reshape_attribute(call: Call, build: GraphBuilder) -> None:
    """Until 4: the shape was an attribute."""
    shape = call.ints_attr("shape")
    build.emit_to("Reshape", (call.input(0), build.ints(shape or (), "shape")), call.outputs, {})


RULES: Family = {
    "Squeeze": (Rule(1, 12, _axes_input, ("Squeeze",)),),
    "Unsqueeze": (Rule(1, 12, _axes_input, ("Unsqueeze",)),),
    "Split": (Rule(2, 12, _split_attribute, ("Split",)), Rule(13, 17, _split_count, ("Split",))),
    "Slice": (Rule(1, 9, _slice_attributes, ("Slice",)),),
    "Pad": (Rule(1, 10, _pad_attributes, ("Pad",)),),
    "Reshape": (Rule(1, 4, _reshape_attribute, ("Reshape",)),),
    "Scatter": (Rule(9, None, rename("ScatterElements"), ("ScatterElements",)),),
}
