"""Windows that slide over the spatial dimensions of a tensor, any number of them: pooling and the like.

``data_layout`` NHWC puts the channels last, so that the innermost loop runs over channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.padding import halves
from tilewright.tensor_ir.compute import ReduceAxis, Tensor, Val, in_range


@dataclass(frozen=True, slots=True)
class Windows:
    """Where windows lie. ``spatial``: the tensor dimensions they slide over, the rest one entry for each."""

    spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[IntExpr, ...]
    end: tuple[IntExpr, ...]

    def read(
        self, x: Tensor, out: Sequence[IntExpr], index: Sequence[IntExpr], steps: Sequence[ReduceAxis]
    ) -> tuple[tuple[IntExpr, ...], Val | None]:
        """The place that step ``steps`` of window ``index`` reads; when that is in ``x`` (None: always)."""
        place, inside = list(index), None
        for k, d in enumerate(self.spatial):
            place[d] = index[d] * self.strides[k] + steps[k].index * self.dilations[k] - self.begin[k]
            if self.needs_test(k, x.shape, out):
                test = in_range(place[d], 0, x.shape[d])
                inside = test if inside is None else inside & test
        return tuple(place), inside

    def steps(self, c: LowerContext) -> list[ReduceAxis]:
        """An axis over the steps of a window in each spatial dimension."""
        return [c.axis(n, f"k{k}") for k, n in enumerate(self.kernel)]

    def along(self, which: Sequence[int]) -> Windows:
        """The windows over some of the spatial dimensions alone."""
        return Windows(
            tuple(self.spatial[k] for k in which), tuple(self.kernel[k] for k in which),
            tuple(self.strides[k] for k in which), tuple(self.dilations[k] for k in which),
            tuple(self.begin[k] for k in which), tuple(self.end[k] for k in which),
        )  # fmt: skip

    def needs_test(self, k: int, x: Sequence[IntExpr], out: Sequence[IntExpr]) -> bool:
        """True unless every step of every window in spatial dimension ``k`` is known to be inside the image. ``x``,
        ``out``: the shapes of the image and the result."""
        d = self.spatial[k]
        if self.begin[k] != 0:
            return True
        reach = (self.kernel[k] - 1) * self.dilations[k] + 1
        slack = (x[d] - ((out[d] - 1) * self.strides[k] + reach)).value()
        if slack is not None:
            return slack < 0
        return bool(self.end[k] != 0 or self.strides[k] != 1)


def windows_of(c: NodeFacts, x: Sequence[IntExpr]) -> Windows:
    """The node's windows with ``auto_pad`` resolved."""
    spatial = spatial_dims(c, len(x))
    kernel = c.attr_ints("kernel_shape")
    if kernel is None or len(kernel) != len(spatial):
        raise c.unsupported(f"attribute kernel_shape must have {len(spatial)} entries, got {kernel}")
    return windows_for(c, x, spatial, kernel)


def windows_for(c: NodeFacts, x: Sequence[IntExpr], spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """Windows of ``kernel`` over the ``spatial`` dimensions of an image of shape ``x``, with the node's strides,
    dilations and pads."""
    n = len(spatial)
    strides = c.attr_ints("strides") or (1,) * n
    dilations = c.attr_ints("dilations") or (1,) * n
    auto = c.attr_str("auto_pad", "NOTSET")
    given = c.attr_ints("pads") or (0,) * (2 * n)
    begin = [const(p) for p in given[:n]]
    end = [const(p) for p in given[n:]]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        for k, d in enumerate(spatial):
            reach = (kernel[k] - 1) * dilations[k] + 1
            total = (ceildiv(x[d], strides[k]) - 1) * strides[k] + reach - x[d]
            begin[k], end[k] = halves(total, auto == "SAME_UPPER")
    elif auto == "VALID":
        begin, end = [const(0)] * n, [const(0)] * n
    return Windows(spatial, kernel, strides, dilations, tuple(begin), tuple(end))


def spatial_dims(c: NodeFacts, rank: int) -> tuple[int, ...]:
    last = c.attr_str("data_layout", "NCHW") == "NHWC"
    return tuple(range(1, rank - 1)) if last else tuple(range(2, rank))
