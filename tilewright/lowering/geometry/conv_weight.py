"""The weight of a convolution in panels of output channels, packed at build time or by a stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, IntLike, ceildiv, const
from tilewright.core.dtypes import DType
from tilewright.lowering.context import LowerContext
from tilewright.lowering.geometry.conv_shape import ConvShape, spatial_names
from tilewright.lowering.geometry.packing import pack_columns
from tilewright.tensor_ir.compute import Tensor, Val, compute, constant, in_range, select

Weight = Callable[[int], Tensor]
ReadWeight = Callable[[IntExpr, IntExpr, Sequence[IntExpr]], Val]


def conv_weight(
    ctx: LowerContext, shape: ConvShape, dtype: DType, to_oihw: Callable[[np.ndarray], np.ndarray], key: str,
    read: ReadWeight,
) -> Weight:  # fmt: skip
    """``weight(width)``: panels ``[no, taps..., ic, ni]``, group by group, packed at build time or by a stage.

    ``to_oihw`` turns the constant into ``[OC, IC / g, taps...]``; ``read(oc, ic, taps)`` is the same for values.
    """
    per_group, in_group = shape.per_group, shape.depth

    def weight(width: int) -> Tensor:
        panels = ceildiv(per_group, width)
        full: tuple[IntLike, ...] = (panels * shape.groups, *shape.kernel, in_group, width)

        def transform(w: np.ndarray) -> np.ndarray:
            return _pack_oihw(to_oihw(w), shape.groups, width, dtype.numpy)

        if ctx.constants[1] is not None:
            return ctx.packed(1, transform, full, f"{key}_g{shape.groups}_{width}", dtype)

        def formula(*i: IntExpr) -> Val:
            g, no = (i[0] // panels, i[0] % panels) if shape.groups > 1 else (const(0), i[0])
            taps, ic, ni = i[1:-2], i[-2], i[-1]
            col = no * width + ni
            value = read(g * per_group + col, ic, taps).cast(dtype)
            n = per_group.value()
            whole = n is not None and n % width == 0
            return value if whole else select(in_range(col, 0, per_group), value, constant(0, dtype))

        names = ["no", *(f"k{n}" for n in spatial_names(shape.rank)), "ic", "ni"]
        return ctx.stage(compute(ctx.name("pack"), full, formula, axis_names=names))

    return weight


def named(key: str, shape: ConvShape) -> str:
    """``key`` of a weight that :func:`weight_rows` may have changed."""
    return key if shape.of_pixel is None else f"{key}_rows"


def weight_rows(w: np.ndarray, shape: ConvShape) -> np.ndarray:
    """``[OC, IC, taps...]`` as ``shape`` has it: ``[OC, row * IC, taps..., 1]`` where a row's taps are channels."""
    if shape.of_pixel is None:
        return w
    rows = np.moveaxis(w, -1, 1)
    return np.ascontiguousarray(rows).reshape(len(w), -1, *w.shape[2:-1], 1)


def weight_columns(w: np.ndarray) -> np.ndarray:
    """``[OC, IC, taps...]`` as :meth:`ConvShape.taps_as_columns` has it: ``[row * OC, IC, taps..., 1]``."""
    columns = np.moveaxis(w, -1, 0)
    return np.ascontiguousarray(columns).reshape(-1, *w.shape[1:-1], 1)


def _pack_oihw(w: np.ndarray, groups: int, width: int, dtype: np.dtype) -> np.ndarray:
    """``[OC, IC / g, taps...] -> [no, taps..., ic, ni]``, the panels of each group together."""
    oc, ic, taps = w.shape[0] // groups, w.shape[1], w.shape[2:]
    grouped = w.reshape(groups, oc, ic, *taps)
    parts = [
        pack_columns(np.moveaxis(part, (0, 1), (-1, -2)).reshape(-1, oc), width, dtype).reshape(-1, *taps, ic, width)
        for part in grouped
    ]
    return parts[0] if groups == 1 else np.concatenate(parts)
