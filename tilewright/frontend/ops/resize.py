"""Resize, Upsample, GridSample, RoiAlign: sampling whose defaults changed."""

from __future__ import annotations

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule


def _upsample(call: Call, build: GraphBuilder) -> None:
    """Upsample 7 (scales as attribute) and 9: asymmetric coordinates, nearest takes the floor."""
    if call.version < 9:
        scales = call.attrs.get("scales")
        if not isinstance(scales, tuple):
            call.error("an attribute scales", scales)
        name = build.constant(np.array(scales, np.float32), "scales")
    else:
        name = call.input(1)
    _asymmetric(call, build, call.input(0), name, call.outputs, "floor")


def _resize_10(call: Call, build: GraphBuilder) -> None:
    """Resize 10: asymmetric coordinates; nearest takes the floor where it enlarges, the ceiling where it shrinks."""
    x, scales = call.input(0), call.input(1)
    if call.str_attr("mode", "nearest") != "nearest":
        _asymmetric(call, build, x, scales, call.outputs, "floor")
        return
    known = build.constant_value(scales)
    if known is not None and (known >= 1).all():
        _asymmetric(call, build, x, scales, call.outputs, "floor")
    elif known is not None and (known <= 1).all():
        _asymmetric(call, build, x, scales, call.outputs, "ceil")
    else:  # nearest sampling works axis by axis: enlarge first, then shrink
        one = build.constant(np.array(1, np.float32), "one")
        larger, smaller = build.name("enlarged"), build.emit("Min", (scales, one), "shrink")
        _asymmetric(call, build, x, build.emit("Max", (scales, one), "enlarge"), (larger,), "floor")
        _asymmetric(call, build, larger, smaller, call.outputs, "ceil")


def _asymmetric(
    call: Call, build: GraphBuilder, x: str, scales: str, outputs: tuple[str, ...], nearest_mode: str
) -> None:
    mode = call.str_attr("mode", "nearest")
    attrs = {
        "mode": {"bilinear": "linear"}.get(mode, mode),
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": nearest_mode,
    }
    build.emit_to("Resize", (x, "", scales), outputs, attrs)


def _resize_11(call: Call, build: GraphBuilder) -> None:
    """Resize 11 and 12 (and later by custom): an empty constant stands for an absent input."""
    inputs = tuple("" if i and build.is_empty_constant(i) else i for i in call.inputs)
    attrs = dict(call.attrs)
    if attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if attrs.get("mode", "nearest") != "nearest" or attrs.get("nearest_mode") != "floor":
            raise UnsupportedError(
                f"node '{call.name}' (Resize {call.version}): tf_half_pixel_for_nn with mode {attrs.get('mode')}, "
                f"nearest_mode {attrs.get('nearest_mode')}; only nearest with floor is supported"
            )
        attrs |= {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    build.emit_to("Resize", inputs, call.outputs, attrs)


def _grid_sample(call: Call, build: GraphBuilder) -> None:
    """GridSample 16: bilinear and bicubic are now called linear and cubic."""
    mode = call.str_attr("mode", "bilinear")
    new = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    build.emit_to("GridSample", call.inputs, call.outputs, dict(call.attrs) | {"mode": new})


def _roi_align(call: Call, build: GraphBuilder) -> None:
    """RoiAlign 10: coordinates are not shifted by half a pixel."""
    attrs = dict(call.attrs) | {"coordinate_transformation_mode": "output_half_pixel"}
    build.emit_to("RoiAlign", call.inputs, call.outputs, attrs)


RULES: Family = {
    "Upsample": (Rule(7, 9, _upsample, ("Resize",)),),
    "Resize": (Rule(10, 10, _resize_10, ("Resize", "Min", "Max")), Rule(11, None, _resize_11, ("Resize",))),
    "GridSample": (Rule(16, 19, _grid_sample, ("GridSample",)),),
    "RoiAlign": (Rule(10, 15, _roi_align, ("RoiAlign",)),),
}
