"""Resize, Upsample, GridSample, RoiAlign: sampling whose defaults changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule
from tilewright.graph_ir.ir import Attribute

_CROP = "tf_crop_and_resize"


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
    _emit(build, (x, "", scales), outputs, attrs)


def _resize_11(call: Call, build: GraphBuilder) -> None:
    """Resize 11 and 12 (and later by custom): an empty constant stands for an absent input."""
    x, *options = call.inputs
    inputs = (x, *("" if i and build.is_empty_constant(i) else i for i in options))
    attrs = dict(call.attrs)
    if attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        if attrs.get("mode", "nearest") != "nearest" or attrs.get("nearest_mode") != "floor":
            raise UnsupportedError(
                f"node '{call.name}' (Resize {call.version}): tf_half_pixel_for_nn with mode {attrs.get('mode')}, "
                f"nearest_mode {attrs.get('nearest_mode')}; only nearest with floor is supported"
            )
        attrs |= {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    _emit(build, inputs, call.outputs, attrs)


def _emit(build: GraphBuilder, inputs: tuple[str, ...], outputs: Sequence[str], attrs: Mapping[str, Attribute]) -> None:
    """A Resize; by scales that are joined from ones and others, of the other axes only, so that sizes stay known."""
    rest = _behind_ones(build, inputs[2]) if len(inputs) == 3 and inputs[2] else None
    rank = build.rank(inputs[0])
    given = attrs.get("axes")
    axes = tuple(range(rank)) if given is None and rank is not None else given
    if rest is not None and isinstance(axes, tuple) and attrs.get("coordinate_transformation_mode") != _CROP:
        parts, ones = rest
        scales = parts[0] if len(parts) == 1 else build.emit("Concat", parts, "scales", axis=0)
        inputs, attrs = (inputs[0], "", scales), {**attrs, "axes": axes[ones:]}
    build.emit_to("Resize", inputs, outputs, attrs)


def _behind_ones(build: GraphBuilder, name: str) -> tuple[tuple[str, ...], int] | None:
    """Of a Concat that begins with constant ones: its other operands, and how many ones there are."""
    concat = build.producer(name)
    if concat is None or concat.op != "Concat" or concat.attr("axis") not in (0, -1):
        return None
    ones = 0
    for k, part in enumerate(concat.inputs):
        array = build.constant_value(part)
        if array is None or not bool(np.all(array == 1)):
            return (concat.inputs[k:], ones) if ones else None
        ones += array.size
    return None


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
    "Upsample": (Rule(7, 9, _upsample, ("Resize", "Concat")),),
    "Resize": (
        Rule(10, 10, _resize_10, ("Resize", "Min", "Max", "Concat")),
        Rule(11, None, _resize_11, ("Resize", "Concat")),
    ),
    "GridSample": (Rule(16, 19, _grid_sample, ("GridSample",)),),
    "RoiAlign": (Rule(10, 15, _roi_align, ("RoiAlign",)),),
}
