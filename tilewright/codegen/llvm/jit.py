"""LLVM text to object bytes, and object bytes to callable addresses.

Compilation runs in its own LLVM context and target machine, so several modules can be compiled on several threads at
once: the two long calls (optimise, generate code) are made past llvmlite's global lock, which the LLVM library itself
does not need. Loaded code belongs to a :class:`Library`; dropping it gives its memory back.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi
from llvmlite.binding.newpassmanagers import NewPassManager

from tilewright.codegen.cache import ObjectCache, object_key
from tilewright.core.errors import InternalError, TargetError
from tilewright.machine.target import Target

_initialize_lock = threading.Lock()


def initialize() -> None:
    """Make LLVM's code generators available (idempotent)."""
    with _initialize_lock:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        llvm.initialize_native_asmparser()


def target_machine(target: Target, opt: int = 3) -> llvm.TargetMachine:
    """A fresh LLVM target machine. Raises TargetError if LLVM does not know the CPU's architecture."""
    initialize()
    try:
        machine = llvm.Target.from_triple(target.triple)
    except RuntimeError as e:
        raise TargetError(f"target {target.triple}: {e}") from e
    return machine.create_target_machine(
        cpu=target.cpu, features=target.features, opt=opt, reloc="pic", codemodel="small", jit=False
    )


def data_layout(machine: llvm.TargetMachine, target: Target) -> str:
    """What a module has to say of how data lies, and how names are written, where LLVM's defaults do not do: it takes
    pointers of 64 bits and names as ELF has them for granted. The rest it needs not know, and makes better use of
    registers then."""
    whole = str(machine.target_data)
    if target.pointer_bytes < 8:
        return whole
    return "" if llvm.get_object_format(target.triple) == "ELF" else "-".join(whole.split("-")[:2])


def compile_object(text: str, target: Target, opt: int = 3, passes: bool = True) -> bytes:
    """Object code of an LLVM IR module, optimised at level ``opt``. ``passes`` False: it is written so that LLVM's
    passes, which take most of the time, find nothing to do."""
    machine, module = _optimised(text, target, opt) if passes else _parsed(text, target, opt)
    return _emit(machine, module)


def cached_object(text: str, target: Target, opt: int, cache: ObjectCache | None, passes: bool = True) -> bytes:
    """The same, kept in ``cache``. Raises InternalError if nothing came of it."""
    key = object_key(text, target, opt)
    code = cache.get(key) if cache is not None else None
    if code is None:
        code = compile_object(text, target, opt, passes)
        if cache is not None:
            cache.put(key, code)
    if not code:
        raise InternalError("codegen: a module compiled to nothing")
    return code


def assembly_text(text: str, target: Target, opt: int = 3) -> str:
    """The assembly of an LLVM IR module, for dumps."""
    machine, module = _optimised(text, target, opt)
    return str(machine.emit_assembly(module))


def compile_objects(jobs: Iterable[tuple[str, Target]], opt: int = 3, workers: int | None = None) -> list[bytes]:
    """Object code of several modules, compiled on ``workers`` threads (default: every usable core).

    ``jobs`` may make its texts as it goes: what it has given is compiled meanwhile.
    """
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    if workers <= 1:
        return [compile_object(text, target, opt) for text, target in jobs]
    pool = ThreadPoolExecutor(workers)
    try:
        return [f.result() for f in [pool.submit(compile_object, text, target, opt) for text, target in jobs]]
    finally:
        pool.shutdown(cancel_futures=True)


def _optimised(text: str, target: Target, opt: int) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine, module = _parsed(text, target, opt)
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt)
    tuning.loop_vectorization = False  # vectors are explicit
    tuning.slp_vectorization = False
    tuning.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    try:
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    finally:  # llvmlite 0.50 never does it: of the two bases of a pass manager, the first frees nothing
        NewPassManager._dispose(passes)
        passes.detach()
    return machine, module


def _parsed(text: str, target: Target, opt: int) -> tuple[llvm.TargetMachine, llvm.ModuleRef]:
    machine = target_machine(target, opt)
    if layout := data_layout(machine, target):
        text = f'target datalayout = "{layout}" {text}'  # on the same line: LLVM's messages count them
    try:
        module = llvm.parse_assembly(text, llvm.create_context())
        module.verify()  # LLVM's passes abort the process on a module that breaks its rules
    except RuntimeError as e:
        raise InternalError(f"codegen: LLVM rejects the module: {_excerpt(str(e), text)}") from e
    return machine, module


def _excerpt(message: str, text: str) -> str:
    """LLVM's message and the lines around the place it names."""
    parts = message.split(":")
    number = next((int(p) for p in parts if p.strip().isdigit()), 1)
    lines = text.splitlines()[max(0, number - 4) : number + 2]
    return "\n".join([message.strip(), *lines])


def _unlocked(name: str) -> Any:
    """A function of the LLVM library without llvmlite's lock, or with it where llvmlite has changed."""
    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def _emit(machine: llvm.TargetMachine, module: llvm.ModuleRef) -> bytes:
    with ffi.OutputString() as error:
        buffer = _unlocked("LLVMPY_TargetMachineEmitToMemory")(machine, module, 1, error)
        if not buffer:
            raise InternalError(f"codegen: LLVM cannot emit the object: {error}")
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


class Library:
    """Machine code in memory. ``addresses`` maps the exported symbols; they are valid as long as this object lives."""

    def __init__(
        self, objects: Iterable[bytes], exports: Iterable[str], imports: Mapping[str, int] | None = None
    ) -> None:
        initialize()
        names = sorted(set(exports))
        builder = llvm.JITLibraryBuilder()
        for blob in objects:
            builder.add_object_img(blob)
        for name in names:
            builder.export_symbol(name)
        builder.add_current_process()  # memcpy and memset, into which LLVM turns loops
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        self._engine = llvm.create_lljit_compiler(use_jit_link=True)
        try:
            self._tracker = builder.link(self._engine, "kernels")
        except RuntimeError as e:
            raise InternalError(f"codegen: linking failed: {e}") from e
        self.addresses: dict[str, int] = {name: self._tracker[name] for name in names}

    def close(self) -> None:
        """Free the code now. Calling an address afterwards is an error."""
        self.addresses = {}
        if not self._engine.closed:
            self._tracker.close()
            self._engine.close()
