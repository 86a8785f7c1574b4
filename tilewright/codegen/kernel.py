"""One function compiled and callable on numpy arrays: for tests, tuning and users' own kernels.

The compiled model does not go through here; it calls all its kernels from one entry function
(:mod:`tilewright.codegen.native.entry`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.codegen.detect_cpu import detect_host, parse_target, require_runs_here
from tilewright.codegen.emit.function import emit_kernel, is_parallel, workspaces
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.codegen.prepare.steps import prepare
from tilewright.core.errors import InputError
from tilewright.core.options import require_mapping, require_whole, shown
from tilewright.machine.target import Target
from tilewright.runtime.resources.arrays import aligned_array
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.tensor_ir.ir import Buffer, Func

KERNEL_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CallableKernel:
    """A compiled function: ``kernel(inputs, dims, threads=1) -> outputs``."""

    def __init__(self, func: Func, library: Library, symbol: str, target: Target | None = None) -> None:
        self.func = func
        self.library = library
        self.address = library.addresses[symbol]
        self.parallel = is_parallel(func)
        self._call = KERNEL_TYPE(self.address)
        self.workspaces = workspaces(func, target or detect_host())

    def __call__(
        self, inputs: Sequence[np.ndarray], dims: Mapping[str, int] | None = None, threads: int = 1
    ) -> list[np.ndarray]:
        """Run once. Raises InputError on a wrong number of inputs, shape or element type."""
        bound = {d: require_whole(d, n, 0) for d, n in require_mapping("dims", dims or {}).items()}
        threads = require_whole("threads", threads)
        arrays, outputs = self.arguments(inputs, bound)
        self.run(arrays, bound, threads)
        return outputs

    def arguments(
        self, inputs: Sequence[np.ndarray], dims: Mapping[str, int]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """All arrays of a call in ABI order (inputs, outputs, workspaces), and the outputs among them."""
        count = len(self.func.params) - self.func.outputs
        if not isinstance(inputs, list | tuple) or not all(isinstance(a, np.ndarray) for a in inputs):
            raise InputError(f"{self.func.name}: expected a list of {count} arrays, got {shown(inputs)}")
        if len(inputs) != count:
            raise InputError(f"{self.func.name}: expected {count} inputs, got {len(inputs)}")
        missing = [d for d in self.func.dims if d not in dims]
        if missing:
            raise InputError(f"{self.func.name}: dims without a value: {', '.join(missing)}")
        arrays: list[np.ndarray] = []
        for b, a in zip(self.func.params, inputs, strict=False):
            shape = _shape(b, dims)
            if a.shape != shape or a.dtype != b.dtype.numpy:
                raise InputError(
                    f"{self.func.name}: input {b.name}: expected {b.dtype}{list(shape)}, got {a.dtype}{list(a.shape)}"
                )
            arrays.append(np.ascontiguousarray(a).reshape(shape))
        outputs = [aligned_array(_shape(b, dims), b.dtype.numpy) for b in self.func.params[count:]]
        work = [aligned_array(_shape(b, dims), b.dtype.numpy) for b in self.workspaces]
        return [*arrays, *outputs, *work], outputs

    def run(self, arrays: Sequence[np.ndarray], dims: Mapping[str, int], threads: int = 1) -> None:
        """Call the kernel on prepared arrays; with ``threads`` > 1 a pool shares its parallel loops."""
        table = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        values = (ctypes.c_int64 * max(1, len(self.func.dims)))(*(dims[d] for d in self.func.dims))
        with PoolHandle(threads, thread_pool_code() if threads > 1 else None).borrowed(True) as pool:
            self._call(ctypes.addressof(table), ctypes.addressof(values), pool)


def _shape(b: Buffer, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(d.evaluate(dims) for d in b.shape)


def build(func: Func, target: str | Target | None = None, opt: int = 3) -> CallableKernel:
    """Compile ``func`` for ``target`` (default: this machine) and load it. Raises TargetError if it cannot run here."""
    target = parse_target(target)
    require_runs_here(target, func.name)
    func = prepare(func, target)
    blob = compile_object(emit_kernel(func, target, "kernel"), target, opt)
    return CallableKernel(func, Library([blob], ["kernel"]), "kernel", target)
