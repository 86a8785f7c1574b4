"""Functions to machine code: schedule, emit, compile, cache. One :class:`Kernel` for each function of a model.

The object cache is keyed by the unscheduled function, the schedule (a given trace, or the default rules of this
version) and the target, so that a hit skips scheduling, emission and LLVM.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilewright.codegen.cache import ObjectCache, object_key
from tilewright.codegen.emit.function import emit_kernel, is_parallel, workspaces
from tilewright.codegen.llvm.jit import assembly_text, compile_objects
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.core.arith.parse import parse
from tilewright.core.config import from_environment
from tilewright.core.dtypes import DType
from tilewright.lowering.workspaces import Scheduled
from tilewright.machine.target import Target
from tilewright.schedule.decisions import DefaultDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled function. ``workspaces``: element type and shape of each extra argument, over the function's dims.

    ``key``: name of the object in the cache; ``symbol``: the function in the object. ``cached``: it came from there.
    """

    name: str
    func: Func
    trace: Trace
    workspaces: tuple[tuple[DType, tuple[IntExpr, ...]], ...]
    parallel: bool
    symbol: str
    code: bytes
    cached: bool

    def facts(self) -> Scheduled:
        """What the plan needs to know of the scheduled function."""
        return Scheduled(self.func.dims, self.workspaces, self.parallel)

    def scheduled(self) -> Func:
        """The function with the trace applied."""
        return self.trace.apply(self.func)

    def prepared(self, target: Target) -> Func:
        """The function as it is emitted."""
        return prepare(self.scheduled(), target)

    def llvm_text(self, target: Target) -> str:
        """The LLVM IR, emitted again."""
        return emit_kernel(self.prepared(target), target, self.symbol)

    def assembly_text(self, target: Target) -> str:
        """The assembly, compiled again."""
        return assembly_text(self.llvm_text(target), target)


def build_kernels(
    funcs: Mapping[str, Func], target: Target, cache: ObjectCache | None, traces: Mapping[str, Trace] | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Kernel]:  # fmt: skip
    """A kernel for every function, by name. ``traces`` overrides the default trace of some.

    Where the environment says so (:mod:`tilewright.core.config`), raises VerifyError for a function that breaks an
    invariant of the tensor IR, as it was lowered, or scheduled and prepared unless its object is in the cache.
    """
    traces = traces or {}
    checked = from_environment().verify
    out: dict[str, Kernel] = {}
    missing: list[tuple[str, str, Trace, Func, str]] = []

    def texts() -> Iterator[tuple[str, Target]]:
        for name, func in funcs.items():
            if checked:
                verify(func)
            given = traces.get(name)
            key = _key(func, target, given)
            hit = _read(cache.get(key), name, func) if cache is not None else None
            if hit is not None:
                out[name] = hit
                continue
            schedule = schedule_by_rule(func, target, DefaultDecider()) if given is None else Schedule(func, given)
            ready = prepare(schedule.func, target)
            symbol = f"tw_{key[:24]}"
            missing.append((name, key, schedule.trace, ready, symbol))
            yield emit_kernel(ready, target, symbol), target
            progress(len(out) + len(missing), len(funcs))

    codes = compile_objects(texts())
    for (name, key, trace, ready, symbol), code in zip(missing, codes, strict=True):
        spaces = tuple((b.dtype, b.shape) for b in workspaces(ready, target))
        kernel = Kernel(name, funcs[name], trace, spaces, is_parallel(ready), symbol, code, cached=False)
        if cache is not None:
            cache.put(key, _write(kernel))
        out[name] = kernel
    if missing and cache is not None:
        cache.trim_sometimes()
    return out


def _key(func: Func, target: Target, trace: Trace | None) -> str:
    schedule = "default" if trace is None else trace.to_text()
    rooms = ("core", "machine", "tensor_ir", "schedule", "codegen")
    return object_key(f"{schedule}\0{func!s}", target, rooms=rooms)


def _write(kernel: Kernel) -> bytes:
    header = {
        "trace": kernel.trace.to_json(),
        "workspaces": [[d.name, [str(e) for e in shape]] for d, shape in kernel.workspaces],
        "parallel": kernel.parallel,
        "symbol": kernel.symbol,
    }
    return json.dumps(header).encode() + b"\n" + kernel.code


def _read(data: bytes | None, name: str, func: Func) -> Kernel | None:
    if data is None:
        return None
    head, _, code = data.partition(b"\n")
    try:
        header = json.loads(head)
        spaces = tuple((dtypes.from_name(d), tuple(map(parse, shape))) for d, shape in header["workspaces"])
        trace = Trace.from_json(header["trace"])
    except (ValueError, KeyError, TypeError):
        return None
    return Kernel(name, func, trace, spaces, header["parallel"], header["symbol"], code, cached=True)
