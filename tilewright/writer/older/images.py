"""Sampling of images: Resize and Upsample, GridSample, RoiAlign."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.writer.forms import Site
from tilewright.writer.older.standard import by_definition

_CROP = "tf_crop_and_resize"
_NEW_IN_18: Mapping[str, int | str] = {"antialias": 0, "keep_aspect_ratio_policy": "stretch"}


def resize(s: Site) -> None:
    """Until 18: no half_pixel_symmetric. Until 17: all axes, no filter, no kept ratio. Until 12: roi and scales had to
    be there, if empty. Until 10: scales only, and places of the form ``x / scale``."""
    mode = s.text("coordinate_transformation_mode", "half_pixel")
    if mode == "half_pixel_symmetric":
        raise s.refusal(f"coordinate_transformation_mode {mode}")
    if s.opset >= _AXES:
        s.raw(*s.node.inputs)
        return
    for key, plain in _NEW_IN_18.items():
        if s.node.attr(key, plain) != plain:
            raise s.refusal(f"{key} {s.node.attr(key)}")
    if s.opset < _MODES:
        _by_scales(s, mode)
        return
    x, roi, scales, sizes = s.input(0), "", "", ""
    if mode == _CROP:
        roi = _all(s, 1, 2, "roi")
    if s.input(3):
        sizes = _all(s, 3, 1, "sizes")
    else:
        scales = _all(s, 2, 1, "scales")
    if s.opset < _OPTIONAL:
        roi, scales = roi or _nothing(s), scales or _nothing(s)
    s.raw(x, roi, scales, sizes, drop=("axes", *_NEW_IN_18))


_MODES, _OPTIONAL, _AXES = 11, 13, 18


def _nothing(s: Site) -> str:
    """A list of no floats: one that the graph has, or a new one."""
    for name, c in s.body.constants.items():
        if c.shape == (0,) and c.dtype == np.float32:
            return name
    return s.const(np.zeros(0, np.float32), "nothing")


def _all(s: Site, i: int, each: int, what: str) -> str:
    """Operand ``i``, of ``each`` numbers an axis, for all axes. Those of others are what leaves an axis as it is."""
    given, axes = s.input(i), s.numbers("axes")
    rank = s.rank(s.input(0))
    places = [a % rank for a in axes] if axes is not None else list(range(rank))
    if places == list(range(rank)):
        return given
    x, dtype = s.input(0), s.dtype(given)
    if what == "sizes":
        others = s.op("Shape", x)
    else:
        plain = np.ones(rank) if what == "scales" else np.repeat([0.0, 1.0], rank)
        others = s.const(plain.astype(dtype.numpy), f"other_{what}")
    known = s.constant(given), s.constant(others)
    index = {a + part * rank: k + part * len(places) for part in range(each) for k, a in enumerate(places)}
    order = [index.get(k, each * len(places) + k) for k in range(each * rank)]
    if known[0] is not None and known[1] is not None:
        return s.const(np.concatenate((known[0], known[1]))[order], what)
    if what == "scales" and places == list(range(places[0], rank)):
        return s.op("Concat", s.const(np.ones(places[0], dtype.numpy), "other_scales"), given, axis=0)
    both = s.op("Concat", given, others, axis=0)
    return s.op("Gather", both, s.const(np.array(order, np.int64), "places"), axis=0)


def _by_scales(s: Site, mode: str) -> None:
    """Resize 10, Upsample 9, and Upsample 7, whose scales were an attribute."""
    kind = s.text("mode", "nearest")
    if kind == "cubic":
        raise s.refusal("mode cubic")
    if mode != "asymmetric":
        raise s.refusal(f"coordinate_transformation_mode {mode}")
    scales = _all(s, 2, 1, "scales") if s.input(2) else _scales_of_sizes(s)
    known = s.constant(scales)
    if known is None and (kind == "nearest" or s.opset < _UPSAMPLE_OPERAND):
        raise s.refusal("scales that the run gives")
    if known is not None:
        _require_as_then(s, kind, known)
    if s.opset >= _RESIZE:
        s.raw(s.input(0), scales, drop=_MODE_ATTRIBUTES, mode=kind)
    elif s.opset >= _UPSAMPLE_OPERAND:
        s.raw(s.input(0), scales, op="Upsample", drop=_MODE_ATTRIBUTES, mode=kind)
    else:
        assert known is not None
        s.raw(s.input(0), op="Upsample", drop=_MODE_ATTRIBUTES, mode=kind,
              scales=tuple(map(float, known)))  # fmt: skip


_UPSAMPLE_OPERAND, _RESIZE = 9, 10
_MODE_ATTRIBUTES = (
    "axes", "antialias", "keep_aspect_ratio_policy", "coordinate_transformation_mode", "cubic_coeff_a",
    "exclude_outside", "extrapolation_value", "nearest_mode",
)  # fmt: skip


def _require_as_then(s: Site, kind: str, scales: np.ndarray) -> None:
    """Raises Refused where scales or the rounding are not those of the old operator."""
    smaller, larger = bool((scales < 1).any()), bool((scales > 1).any())
    if s.opset < _RESIZE and smaller:
        raise s.refusal("scales below 1")
    rounding = s.text("nearest_mode", "round_prefer_floor")
    then = "ceil" if smaller else "floor"
    if kind == "nearest" and (smaller or larger) and (rounding != then or (smaller and larger)):
        raise s.refusal(f"nearest_mode {rounding} with scales {[float(x) for x in scales]}")


def _scales_of_sizes(s: Site) -> str:
    """Scales that give the sizes, if all are known."""
    sizes, x = s.ints(_all(s, 3, 1, "sizes")), [d.value() for d in s.value(s.input(0)).shape]
    if sizes is None or any(not d for d in x):
        raise s.refusal("sizes that the run gives")
    scales = [np.float32(n) / np.float32(d or 1) for n, d in zip(sizes, x, strict=True)]
    if any(int(np.float32(d or 1) * k) != n for n, d, k in zip(sizes, x, scales, strict=True)):
        raise s.refusal("sizes that no scale gives")
    return s.const(np.array(scales, np.float32), "scales")


_OLD_NAMES = {"linear": "bilinear", "cubic": "bicubic"}


def grid_sample(s: Site) -> None:
    """Until 19: of images of two dimensions; linear and cubic were called bilinear and bicubic."""
    if s.rank(s.input(0)) != 4:
        raise s.refusal(f"an image of {s.rank(s.input(0)) - 2} dimensions")
    mode = s.text("mode", "linear")
    s.raw(*s.node.inputs, mode=_OLD_NAMES.get(mode, mode))


def roi_align(s: Site) -> None:
    """Until 15: places were not moved by half a pixel."""
    mode = s.text("coordinate_transformation_mode", "half_pixel")
    if mode != "output_half_pixel":
        raise s.refusal(f"coordinate_transformation_mode {mode}")
    s.raw(*s.node.inputs, drop=("coordinate_transformation_mode",))


def affine_grid(s: Site) -> None:
    """Until 19: by its definition, which divides by the size less 1 where corners are aligned."""
    sizes = s.ints(s.input(1))
    if s.node.attr("align_corners") and (sizes is None or 1 in sizes[2:]):
        raise s.refusal("aligned corners of an image that may have a size of 1")
    by_definition(s)
