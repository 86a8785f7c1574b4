"""Element types: every type that an ONNX tensor can have, once, with its numpy and storage facts.

Sub-byte types (int4, uint4, int2, uint2, float4e2m1) are stored one element per byte, as ``ml_dtypes`` does;
ONNX's packed form exists only in model files.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    ``kind``: ``f`` float, ``i`` signed, ``u`` unsigned, ``b`` boolean, ``c`` complex, ``s`` string.
    ``bits``: information bits; ``itemsize``: bytes an element occupies in memory (0 for strings).
    """

    name: str
    kind: str
    bits: int
    itemsize: int
    onnx: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype of an array that holds this type (``object`` for strings)."""
        return _NUMPY[self.name]

    @property
    def onnx_text(self) -> str:
        """The type of a tensor of such elements in ONNX's words: ``tensor(float)``."""
        return f"tensor({_ONNX_NAMES.get(self.name, self.name)})"

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    def holds(self, low: int, high: int) -> bool:
        """True if this is a type of integers that has all of ``low`` to ``high``."""
        least = -(1 << (self.bits - 1)) if self.kind == "i" else 0
        return self.is_integer and least <= low and high < least + (1 << self.bits)

    @property
    def is_narrow_float(self) -> bool:
        """True for floats below 32 bits: stored as they are, computed in float32."""
        return self.kind == "f" and self.bits < 32


_ONNX_NAMES = {"float32": "float", "float64": "double"}

# the number is onnx.TensorProto.DataType
float32 = DType("float32", "f", 32, 4, 1)
uint8 = DType("uint8", "u", 8, 1, 2)
int8 = DType("int8", "i", 8, 1, 3)
uint16 = DType("uint16", "u", 16, 2, 4)
int16 = DType("int16", "i", 16, 2, 5)
int32 = DType("int32", "i", 32, 4, 6)
int64 = DType("int64", "i", 64, 8, 7)
string = DType("string", "s", 0, 0, 8)
bool_ = DType("bool", "b", 8, 1, 9)
float16 = DType("float16", "f", 16, 2, 10)
float64 = DType("float64", "f", 64, 8, 11)
uint32 = DType("uint32", "u", 32, 4, 12)
uint64 = DType("uint64", "u", 64, 8, 13)
complex64 = DType("complex64", "c", 64, 8, 14)
complex128 = DType("complex128", "c", 128, 16, 15)
bfloat16 = DType("bfloat16", "f", 16, 2, 16)
float8e4m3fn = DType("float8e4m3fn", "f", 8, 1, 17)
float8e4m3fnuz = DType("float8e4m3fnuz", "f", 8, 1, 18)
float8e5m2 = DType("float8e5m2", "f", 8, 1, 19)
float8e5m2fnuz = DType("float8e5m2fnuz", "f", 8, 1, 20)
uint4 = DType("uint4", "u", 4, 1, 21)
int4 = DType("int4", "i", 4, 1, 22)
float4e2m1 = DType("float4e2m1", "f", 4, 1, 23)
float8e8m0 = DType("float8e8m0", "f", 8, 1, 24)
uint2 = DType("uint2", "u", 2, 1, 25)
int2 = DType("int2", "i", 2, 1, 26)
object_ = DType("object", "s", 0, 0, 0)  # any Python value: a sequence or an optional; not an element type of ONNX

ALL: tuple[DType, ...] = (
    float32, uint8, int8, uint16, int16, int32, int64, string, bool_, float16, float64, uint32, uint64,
    complex64, complex128, bfloat16, float8e4m3fn, float8e4m3fnuz, float8e5m2, float8e5m2fnuz, uint4, int4,
    float4e2m1, float8e8m0, uint2, int2,
)  # fmt: skip
_BY_NAME = {t.name: t for t in ALL}
_BY_ONNX = {t.onnx: t for t in ALL}
_NUMPY: dict[str, np.dtype] = {
    "string": np.dtype(object),
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "uint4": np.dtype(ml_dtypes.uint4),
    "int4": np.dtype(ml_dtypes.int4),
    "float4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
    "float8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "uint2": np.dtype(ml_dtypes.uint2),
    "int2": np.dtype(ml_dtypes.int2),
}
_NUMPY.update({t.name: np.dtype(t.name) for t in ALL if t.name not in _NUMPY})
_BY_NUMPY = {v: _BY_NAME[k] for k, v in _NUMPY.items()}
_NUMPY[object_.name] = np.dtype(object)


def from_name(name: str) -> DType:
    """The type called ``name`` (``"float32"``). Raises ModelError for an unknown name."""
    if name not in _BY_NAME:
        raise ModelError(f"unknown element type {name!r}")
    return _BY_NAME[name]


def from_onnx(code: int) -> DType:
    """The type with ONNX ``TensorProto.DataType`` number ``code``. Raises ModelError if there is none."""
    if code not in _BY_ONNX:
        raise ModelError(f"unknown ONNX element type number {code}")
    return _BY_ONNX[code]


def from_numpy(dtype: np.dtype | type) -> DType:
    """The type of arrays with numpy dtype ``dtype``; any string dtype maps to ``string``."""
    dt = np.dtype(dtype)
    if dt.kind in "SUT":
        return string
    if dt not in _BY_NUMPY:
        raise ModelError(f"numpy dtype {dt} has no ONNX element type")
    return _BY_NUMPY[dt]
