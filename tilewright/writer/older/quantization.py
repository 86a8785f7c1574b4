"""QuantizeLinear and DequantizeLinear: blocks, axes and other types by arithmetic, where the opset has less."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.writer.forms import Site

_AXIS, _FLOAT_TYPES, _BLOCKS, _OUTPUT_TYPE = 13, 19, 21, 23
_OLD = (dtypes.int8, dtypes.uint8)
_LATER = ("block_size", "output_dtype", "precision", "saturate")


def dequantize(s: Site) -> None:
    """Until 22: the result had the type of the scale. Until 20: no blocks, no 16 bits. Until 18: scales of float32.
    Until 12: one scale."""
    q, scale, zero = (s.input(i) for i in range(3))
    if s.is_unknown(q) or s.is_unknown(scale):
        s.raw(q, scale, zero)
        return
    own = s.dtype(scale)
    to = s.node.attr("output_dtype")
    result = to if isinstance(to, DType) and to != own else own
    if s.opset >= _BLOCKS and result == own:
        s.raw(q, scale, zero, drop=("output_dtype",))
        return
    if s.opset >= _BLOCKS:
        if result.bits > own.bits:
            s.instead("DequantizeLinear", q, s.op("Cast", scale, to=result), zero, **s.attrs_without("output_dtype"))
        else:
            s.instead("Cast", s.op("DequantizeLinear", q, scale, zero, **s.attrs_without("output_dtype")), to=result)
        return
    scale = _wide(s, scale) if result.bits <= _wide_bits(s, scale) else s.op("Cast", scale, to=result)
    known = s.dtype(scale) == dtypes.float32 and s.dtype(q) in (*_OLD, dtypes.int32)
    if known and not _blocks(s) and (_is_one(s, scale) or s.opset >= _AXIS):
        number = s.node.outputs[0] if result == dtypes.float32 else s.like(q, "wide", dtypes.float32)
        drop = _LATER if s.opset >= _AXIS else (*_LATER, "axis")
        s.raw(q, scale, zero, outputs=(number,), drop=drop)
    else:
        axis, number = _axis(s), s.op("Cast", q, to=s.dtype(scale))
        if zero:
            number = s.op("Sub", number, _spread(s, s.op("Cast", zero, to=s.dtype(scale)), axis))
        if s.dtype(scale) == result:
            s.instead("Mul", number, _spread(s, scale, axis))
            return
        number = s.op("Mul", number, _spread(s, scale, axis))
    if s.dtype(number) != result:
        s.instead("Cast", number, to=result)


def quantize(s: Site) -> None:
    """Until 22: divided in the type of the operand. Until 20: no blocks, no 16 bits, the type was the zero point's.
    Until 18: of float32. Until 12: one scale."""
    x, scale, zero = (s.input(i) for i in range(3))
    to = s.node.attr("output_dtype")
    if s.node.attr("precision"):
        raise s.refusal("a precision other than the operand's")
    if s.opset >= _BLOCKS or any(map(s.is_unknown, filter(None, s.node.inputs))):
        s.raw(x, scale, zero, drop=("precision",))
        return
    target = s.dtype(zero) if zero else to if isinstance(to, DType) else dtypes.uint8
    if target not in (*_OLD, dtypes.int16, dtypes.uint16):
        if s.opset < _FLOAT_TYPES or _blocks(s) or target.is_integer:
            raise s.refusal(f"numbers of {target}")
        s.raw(x, scale, zero, drop=_LATER[:3])
        return
    plain = s.dtype(x) == dtypes.float32 or s.opset >= _FLOAT_TYPES
    if plain and not _blocks(s) and target in _OLD and (_is_one(s, scale) or s.opset >= _AXIS):
        if not zero and target != dtypes.uint8:
            zero = s.op("Cast", s.op("Sub", scale, scale), to=target)
        kept = _LATER[:3] if s.opset >= _FLOAT_TYPES else _LATER if s.opset >= _AXIS else (*_LATER, "axis")
        s.raw(x, scale, zero, drop=kept)
        return
    axis, wide = _axis(s), _wide(s, scale)
    x = x if s.dtype(x) == s.dtype(wide) else s.op("Cast", x, to=s.dtype(wide))
    number = s.op("Round", s.op("Div", x, _spread(s, wide, axis)))
    if zero:
        number = s.op("Add", number, _spread(s, s.op("Cast", zero, to=s.dtype(wide)), axis))
    limits = np.iinfo(target.numpy)
    low, high = (s.scalar(float(v), s.dtype(wide), "limit") for v in (limits.min, limits.max))
    s.instead("Cast", s.op("Clip", number, low, high), to=target)


def _blocks(s: Site) -> int:
    return int(s.number("block_size", 0))


def _axis(s: Site) -> int:
    return int(s.number("axis", 1)) % max(s.rank(s.input(0)), 1)


def _is_one(s: Site, scale: str) -> bool:
    return s.rank(scale) == 0 or all(d == 1 for d in s.value(scale).shape)


def _wide(s: Site, scale: str) -> str:
    """The scale in the type in which narrow floats are computed."""
    return s.op("Cast", scale, to=dtypes.float32) if s.dtype(scale).is_narrow_float else scale


def _wide_bits(s: Site, scale: str) -> int:
    return max(s.dtype(scale).bits, dtypes.float32.bits)


def _spread(s: Site, parameter: str, axis: int) -> str:
    """A parameter in a shape that broadcasts to the first operand: its number for a block repeated along the axis."""
    if _blocks(s):
        size = s.value(s.input(0)).shape[axis].value()
        if size is None:
            raise s.refusal("blocks along an axis whose size the run gives")
        index = s.const(np.arange(size, dtype=np.int64) // _blocks(s), "blocks")
        return s.op("Gather", parameter, index, axis=axis)
    rank = s.rank(s.input(0))
    if s.rank(parameter) == 0 or axis == rank - 1:
        return parameter
    return s.op("Reshape", parameter, s.const(np.array([-1, *[1] * (rank - 1 - axis)], np.int64), "column"))
