"""Constants as tensor messages."""

from __future__ import annotations

import sys

import numpy as np
import onnx

from tilewright.core import dtypes
from tilewright.graph_ir.ir import Constant


def tensor_message(constant: Constant, name: str = "") -> onnx.TensorProto:
    """The message of a constant with its elements."""
    message = tensor_header(constant, name)
    if message.data_type == onnx.TensorProto.STRING:
        message.string_data.extend(_bytes(x) for x in constant.array.reshape(-1))
    else:
        message.raw_data = bytes(raw_bytes(constant))
    return message


def tensor_header(constant: Constant, name: str) -> onnx.TensorProto:
    """The message of a constant without its elements."""
    dtype = dtypes.from_numpy(constant.dtype)
    return onnx.TensorProto(name=name, data_type=dtype.onnx, dims=constant.shape)


def raw_bytes(constant: Constant) -> memoryview:
    """The elements as ONNX stores them: little-endian, those below a byte packed from the low bits on. For most types
    they are the array's own bytes."""
    array = np.ascontiguousarray(constant.array).reshape(-1)
    bits = dtypes.from_numpy(array.dtype).bits
    if bits >= 8:
        if array.dtype.itemsize > 1 and sys.byteorder == "big":
            array = array.byteswap()
        return array.view(np.uint8).data
    per_byte = 8 // bits
    codes = array.view(np.uint8) & ((1 << bits) - 1)
    padded = np.zeros(-(-codes.size // per_byte) * per_byte, np.uint8)
    padded[: codes.size] = codes
    shifts = np.arange(per_byte, dtype=np.uint8) * bits
    packed: np.ndarray = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    return packed.astype(np.uint8).data


def raw_size(constant: Constant) -> int:
    """The number of bytes of :func:`raw_bytes`; 0 for strings, which have none."""
    dtype = dtypes.from_numpy(constant.dtype)
    return 0 if dtype == dtypes.string else -(-constant.size * dtype.bits // 8)


def _bytes(x: object) -> bytes:
    return x if isinstance(x, bytes) else str(x).encode()
