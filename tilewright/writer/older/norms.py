"""LayerNormalization and GroupNormalization, by deviations from the mean: the standard's definitions take the mean of
squares less the square of the mean, which cancels where the mean is large."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.writer.forms import Site


def layer_norm(s: Site) -> None:
    """Until 16, and for an epsilon of double precision, which attributes do not have: mean and deviation over the last
    axes."""
    x, scale, bias = (s.input(i) for i in range(3))
    small = s.number("epsilon", _EPSILON)
    exact = s.is_unknown(x) or s.dtype(x) != dtypes.float64 or float(np.float32(small)) == small
    if s.opset >= _LAYER_NORM and exact:
        s.raw(*s.node.inputs)
        return
    rank = s.rank(x)
    axes = s.const(np.arange(int(s.number("axis", -1)) % rank, rank, dtype=np.int64), "axes")
    mean = s.op("ReduceMean", x, axes)
    difference = s.op("Sub", x, mean)
    variance = s.op("ReduceMean", s.op("Mul", difference, difference), axes)
    epsilon = s.scalar(small, s.dtype(x), "epsilon")
    deviation = s.op("Sqrt", s.op("Add", variance, epsilon))
    y = s.op("Mul", s.op("Div", difference, deviation), scale)
    _, *statistics = s.node.outputs
    for name, op, of in zip(statistics, ("Identity", "Reciprocal"), (mean, deviation), strict=False):
        if name:
            s.to((name,), op, of)
    if bias:
        s.to(s.node.outputs[:1], "Add", y, bias)
    else:
        s.to(s.node.outputs[:1], "Identity", y)


_LAYER_NORM = 17
_EPSILON = float(np.float32(1e-5))


def group_norm(s: Site) -> None:
    """Until 20: an InstanceNormalization of groups, then scale and bias by channel."""
    x, scale, bias = (s.input(i) for i in range(3))
    if s.dtype(x).is_narrow_float:
        wide = [s.op("Cast", i, to=dtypes.float32) for i in (x, scale, bias)]
        y = s.op("GroupNormalization", *wide, **s.attrs_without("stash_type"))
        s.instead("Cast", y, to=s.dtype(x))
        return
    groups, dtype = int(s.number("num_groups", 1)), s.dtype(x).numpy
    parts = s.op("Reshape", x, s.const(np.array([0, groups, -1], np.int64), "groups"))
    ones, zeros = s.const(np.ones(groups, dtype), "ones"), s.const(np.zeros(groups, dtype), "zeros")
    normal = s.op("InstanceNormalization", parts, ones, zeros, epsilon=s.node.attr("epsilon"))
    back = s.op("Reshape", normal, s.op("Shape", x))
    s.instead("Add", s.op("Mul", back, _by_channel(s, scale)), _by_channel(s, bias))


def _by_channel(s: Site, parameter: str) -> str:
    column = (-1, *[1] * (s.rank(s.input(0)) - 2))
    known = s.constant(parameter)
    if known is not None:
        return s.const(known.reshape(column), "by_channel")
    return s.op("Reshape", parameter, s.const(np.array(column, np.int64), "column"))
