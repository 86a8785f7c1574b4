"""Matrix tiles (AMX) of any CPU, by the text of the manual: kernels for them run here, their instructions in numpy.

A kernel's LLVM IR is the one that a CPU with the tiles gets, but for the names of the instructions, which become those
of functions of this module; they have the same parameters. Each thread has registers of its own. What the CPU would
refuse, an instruction without a configuration, stays in ``STATE.faults``, and so does a configuration that nobody gave
back.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.codegen import kernel
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.llvm import jit
from tilewright.kernels import link
from tilewright.machine.target import Target

FEATURES = ("amx-tile", "amx-bf16", "amx-int8")
ROWS, ROW_BYTES, REGISTERS = 16, 64, 8


class State:
    """The registers by thread, None where nothing is configured; and what went wrong."""

    def __init__(self) -> None:
        self.registers: dict[int, np.ndarray | None] = {}
        self.faults: list[str] = []
        self.calls: dict[str, int] = {}

    def reset(self) -> None:
        self.__init__()  # type: ignore[misc]

    def require_clean(self) -> None:
        """Products were made, nothing is left configured, and the CPU refused nothing."""
        assert not self.faults
        assert any(name.startswith("tdp") for name in self.calls)
        assert self.calls["ldtilecfg"] == self.calls["tilerelease"]
        assert all(r is None for r in self.registers.values())

    def tile(self, n: int) -> np.ndarray:
        """Register ``n`` of this thread, 16 rows of 64 bytes."""
        found = self.registers.get(threading.get_ident())
        if found is None:
            self.faults.append(f"register {n} is used without a configuration")
            return np.zeros((ROWS, ROW_BYTES), np.uint8)
        return found[n]


STATE = State()


def ldtilecfg(address: int) -> None:
    config = np.frombuffer(ctypes.string_at(address, 64), np.uint8)
    columns, rows = config[16:32].view("<u2"), config[48:56]
    ok = config[0] == 1 and not config[1:16].any() and not config[32:48].any() and not config[56:].any()
    if not ok or (columns != ROW_BYTES).any() or (rows != ROWS).any():
        STATE.faults.append(f"configuration {config.tolist()}")
    STATE.registers[threading.get_ident()] = np.zeros((REGISTERS, ROWS, ROW_BYTES), np.uint8)


def tilerelease() -> None:
    STATE.registers[threading.get_ident()] = None


def tilezero(n: int) -> None:
    STATE.tile(n)[:] = 0


def tileloadd64(n: int, address: int, pitch: int) -> None:
    for r, row in enumerate(STATE.tile(n)):
        row[:] = np.frombuffer(ctypes.string_at(address + r * pitch, ROW_BYTES), np.uint8)


def tileloaddt164(n: int, address: int, pitch: int) -> None:
    tileloadd64(n, address, pitch)


def tilestored64(n: int, address: int, pitch: int) -> None:
    for r, row in enumerate(STATE.tile(n)):
        ctypes.memmove(address + r * pitch, row.tobytes(), ROW_BYTES)


_LEAST = np.finfo(np.float32).tiny


def _flushed(x: np.ndarray) -> np.ndarray:
    return x * (np.abs(x) >= _LEAST)  # zeros keep their signs


def tdpbf16ps(total: int, a: int, b: int) -> None:
    """Sums of the even and of the odd products, each rounded in order, added up and then to the total."""

    def wide(n: int) -> np.ndarray:
        bits = STATE.tile(n).view("<u2").astype(np.uint32) << 16
        return _flushed(bits.view(np.float32)).reshape(ROWS, 16, 2)

    x, y = wide(a).astype(np.float64), wide(b).astype(np.float64)
    sums = np.zeros((ROWS, 16, 2), np.float32)
    for products in x.transpose(1, 0, 2)[:, :, None] * y[:, None]:
        sums = _flushed((sums + products).astype(np.float32))
    found = STATE.tile(total).view("<f4")
    found[:] = _flushed(_flushed(found) + _flushed(sums[..., 0] + sums[..., 1]))


def tdpbusd(total: int, a: int, b: int) -> None:
    x = STATE.tile(a).reshape(ROWS, 16, 4).astype(np.int32)
    y = STATE.tile(b).view(np.int8).reshape(16, 16, 4).astype(np.int32)
    found = STATE.tile(total).view("<i4")
    found[:] = found + np.einsum("mkt,knt->mn", x, y, dtype=np.int32)


_SIGNATURES: dict[Callable[..., None], tuple[type, ...]] = {
    ldtilecfg: (ctypes.c_void_p,),
    tilerelease: (),
    tilezero: (ctypes.c_int8,),
    tileloadd64: (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
    tileloaddt164: (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
    tilestored64: (ctypes.c_int8, ctypes.c_void_p, ctypes.c_int64),
    tdpbf16ps: (ctypes.c_int8,) * 3,
    tdpbusd: (ctypes.c_int8,) * 3,
}


_COUNTING = threading.Lock()


def _counted(function: Callable[..., None]) -> Callable[..., None]:
    def call(*args: int) -> None:
        with _COUNTING:
            STATE.calls[function.__name__] = STATE.calls.get(function.__name__, 0) + 1
        try:
            function(*args)
        except Exception as e:  # noqa: BLE001  # an error in a callback would be lost
            STATE.faults.append(f"{function.__name__}{args}: {e!r}")

    return call


_CALLBACKS = {f.__name__: ctypes.CFUNCTYPE(None, *args)(_counted(f)) for f, args in _SIGNATURES.items()}
IMPORTS = {f"simulated.{name}": ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in _CALLBACKS.items()}


def with_tiles(target: Target | None = None) -> Target:
    """This machine, or another, with matrix tiles."""
    target = target or detect_host()
    words = [w for w in target.features.split(",") if w and w[1:] not in FEATURES]
    return dataclasses.replace(target, features=",".join([*words, *(f"+{f}" for f in FEATURES)]))


def without_tiles(target: Target) -> Target:
    return dataclasses.replace(target, features=target.features.replace("+amx-", "-amx-"))


def simulated(text: str) -> str:
    """The IR of a module with the instructions as calls of the functions above."""
    for name in _CALLBACKS:
        text = text.replace(f"@llvm.x86.{name}(", f"@simulated.{name}(")
    return text


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> State:
    """Lets kernels and models for :func:`with_tiles` be built and run here. That nothing went wrong is for the test to
    check (:meth:`State.require_clean`)."""
    STATE.reset()
    compile_object, library = jit.compile_object, jit.Library

    def compiled(text: str, target: Target, *args: object, **more: object) -> bytes:
        return compile_object(simulated(text), without_tiles(target), *args, **more)  # type: ignore[arg-type]

    def linked(objects: object, exports: object, imports: dict[str, int] | None = None) -> jit.Library:
        return library(objects, exports, {**IMPORTS, **(imports or {})})  # type: ignore[arg-type]

    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")  # what is simulated is no object of that target
    for module in (jit, kernel):
        monkeypatch.setattr(module, "compile_object", compiled)
    for module in (kernel, link):
        monkeypatch.setattr(module, "Library", linked)
        monkeypatch.setattr(module, "require_runs_here", lambda target, who: None)
    monkeypatch.setattr(importlib.import_module("tilewright.compile"), "why_foreign", lambda target: "")
    return STATE
