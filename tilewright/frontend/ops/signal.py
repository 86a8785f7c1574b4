"""Signal processing."""

from __future__ import annotations

import numpy as np

from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, Rule


def _dft_axis(call: Call, build: GraphBuilder) -> None:
    """DFT 17: the axis was an attribute (default 1), now it is an input (default -2)."""
    axis = build.constant(np.array(call.int_attr("axis", 1), np.int64), "axis")
    attrs = {k: v for k, v in call.attrs.items() if k != "axis"}
    build.emit_to("DFT", (call.input(0), call.input(1), axis), call.outputs, attrs)


RULES: Family = {
    "DFT": (Rule(17, 19, _dft_axis, ("DFT",)),),
}
