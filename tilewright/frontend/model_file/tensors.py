"""Tensor messages as numpy arrays: views of the model's bytes, or of a part of its file as it was read, wherever the
stored form is the memory form.

Every element type and every way to store it: ``raw_data``, typed fields, external files, packed sub-byte types
(unpacked to a byte per element), strings, and sparse tensors (made dense). Sizes are checked before anything is
allocated.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath

import numpy as np
import onnx

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError
from tilewright.core.io.stored import Content, StoredArray, StoredBytes, loaded
from tilewright.core.limits import MAX_DIM, MAX_STORED_ELEMENTS, require_makeable, require_rank
from tilewright.frontend.model_file.source import Source
from tilewright.frontend.model_file.wire import DOUBLE_DATA, FLOAT_DATA, MARKER, RAW_DATA, open_file

# element type -> the typed field that holds it
_FIELDS: dict[str, str] = {
    "float32": "float_data", "complex64": "float_data", "float64": "double_data", "complex128": "double_data",
    "int64": "int64_data", "uint32": "uint64_data", "uint64": "uint64_data",
}  # fmt: skip
_BIT_FIELDS = frozenset(("float16", "bfloat16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
                         "float8e8m0"))  # fmt: skip
_SPAN_FIELDS = {FLOAT_DATA: "float_data", DOUBLE_DATA: "double_data"}


def check_dims(dims: tuple[int, ...], who: str) -> int:
    """The number of elements of a shape that a model declares. Raises ModelError for impossible shapes."""
    require_rank(who, len(dims))
    for d in dims:
        if not 0 <= d <= MAX_DIM:
            raise ModelError(f"{who}: dimensions must be in 0..2**40, got {list(dims)}")
    count = math.prod(dims)
    if count > MAX_STORED_ELEMENTS:
        raise ModelError(f"{who}: at most 2**31 elements expected, got {list(dims)}")
    return count


def read_tensor(source: Source, tensor: onnx.TensorProto, who: str) -> Content:
    """The array of a tensor message; a read-only view of the source where possible. A large one of a file is described
    and not read. Raises ModelError."""
    dtype = dtypes.from_onnx(tensor.data_type) if tensor.data_type else None
    if dtype is None:
        raise ModelError(f"{who}: tensor has no element type")
    dims = tuple(tensor.dims)
    count = check_dims(dims, who)
    if tensor.HasField("segment"):
        raise ModelError(f"{who}: segmented tensors are not part of ONNX any more")
    flat = _read_flat(source, tensor, dtype, count, who)
    if isinstance(flat, StoredBytes):
        return StoredArray.dense(flat, dtype.numpy, dims)
    array = flat.reshape(dims)
    if array.flags.writeable:
        array.flags.writeable = False
    return array


def read_sparse(source: Source, sparse: onnx.SparseTensorProto, who: str) -> np.ndarray:
    """The dense array of a sparse tensor message. Raises ModelError."""
    dims = tuple(sparse.dims)
    count = check_dims(dims, who)
    values = loaded(read_tensor(source, sparse.values, who))
    indices = loaded(read_tensor(source, sparse.indices, who))
    if values.ndim != 1 or indices.dtype != np.int64 or indices.shape[:1] != values.shape or indices.ndim > 2:
        raise ModelError(f"{who}: sparse tensor expects values [n] and int64 indices [n] or [n, {len(dims)}], "
                         f"got {list(values.shape)} and {indices.dtype}{list(indices.shape)}")  # fmt: skip
    if values.dtype == object:
        raise ModelError(f"{who}: sparse string tensors do not exist")
    flat = indices
    if indices.ndim == 2:
        if indices.shape[1] != len(dims):
            raise ModelError(f"{who}: sparse indices expect {len(dims)} columns, got {indices.shape[1]}")
        if ((indices < 0) | (indices >= np.array(dims, np.int64))).any():
            raise ModelError(f"{who}: sparse index outside {list(dims)}")
        flat = indices @ np.array([math.prod(dims[i + 1 :]) for i in range(len(dims))], np.int64)
    if ((flat < 0) | (flat >= count)).any():
        raise ModelError(f"{who}: sparse index outside {list(dims)}")
    require_makeable(who, "a dense form", count * values.dtype.itemsize)
    dense = np.zeros(count, values.dtype)
    dense[flat] = values
    dense.flags.writeable = False
    return dense.reshape(dims)


def _read_flat(
    source: Source, tensor: onnx.TensorProto, dtype: DType, count: int, who: str
) -> np.ndarray | StoredBytes:
    """The elements; where a file has them in their memory form, the part of it."""
    entries = {e.key: e.value for e in tensor.external_data}
    marker = entries.pop(MARKER, None)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if marker is not None or tensor.HasField("raw_data"):
            raise ModelError(f"{who}: tensor has both external and embedded data")
        nbytes = _stored_bytes(dtype, count)
        _require_raw(nbytes, dtype, count, who)
        return _decode_raw(_external(source, entries, nbytes, who), dtype, count, who)
    if marker is not None:
        if source.buffer is None or not marker.isdecimal() or not 0 <= int(marker[:9]) < len(source.spans):
            raise ModelError(f"{who}: tensor refers to data that the file does not have")
        span = source.spans[int(marker[:9])]
        if span.field == RAW_DATA:
            _require_raw(span.length, dtype, count, who)
            return _decode_raw(source.part(source.buffer, span.offset, span.length), dtype, count, who)
        stored = np.dtype(np.float32 if span.field == FLOAT_DATA else np.float64)
        if getattr(tensor, _SPAN_FIELDS[span.field]) or span.length % stored.itemsize:
            raise ModelError(f"{who}: tensor data is split or cut")
        part = source.part(source.buffer, span.offset, span.length)
        if isinstance(part, StoredBytes):
            if dtype.numpy == stored and span.length == count * stored.itemsize:
                return part
            part = part.array()
        return _from_typed(part.view(stored), _SPAN_FIELDS[span.field], dtype, count, who)
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        _require_raw(len(raw), dtype, count, who)
        return _decode_raw(np.frombuffer(raw, np.uint8), dtype, count, who)
    return _decode_typed(tensor, dtype, count, who)


def _stored_bytes(dtype: DType, count: int) -> int:
    return -(-count * dtype.bits // 8)


def _require_raw(length: int, dtype: DType, count: int, who: str) -> None:
    if dtype.kind == "s":
        raise ModelError(f"{who}: strings cannot be stored as raw data")
    expected = _stored_bytes(dtype, count)
    if length != expected:
        raise ModelError(f"{who}: {dtype} with {count} elements needs {expected} bytes of data, got {length}")


def _decode_raw(raw: np.ndarray | StoredBytes, dtype: DType, count: int, who: str) -> np.ndarray | StoredBytes:
    if isinstance(raw, StoredBytes):
        if dtype.bits >= 8 and dtype.kind != "b":
            return raw
        raw = raw.array()
    if dtype.bits < 8:
        return _unpack(raw, dtype, count)
    if dtype.kind == "b":
        return raw.view(np.bool_) if not count or raw.max() <= 1 else raw != 0
    if count == 0:
        return np.zeros(0, dtype.numpy)
    return raw.view(dtype.numpy)


def _unpack(packed: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """One element a byte out of packed 4-bit or 2-bit elements, lowest bits first."""
    per_byte = 8 // dtype.bits
    mask = (1 << dtype.bits) - 1
    shifts = np.arange(per_byte, dtype=np.uint8) * dtype.bits
    flat = ((packed[:, None] >> shifts) & mask).reshape(-1)[:count].astype(np.uint8)
    if dtype.kind == "f":
        return flat.view(dtype.numpy)
    if dtype.kind == "i":
        sign = 1 << (dtype.bits - 1)
        return ((flat.astype(np.int8) ^ sign) - sign).astype(dtype.numpy)
    return flat.astype(dtype.numpy)


def _decode_typed(tensor: onnx.TensorProto, dtype: DType, count: int, who: str) -> np.ndarray:
    if dtype.kind == "s":
        if len(tensor.string_data) != count:
            raise ModelError(f"{who}: {count} strings expected, got {len(tensor.string_data)}")
        out = np.empty(count, object)
        try:
            out[:] = [s.decode() for s in tensor.string_data]
        except UnicodeDecodeError as e:
            raise ModelError(f"{who}: string element is not UTF-8") from e
        return out
    name = _FIELDS.get(dtype.name, "int32_data")
    data = getattr(tensor, name)
    stored = {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64, "uint64_data": np.uint64,
              "int32_data": np.int32}[name]  # fmt: skip
    return _from_typed(np.array(data, stored), name, dtype, count, who)


def _from_typed(flat: np.ndarray, name: str, dtype: DType, count: int, who: str) -> np.ndarray:
    """Elements of a typed field in the memory form of ``dtype``."""
    if name != _FIELDS.get(dtype.name, "int32_data"):
        raise ModelError(f"{who}: {dtype} cannot be stored in {name}")
    expected = count
    if dtype.kind == "c":
        expected = 2 * count
    elif dtype.bits < 8:
        expected = _stored_bytes(dtype, count)
    if flat.size != expected:
        raise ModelError(f"{who}: {dtype} with {count} elements needs {expected} entries in {name}, got {flat.size}")
    if dtype.kind == "c":
        return flat.view(dtype.numpy)
    if dtype.bits < 8:
        return _unpack(flat.astype(np.uint8), dtype, count)
    if dtype.name in _BIT_FIELDS:
        return flat.astype(np.uint16 if dtype.bits == 16 else np.uint8).view(dtype.numpy)
    return flat.astype(dtype.numpy, copy=False)


def _external(source: Source, entries: dict[str, str], nbytes: int, who: str) -> np.ndarray | StoredBytes:
    """Bytes of an external data file."""
    location = entries.get("location", "")
    if source.directory is None:
        raise ModelError(f"{who}: its data is in file {location!r}: give the model by path")
    numbers = {}
    for key in ("offset", "length"):
        text = entries.get(key, "0" if key == "offset" else str(nbytes))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise ModelError(f"{who}: external data {key} must be a number, got {text[:40]!r}")
        numbers[key] = int(text)
    offset = numbers["offset"]
    if numbers["length"] != nbytes:
        raise ModelError(f"{who}: {nbytes} bytes of external data expected, got length {numbers['length']}")
    if location not in source.files:
        source.files[location] = open_file(_external_path(source.directory, location, who))
    buffer = source.files[location]
    if offset + nbytes > len(buffer):
        raise ModelError(f"{who}: external data {location!r} needs {offset + nbytes} bytes, got {len(buffer)}")
    return source.part(buffer, offset, nbytes)


def _external_path(directory: Path, location: str, who: str) -> Path:
    """The file of an external location, which must be inside the model's directory."""
    pure = PurePosixPath(location.replace("\\", "/"))
    if not location or "\0" in location or pure.is_absolute() or ".." in pure.parts:
        raise ModelError(f"{who}: external data must be a path inside the model's directory, got {location!r}")
    try:
        path = (directory / pure).resolve()
        is_file = path.is_file()
    except (OSError, RuntimeError, ValueError) as e:
        reason = getattr(e, "strerror", None) or type(e).__name__
        raise ModelError(f"{who}: external data {location!r} cannot be resolved: {reason}") from e
    if not path.is_relative_to(directory.resolve()):
        raise ModelError(f"{who}: external data {location!r} leads out of the model's directory")
    if not is_file:
        raise ModelError(f"{who}: external data file {location!r} does not exist, or is no regular file")
    return path
