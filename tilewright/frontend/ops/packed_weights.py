"""Weights packed several to a byte: MatMulNBits, MatMulBnb4, GatherBlockQuantized.

They are unpacked here where they are constants, which they are in every model that onnxruntime's quantizers write.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.core import dtypes
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.graph_ir.ir import Constant, TensorType

_FP4 = (0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4)  # then the same, negative
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


def _unpacked(build: GraphBuilder, name: str, bits: int, high_first: bool = False) -> str:
    """The numbers of ``bits`` bits in the bytes of a value, along its last axis."""
    if bits == 8:
        return name
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    shifts = shifts[::-1].copy() if high_first else shifts
    mask = np.uint8((1 << bits) - 1)
    array = build.constant_value(name)
    if array is not None:
        apart = np.empty((*array.shape, len(shifts)), np.uint8)
        for j, shift in enumerate(shifts):
            np.bitwise_and(array >> shift, mask, out=apart[..., j])
        return build.constant(apart.reshape(*array.shape[:-1], -1), "unpacked")
    last = build.emit("Unsqueeze", (name, build.ints((-1,), "last")), "bytes")
    shifted = build.emit("BitShift", (last, build.constant(shifts, "shifts")), "shifted", direction="RIGHT")
    numbers = build.emit("BitwiseAnd", (shifted, build.constant(np.array(mask), "mask")), "numbers")
    kept = build.emit("Shape", (name,), "kept", start=0, end=-1)
    shape = build.emit("Concat", (kept, build.ints((-1,), "rest")), "shape", axis=0)
    return build.emit("Reshape", (numbers, shape), "unpacked")


def _positive(call: Call, key: str, default: int = 0) -> int:
    value = call.int_attr(key, default)
    return value if value > 0 else call.error(f"an attribute {key} >= 1", value)


def _dtype(call: Call, build: GraphBuilder, i: int) -> dtypes.DType:
    dtype = build.dtype(call.input(i))
    if dtype is None:
        raise call.unsupported(f"input {i} has an unknown element type")
    return dtype


# -- products ------------------------------------------------------------------------------------------------------
def _matmul_nbits(call: Call, build: GraphBuilder) -> None:
    """A @ W', W[n, k] = (B[n, k] - zero) * scale, zero and scale one for each block of k."""
    if call.int_attr("weight_prepacked", 0):
        raise call.unsupported("attribute weight_prepacked: weights in the layout of a GPU kernel")
    bits = call.int_attr("bits", 4)
    if bits not in (2, 4, 8):
        raise call.unsupported(f"attribute bits must be 2, 4 or 8, got {bits}")
    n, k, block = (_positive(call, key) for key in ("N", "K", "block_size"))
    if build.is_empty_constant(call.input(1)):
        _zeros(call, build, n)
        return
    blocks = -(-k // block)
    _require_size(call, build, 1, n * blocks * block * bits // 8)
    flat = _rows(build, _unpacked(build, call.input(1), bits), (n, blocks * block), k)
    scales = build.emit("Reshape", (call.input(2), build.ints((n, blocks), "blocks")), "scales")
    zeros = _zero_points(call, build, bits, n, blocks)
    if call.input(4):  # the block of every k
        scales, zeros = (build.emit("Gather", (v, call.input(4)), "of_k", axis=1) for v in (scales, zeros))
        block = 1
    if _dtype(call, build, 1) == build.dtype(zeros):
        weight = build.emit("DequantizeLinear", (flat, scales, zeros), "weight", axis=1, block_size=block)
    else:  # zero points that are no integers
        low, step = (v if block == 1 else _each(build, v, (n, blocks), block, k) for v in (zeros, scales))
        shifted = build.emit("Sub", (build.emit("CastLike", (flat, scales)), low), "shifted")
        weight = build.emit("Mul", (shifted, step), "weight")
    turned = build.emit("Transpose", (weight,), "weight", perm=(1, 0))
    _product(call, build, turned, call.input(5))


def _zeros(call: Call, build: GraphBuilder, n: int) -> None:
    """The product with weights that were left out: zeros, or the bias."""
    rows = build.emit("Shape", (call.input(0),), "rows", start=0, end=-1)
    shape = build.emit("Concat", (rows, build.ints((n,), "columns")), "shape", axis=0)
    fill = build.scalar_like(0.0, call.input(0), "zero")
    build.emit_to("Expand", (call.input(5) or fill, shape), call.outputs, {})


def _require_size(call: Call, build: GraphBuilder, i: int, count: int) -> None:
    """Raises for an operand that has another number of elements, as far as that is known."""
    t = build.type(call.input(i))
    dims = [d.value() for d in t.shape] if isinstance(t, TensorType) and t.shape is not None else [None]
    known = [d for d in dims if d is not None]
    if len(known) == len(dims) and math.prod(known) != count:
        call.error(f"input {i} with {count} elements", math.prod(known))


def _rows(build: GraphBuilder, name: str, shape: tuple[int, int], columns: int) -> str:
    """A value as a matrix of ``shape``, its first ``columns`` columns."""
    array = build.constant_value(name)
    if array is not None and array.size == shape[0] * shape[1]:
        return build.constant(array.reshape(shape)[:, :columns], "rows")
    matrix = build.emit("Reshape", (name, build.ints(shape, "shape")), "rows")
    return matrix if columns == shape[1] else _first(build, matrix, columns)


def _first(build: GraphBuilder, x: str, count: int) -> str:
    """The first elements of the last axis."""
    ends = (build.ints((0,), "start"), build.ints((count,), "end"), build.ints((-1,), "axis"))
    return build.emit("Slice", (x, *ends), "first")


def _zero_points(call: Call, build: GraphBuilder, bits: int, n: int, blocks: int) -> str:
    """The zero points [n, blocks]: packed like the weights, in the type of A, or 2^(bits - 1)."""
    name = call.input(3)
    if not name:
        return build.constant(np.full((n, blocks), 1 << (bits - 1), np.uint8), "zero_points")
    if _dtype(call, build, 3) != dtypes.uint8:
        return build.emit("Reshape", (name, build.ints((n, blocks), "blocks")), "zero_points")
    whole = -(-blocks * bits // 8) * 8 // bits
    return _rows(build, _unpacked(build, name, bits), (n, whole), blocks)


def _each(build: GraphBuilder, of_blocks: str, shape: tuple[int, ...], block: int, count: int) -> str:
    """[..., blocks] as [..., count]: every number ``block`` times, as far as there is something for it."""
    tall = build.emit("Unsqueeze", (of_blocks, build.ints((-1,), "last")), "tall")
    wide = build.emit("Expand", (tall, build.ints((*shape, block), "wide")), "wide")
    flat = build.emit("Reshape", (wide, build.ints((*shape[:-1], shape[-1] * block), "flat")), "each")
    return flat if count == shape[-1] * block else _first(build, flat, count)


def _product(call: Call, build: GraphBuilder, weight: str, bias: str) -> None:
    if bias:
        product = build.emit("MatMul", (call.input(0), weight), "product")
        build.emit_to("Add", (product, bias), call.outputs, {})
    else:
        build.emit_to("MatMul", (call.input(0), weight), call.outputs, {})


def _matmul_bnb4(call: Call, build: GraphBuilder) -> None:
    """A @ W' (or A @ W): numbers of a table, high half of a byte first, times the largest magnitude of their block."""
    n, k, block = (_positive(call, key) for key in ("N", "K", "block_size"))
    kind = call.int_attr("quant_type", 0)
    if kind not in (0, 1):
        raise call.unsupported(f"attribute quant_type must be 0 or 1, got {kind}")
    table = np.array(_NF4 if kind else (*_FP4, *(-x for x in _FP4)), np.float32)
    numbers = build.emit("CastLike", (build.constant(table, "table"), call.input(2)), "table")
    _require_size(call, build, 1, (n * k + 1) // 2)
    codes = _first(build, _unpacked(build, call.input(1), 4, high_first=True), n * k)
    place = build.emit("Cast", (codes,), "codes", to=dtypes.int32)
    magnitudes = _each(build, call.input(2), (-(-n * k // block),), block, n * k)
    flat = build.emit("Mul", (build.emit("Gather", (numbers, place), "values", axis=0), magnitudes), "flat")
    weight = build.emit("Reshape", (flat, build.ints((n, k), "shape")), "weight")
    if call.int_attr("transB", 1):
        weight = build.emit("Transpose", (weight,), "weight", perm=(1, 0))
    _product(call, build, weight, "")


# -- rows of a table -----------------------------------------------------------------------------------------------
def _gather(call: Call, build: GraphBuilder) -> None:
    """Gather of a table quantized in blocks of an axis; an index out of range gives zeros."""
    data, indices, scales, zeros = (call.input(i) for i in range(4))
    dtype, rank = _dtype(call, build, 0), build.rank(data)
    if rank is None:
        raise call.unsupported("a table of unknown rank")
    gathered, quantized = (call.int_attr(k, d) for k, d in (("gather_axis", 0), ("quantize_axis", 1)))
    for key, axis in (("gather_axis", gathered), ("quantize_axis", quantized)):
        if not -rank <= axis < rank:
            call.error(f"an attribute {key} of {-rank} to {rank - 1}", axis)
    gathered, quantized = gathered % rank, quantized % rank
    bits = call.int_attr("bits", 4)
    if dtype == dtypes.uint8:
        if bits not in (2, 4, 8) or gathered == rank - 1 or quantized != rank - 1:
            raise call.unsupported(f"bytes of {bits} bits, gathered along {gathered}, quantized along {quantized}")
        data, zeros = _unpacked(build, data, bits), _byte_zeros(build, scales, zeros, bits)
    block = call.int_attr("block_size", 128) or _extent(call, build, quantized)
    inside, index = _inside(build, data, indices, gathered)
    parts = [p for p in (data, scales, zeros) if p]
    at = quantized
    if gathered != quantized:  # the rows are dequantized, not the whole table
        parts = [build.emit("Gather", (p, index), "rows", axis=gathered) for p in parts]
        at -= rank
        if quantized < gathered:
            at = quantized
    real = build.emit("DequantizeLinear", parts, "real", axis=at, block_size=block)
    if gathered == quantized:
        real = build.emit("Gather", (real, index), "rows", axis=gathered)
    if rank - 1 - gathered:
        inside = build.emit("Unsqueeze", (inside, build.ints(range(gathered - rank + 1, 0), "axes")), "inside")
    build.emit_to("Where", (inside, real, build.scalar_like(0.0, scales, "nothing")), call.outputs, {})


def _byte_zeros(build: GraphBuilder, scales: str, zeros: str, bits: int) -> str:
    """The zero points of numbers in bytes: packed along the last axis, or all 2^(bits - 1)."""
    if not zeros:
        shape = build.emit("Shape", (scales,), "shape")
        return build.emit("ConstantOfShape", (shape,), "zeros", value=Constant(np.array([1 << (bits - 1)], np.uint8)))
    ends = (build.ints((0,), "start"), build.emit("Shape", (scales,), "blocks", start=-1), build.ints((-1,), "axis"))
    return build.emit("Slice", (_unpacked(build, zeros, bits), *ends), "zeros")


def _extent(call: Call, build: GraphBuilder, axis: int) -> int:
    """How long an axis of the table is: the block of block_size = 0."""
    t = build.type(call.input(0))
    extent = t.shape[axis].value() if isinstance(t, TensorType) and t.shape is not None else None
    if extent is None:
        raise call.unsupported("block_size 0 with a table of unknown size")
    return max(extent, 1)


def _inside(build: GraphBuilder, data: str, indices: str, axis: int) -> tuple[str, str]:
    """Where the indices are in range, and the indices with 0 in place of the others."""
    size = build.emit("CastLike", (build.emit("Shape", (data,), "size", start=axis, end=axis + 1), indices), "size")
    size = build.emit("Squeeze", (size,), "size")
    low = build.emit("GreaterOrEqual", (indices, build.emit("Neg", (size,))), "low")
    inside = build.emit("And", (low, build.emit("Less", (indices, size), "high")), "inside")
    return inside, build.emit("Where", (inside, indices, build.scalar_like(0.0, indices, "first")), "index")


_PRODUCT = ("Reshape", "Gather", "MatMul", "Add", "Transpose", "CastLike", "Mul", "Slice", "Expand")
_UNPACK = ("Unsqueeze", "BitShift", "BitwiseAnd", "Shape", "Concat")

RULES: Family = {
    "MatMulNBits": contrib(
        (0, 1, 2), _matmul_nbits, (*_PRODUCT, *_UNPACK, "Sub", "DequantizeLinear")
    ),
    "MatMulBnb4": contrib((0, 1, 2), _matmul_bnb4, (*_PRODUCT, *_UNPACK, "Cast")),
    "GatherBlockQuantized": contrib(
        (0, 1, 2), _gather,
        (*_UNPACK, "Gather", "DequantizeLinear", "ConstantOfShape", "Slice", "CastLike", "Squeeze", "GreaterOrEqual",
         "Less", "And", "Neg", "Where"),
    ),
}  # fmt: skip
