"""Artifacts in Python without the compiler: ``load(path).run(feed)``. Needs numpy and nothing else of this package.

Element types that numpy lacks (bfloat16 and narrower floats) come from ``ml_dtypes`` where a model has them.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import itertools
import json
import mmap
import os
import platform
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.deploy.files.package import MAGIC, Member, PackageError, read_package
from tilewright.deploy.files.seal import SealError, require_seal

_VERSION = 1
_MOST_CALLS = 64
"""Combinations of shapes whose runs are kept prepared."""
_NAMES = {
    (0, 8): "i1",
    (0, 16): "i2",
    (0, 32): "i4",
    (0, 64): "i8",
    (1, 8): "u1",
    (1, 16): "u2",
    (1, 32): "u4",
    (1, 64): "u8",
    (2, 16): "f2",
    (2, 32): "f4",
    (2, 64): "f8",
    (5, 64): "c8",
    (5, 128): "c16",
    (6, 8): "?",
}
_NARROW = {
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
    (17, 4): "float4_e2m1fn",
    (0, 4): "int4",
    (1, 4): "uint4",
    (0, 2): "int2",
    (1, 2): "uint2",
}


class Status(IntEnum):
    """Of ``tilewright.h``: what a failure is about."""

    OK = 0
    INVALID_ARGUMENT = 1
    INVALID_INPUT = 2
    INVALID_ARTIFACT = 3
    UNSUPPORTED_CPU = 4
    OUT_OF_MEMORY = 5
    BUSY = 6
    SYSTEM = 7
    INTERNAL = 8


class ArtifactError(RuntimeError):
    """An artifact that cannot be loaded or run."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = Status(status)


class ArtifactInputError(ArtifactError, ValueError):
    """Inputs that do not fit the model."""


class _Dtype(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _Dtype),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("dtype", _Dtype), ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("dims", ctypes.POINTER(ctypes.c_char_p)),
    ]  # fmt: skip


class _Options(ctypes.Structure):
    _fields_ = [
        ("threads", ctypes.c_int32), ("profile", ctypes.c_int32), ("parallel_for", ctypes.c_void_p),
        ("parallel_context", ctypes.c_void_p),
    ]  # fmt: skip


class Spec:
    """An input or output. ``shape``: sizes, or the text of those that are not fixed; None if the rank is unknown."""

    def __init__(self, spec: _Spec) -> None:
        self.name = spec.name.decode()
        self.code = (spec.dtype.code, spec.dtype.bits)
        self.dtype = _numpy(self.code)
        self.shape: tuple[int | str, ...] | None = None
        if spec.ndim >= 0:
            sizes = [(spec.shape[i], spec.dims[i]) for i in range(spec.ndim)]
            self.shape = tuple(n if n >= 0 else (d or b"?").decode() for n, d in sizes)

    def __repr__(self) -> str:
        shape = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{shape}]"


class Artifact:
    """A model that :meth:`run` computes. Several threads may use it: calls take turns."""

    def __init__(self, path: str | os.PathLike[str], threads: int = 0, profile: bool = False) -> None:
        self._model, self._session = ctypes.c_void_p(), ctypes.c_void_p()
        self._file: mmap.mmap | None = None
        try:
            with Path(path).open("rb") as f:
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as e:
            raise ArtifactError(Status.SYSTEM, f"{path}: {e.strerror or e}") from e
        except ValueError as e:
            raise ArtifactError(Status.INVALID_ARTIFACT, f"{path}: expected an artifact of tilewright, got {e}") from e
        if data[: len(MAGIC)] != MAGIC:
            with data, memoryview(data) as view:
                _require_whole(view, path)
            self._library = _library(_spelled(Path(path).absolute()), path)
            self._check(self._library.tw_model_load(None, ctypes.byref(self._model)))
        else:
            self._file = data  # its weights are used as long as this object lives
            self._library = self._best_member(path, memoryview(data))
        options = _Options(threads, int(profile), None, None)
        self._check(self._library.tw_session_create(self._model, ctypes.byref(options), ctypes.byref(self._session)))
        self._lock = threading.Lock()
        self._free = weakref.finalize(self, _freed, self._library, self._model, self._session)
        self.manifest: dict[str, Any] = json.loads(self._library.tw_model_manifest(self._model))
        self._calls: dict[tuple[object, ...], _Call] = {}
        self.inputs = self._specs("input")
        self.outputs = self._specs("output")
        self._names = [s.name for s in self.outputs]
        self._expected = {s.name for s in self.inputs}

    def _best_member(self, path: str | os.PathLike[str], data: memoryview) -> ctypes.CDLL:
        """The library of the first member that this CPU can run, its model loaded."""
        refusals = []
        try:
            for member in read_package(data):
                if member.system != _SYSTEM_NAME:
                    refusals.append(f"for {member.system}, this is {_SYSTEM_NAME}")
                    continue
                library = _library_of(member, data, path)
                weights = np.frombuffer(data, np.uint8)[member.weights.offset :][: member.weights.size]
                status = library.tw_model_load_memory(weights.ctypes.data, weights.size, ctypes.byref(self._model))
                if status == 0:
                    return library
                message = library.tw_error().decode(errors="replace")
                if status != Status.UNSUPPORTED_CPU:
                    raise ArtifactError(status, f"{path}: {message}")
                refusals.append(message)
        except PackageError as e:
            raise ArtifactError(Status.INVALID_ARTIFACT, f"{path}: {e}") from e
        raise ArtifactError(Status.UNSUPPORTED_CPU, f"{path}: no code in it is for this CPU: {'; '.join(refusals)}")

    def _specs(self, what: str) -> tuple[Spec, ...]:
        out = []
        for i in range(getattr(self._library, f"tw_model_{what}_count")(self._model)):
            spec = _Spec()
            self._check(getattr(self._library, f"tw_model_{what}")(self._model, i, ctypes.byref(spec)))
            out.append(Spec(spec))
        return tuple(out)

    def _check(self, status: int) -> None:
        if status:
            message = self._library.tw_error().decode(errors="replace")
            raise (ArtifactInputError if status == Status.INVALID_INPUT else ArtifactError)(status, message)

    def run(self, feed: Mapping[str, object]) -> dict[str, np.ndarray]:
        """All outputs, by name. Raises ArtifactInputError for inputs that do not fit."""
        if feed.keys() != self._expected:
            missing = [s.name for s in self.inputs if s.name not in feed]
            unknown = [n for n in feed if n not in self._expected]
            raise ArtifactInputError(
                Status.INVALID_INPUT, f"inputs: missing {missing}, unknown {unknown}; expected {list(self.inputs)}"
            )
        arrays = [np.asarray(feed[s.name]) for s in self.inputs]
        key = tuple([(a.dtype, a.shape, a.strides) for a in arrays])
        with self._lock:
            self._require_open()
            call = self._calls.get(key)
            if call is None:
                if len(self._calls) >= _MOST_CALLS:
                    self._calls.clear()
                call = self._calls[key] = self._prepared(arrays)
            results = call.enter(arrays)
            self._check(self._library.tw_session_run(self._session, *call.arguments))
            return {
                n: _copied(t) if r is None else r for n, t, r in zip(self._names, call.outputs, results, strict=True)
            }

    def _prepared(self, arrays: Sequence[np.ndarray]) -> _Call:
        """What is the same in all runs with inputs of these types and shapes."""
        inputs = _tensors(arrays)
        outputs = (_Tensor * max(len(self.outputs), 1))()
        counts = len(arrays), len(self.outputs)
        status = self._library.tw_session_shapes(self._session, inputs, counts[0], outputs, counts[1])
        shapes: list[tuple[int, ...] | None] = [
            None if status or t.ndim < 0 else tuple(t.shape[: t.ndim]) for t in outputs[: counts[1]]
        ]
        return _Call(inputs, outputs, counts, shapes, [s.dtype for s in self.outputs])

    def shapes(self, shapes: Sequence[Sequence[int]]) -> list[tuple[int, ...] | None]:
        """Shapes of the outputs for inputs of these shapes; None for one that depends on what the inputs hold."""
        with self._lock:
            self._require_open()
            sizes = [(ctypes.c_int64 * max(len(s), 1))(*s) for s in shapes]
            inputs = (_Tensor * max(len(shapes), 1))()
            for t, s, size, spec in zip(inputs, shapes, sizes, self.inputs, strict=False):
                t.device, t.ndim, t.shape = _Device(1, 0), len(s), size
                t.dtype = _Dtype(*spec.code, 1)
            outputs = (_Tensor * max(len(self.outputs), 1))()
            self._check(self._library.tw_session_shapes(self._session, inputs, len(shapes), outputs, len(self.outputs)))
            return [None if t.ndim < 0 else tuple(t.shape[: t.ndim]) for t in outputs[: len(self.outputs)]]

    def _require_open(self) -> None:
        if not self._free.alive:
            raise ArtifactError(Status.INVALID_ARGUMENT, "expected an artifact that is open, got one that was closed")

    def close(self) -> None:
        """Free the model, its session and its code. Running it afterwards is an error; closing it again is not."""
        with self._lock:
            self._free()


def _freed(library: ctypes.CDLL, model: ctypes.c_void_p, session: ctypes.c_void_p) -> None:
    library.tw_session_free(session)
    library.tw_model_free(model)
    if hasattr(_ctypes, "dlclose"):
        _ctypes.dlclose(library._handle)


def load(path: str | os.PathLike[str], threads: int = 0) -> Artifact:
    """Load an exported model: a library (``model.so``) or a package (``model.twa``). Needs numpy and nothing of the
    compiler.

    Gives an artifact with ``inputs``, ``outputs``, ``manifest`` and ``run``, as a CompiledModel has them. It is machine
    code: load only what you trust. ``threads``: 0 for as many as it was built for.

    Raises ArtifactError for a file that is damaged, of another version, or for another CPU.

    >>> paths = tilewright.compile("model.onnx").export("model.so")
    >>> artifact = tilewright.load("model.so", threads=1)
    >>> artifact.run({"x": np.ones((4, 32), np.float32)})["y"].shape
    (4, 10)
    """
    return Artifact(path, threads)


_SYSTEM_NAME = f"{ {'AMD64': 'x86_64', 'arm64': 'aarch64'}.get(platform.machine(), platform.machine()) }-{sys.platform}"


_numbers = itertools.cycle(range(1000))
_loaded: dict[str, list[tuple[int, int]]] = {}
"""By path, the files (device and number) that were loaded from there."""


def _spelled(place: Path) -> str:
    """A path to the file, spelled otherwise for each file that has been there: systems take a library that they have
    loaded by the same name for the same library."""
    facts = place.stat()
    found = _loaded.setdefault(os.fspath(place), [])
    if (key := (facts.st_dev, facts.st_ino)) not in found:
        found.append(key)
    return os.path.join(place.parent, *["."] * found.index(key), place.name)


def _require_whole(data: memoryview, path: str | os.PathLike[str]) -> None:
    try:
        require_seal(data)
    except SealError as e:
        raise ArtifactError(Status.INVALID_ARTIFACT, f"{path}: {e}") from e


def _library(place: str, path: str | os.PathLike[str]) -> ctypes.CDLL:
    try:
        library = _declared(ctypes.CDLL(place, mode=getattr(os, "RTLD_LOCAL", 0) | getattr(os, "RTLD_NOW", 0)))
    except (OSError, AttributeError) as e:
        raise ArtifactError(Status.INVALID_ARTIFACT, f"{path}: expected an artifact of tilewright: {e}") from e
    version = library.tw_version()
    if version != _VERSION:
        raise ArtifactError(
            Status.INVALID_ARTIFACT, f"{path}: expected version {_VERSION} of the interface, got {version}"
        )
    return library


def _library_of(member: Member, data: memoryview, path: str | os.PathLike[str]) -> ctypes.CDLL:
    """The code of a member, which the system loads from a file alone: one in memory where there are such."""
    code = bytes(member.code.of(data, "code"))
    with _as_file(code) as place:
        return _library(place, path)


@contextlib.contextmanager
def _as_file(code: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("tilewright")
        try:
            with os.fdopen(file, "wb", closefd=False) as f:
                f.write(code)
            yield "/".join(["/proc/self/fd", *["."] * next(_numbers), str(file)])
        finally:
            os.close(file)
        return
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        place = Path(folder) / "model"
        with place.open("wb") as out:
            out.write(code)
        yield os.fspath(place)


def _declared(library: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    tensors = ctypes.POINTER(_Tensor)
    for name, arguments in {
        "tw_model_load": [ctypes.c_char_p, pointer], "tw_model_load_memory": [pointer, ctypes.c_uint64, pointer],
        "tw_model_input": [pointer, number, pointer],
        "tw_model_output": [pointer, number, pointer], "tw_session_create": [pointer, pointer, pointer],
        "tw_session_run": [pointer, tensors, number, tensors, number],
        "tw_session_shapes": [pointer, tensors, number, tensors, number], "tw_model_input_count": [pointer],
        "tw_model_output_count": [pointer],
    }.items():  # fmt: skip
        getattr(library, name).argtypes = arguments
    library.tw_error.restype = library.tw_model_manifest.restype = ctypes.c_char_p
    library.tw_model_manifest.argtypes = [pointer]
    for name in ("tw_session_free", "tw_model_free"):
        getattr(library, name).argtypes = [pointer]
        getattr(library, name).restype = None
    return library


def _numpy(code: tuple[int, int]) -> np.dtype:
    if code in _NAMES:
        return np.dtype(_NAMES[code])
    import ml_dtypes  # a model without such elements does not need it

    dtype: np.dtype = np.dtype(getattr(ml_dtypes, _NARROW[code]))
    return dtype


_CODES: dict[np.dtype, tuple[int, int]] = {np.dtype(n): c for c, n in _NAMES.items()}


def _code(dtype: np.dtype) -> tuple[int, int]:
    if dtype not in _CODES:
        found = next((c for c, n in _NARROW.items() if n == dtype.name), None)
        if found is None:
            raise ArtifactInputError(Status.INVALID_INPUT, f"inputs: arrays of {dtype} are no tensors")
        _CODES[dtype] = found
    return _CODES[dtype]


class _Call:
    """A run, prepared. ``shapes`` of outputs, None for those that only a run tells."""

    def __init__(
        self, inputs: Any, outputs: Any, counts: tuple[int, int], shapes: Sequence[tuple[int, ...] | None],
        dtypes: Sequence[np.dtype],
    ) -> None:  # fmt: skip
        self.inputs, self.outputs = list(inputs[: counts[0]]), list(outputs[: counts[1]])
        self.arguments = inputs, counts[0], outputs, counts[1]
        self._made = list(zip(self.outputs, shapes, dtypes, strict=True))
        for t, shape, dtype in self._made:
            if shape is not None:
                t.device, t.ndim, t.dtype, t.strides = _Device(1, 0), len(shape), _Dtype(*_code(dtype), 1), None
                t.shape = (ctypes.c_int64 * max(len(shape), 1))(*shape)

    def enter(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """Put the addresses of inputs and of new outputs in their places; the outputs."""
        for t, a in zip(self.inputs, arrays, strict=True):
            t.data = _address(a)
        results: list[np.ndarray | None] = []
        for t, shape, dtype in self._made:
            if shape is None:
                t.data = None
                results.append(None)
            else:
                array = np.empty(shape, dtype)
                t.data = _address(array)
                results.append(array)
        return results


_NOTHING = ctypes.c_char * 0


def _address(array: np.ndarray) -> int:
    try:
        return ctypes.addressof(_NOTHING.from_buffer(array))  # type: ignore[arg-type]  # a buffer from Python 3.12 on
    except (TypeError, ValueError):  # read-only, or of a type that buffers do not have
        return int(array.__array_interface__["data"][0])


def _tensors(arrays: Sequence[np.ndarray]) -> ctypes.Array[_Tensor]:
    out = (_Tensor * max(len(arrays), 1))()
    for t, a in zip(out, arrays, strict=False):
        t.data, t.device, t.ndim, t.dtype = a.ctypes.data, _Device(1, 0), a.ndim, _Dtype(*_code(a.dtype), 1)
        t.shape = (ctypes.c_int64 * max(a.ndim, 1))(*a.shape)
        if not a.flags.c_contiguous:
            t.strides = (ctypes.c_int64 * max(a.ndim, 1))(*(s // a.itemsize for s in a.strides))
    return out


def _copied(t: _Tensor) -> np.ndarray:
    shape = tuple(t.shape[i] for i in range(t.ndim))
    dtype = _numpy((t.dtype.code, t.dtype.bits))
    out = np.empty(shape, dtype)
    if out.nbytes:
        ctypes.memmove(out.ctypes.data, t.data, out.nbytes)
    return out
