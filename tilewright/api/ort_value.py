"""Tensors as ONNX Runtime's ``OrtValue``: an array of numpy, or a sequence, with its type in words of ONNX."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError, ModelError
from tilewright.core.options import shown

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class OrtDevice:
    """Where a value lies: here always the CPU.

    ``kind``: ``cpu``. ``index``: 0.

    >>> tilewright.OrtDevice.make("cpu", 0).device_type()
    'cpu'
    >>> tilewright.OrtDevice.make("cuda", 0)
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: OrtDevice.make: expected the device 'cpu', got 'cuda'
    """

    kind: str = CPU
    index: int = 0

    @staticmethod
    def make(device_name: str, device_id: int = 0) -> OrtDevice:
        """Raises InputError for another device than the CPU."""
        require_cpu(device_name, "OrtDevice.make")
        return OrtDevice(CPU, device_id)

    def device_type(self) -> str:
        """``cpu``."""
        return self.kind

    def device_id(self) -> int:
        """0."""
        return self.index


class OrtValue:
    """A tensor (``numpy()`` is the very array, not a copy), or a sequence of tensors.

    >>> value = tilewright.OrtValue.ortvalue_from_numpy(np.ones((4, 32), np.float32))
    >>> value.shape(), value.data_type()
    ([4, 32], 'tensor(float)')
    >>> session = tilewright.InferenceSession("model.onnx")
    >>> (y,) = session.run_with_ort_values(None, {"x": value})
    >>> y.numpy().shape
    (4, 10)
    """

    __slots__ = ("_value",)

    def __init__(self, value: np.ndarray | Sequence[object]) -> None:
        """Raises InputError for an array whose element type ONNX does not have."""
        if isinstance(value, np.ndarray):
            element_type(value.dtype)
        self._value = value

    # -- making one --------------------------------------------------------------------------------------------------
    @staticmethod
    def ortvalue_from_numpy(numpy_obj: np.ndarray, device_type: str = CPU, device_id: int = 0) -> OrtValue:
        """The array as a value; the elements are shared."""
        require_cpu(device_type, "ortvalue_from_numpy")
        return OrtValue(np.asarray(numpy_obj))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: np.ndarray, onnx_element_type: int) -> OrtValue:
        """The bytes of the array as elements of a type of ``onnx.TensorProto``: of a type that numpy lacks."""
        target = of_number(onnx_element_type).numpy
        array = np.asarray(data)
        if array.itemsize != target.itemsize:
            raise InputError(f"ortvalue_from_numpy_with_onnx_type: expected elements of {target.itemsize} bytes for "
                             f"{target}, got {array.dtype}")  # fmt: skip
        return OrtValue(array.view(target))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: object, device_type: str = CPU, device_id: int = 0
    ) -> OrtValue:
        """A tensor whose elements are undefined. ``element_type``: of numpy, or a number of ``onnx.TensorProto``."""
        require_cpu(device_type, "ortvalue_from_shape_and_type")
        return OrtValue(np.empty(tuple(shape), numpy_type(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """The tensor of another library, by DLPack; the elements are shared."""
        array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    # -- what it is --------------------------------------------------------------------------------------------------
    def numpy(self) -> Any:
        """The array of a tensor, the list of a sequence."""
        return self._value

    def is_tensor(self) -> bool:
        """True for a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """True for a sequence of tensors."""
        return not self.is_tensor()

    def is_sparse_tensor(self) -> bool:
        """False: no value here is sparse."""
        return False

    def has_value(self) -> bool:
        """False for an optional value that is none."""
        return self._value is not None

    def shape(self) -> list[int]:
        """The sizes of a tensor, the outermost dimension first."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """``tensor(float)``, ``seq(tensor(int64))``."""
        if self.is_tensor():
            return element_type(self._tensor().dtype).onnx_text
        first = next((x for x in self._value if isinstance(x, np.ndarray)), None)
        return f"seq({(dtypes.float32 if first is None else element_type(first.dtype)).onnx_text})"

    def element_type(self) -> int:
        """The number of ``onnx.TensorProto``."""
        return element_type(self._tensor().dtype).onnx

    def device_name(self) -> str:
        """``cpu``."""
        return CPU

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._tensor().ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the elements of a tensor."""
        return int(self._tensor().nbytes)

    def update_inplace(self, np_arr: np.ndarray) -> None:
        """Copy elements into the tensor. Raises InputError for another shape or element type."""
        mine, given = self._tensor(), np.asarray(np_arr)
        if (given.shape, given.dtype) != (mine.shape, mine.dtype):
            raise InputError(f"update_inplace: expected {mine.dtype}{list(mine.shape)}, got {given.dtype}"
                             f"{list(given.shape)}")  # fmt: skip
        np.copyto(mine, given)

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor().__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._tensor(), dtype=dtype, copy=copy)

    def _tensor(self) -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise InputError("OrtValue: expected a tensor, got a sequence")
        return self._value


def plain(value: object) -> object:
    """What a session takes: the array or list of an OrtValue; of another library's tensor an array that shares it."""
    if isinstance(value, OrtValue):
        return value.numpy()
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return np.from_dlpack(value)
    return value


def element_type(dtype: np.dtype) -> DType:
    """Raises InputError for a type that ONNX does not have."""
    if dtype.kind in "OUST":
        return dtypes.string
    try:
        return dtypes.from_numpy(dtype)
    except ModelError as e:
        raise InputError(f"OrtValue: expected an element type of ONNX, got {dtype}") from e


def of_number(number: int) -> DType:
    """The element type of a number of ``onnx.TensorProto``. Raises InputError."""
    try:
        return dtypes.from_onnx(number)
    except ModelError as e:
        raise InputError(f"expected an element type of onnx.TensorProto, got {number}") from e


def numpy_type(given: object) -> np.dtype:
    """numpy's type for one of numpy or a number of ``onnx.TensorProto``. Raises InputError."""
    if isinstance(given, int) and not isinstance(given, bool):
        return of_number(given).numpy
    try:
        found: np.dtype = np.dtype(given)  # type: ignore[call-overload]
    except TypeError as e:
        raise InputError(f"expected an element type, got {shown(given)}") from e
    element_type(found)
    return found


def at_address(pointer: int, element: object, shape: Sequence[int]) -> np.ndarray:
    """The tensor that lies at an address, which stays the caller's."""
    dtype = numpy_type(element)
    if dtype.hasobject:
        raise InputError(f"a buffer: expected elements of a fixed size, got {dtype}")
    count = int(np.prod(tuple(shape), dtype=np.int64))
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(tuple(shape))


def require_cpu(device: object, where: str) -> None:
    """Raises InputError for another device than the CPU."""
    if not (isinstance(device, str) and device.lower() == CPU):
        raise InputError(f"{where}: expected the device 'cpu', got {shown(device)}")
