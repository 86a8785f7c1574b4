"""Faults that tests put into candidates: imported by worker processes of tests alone.

A candidate asks for one by fetching ahead what is no buffer: ``prefetch("i", "hang")``. Its kernel then does what
it should and something else after it, or building it goes wrong.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time

from tilewright.autotune.measure import bench
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.llvm.jit import compile_object
from tilewright.machine.target import Target
from tilewright.tensor_ir.hints import Prefetch
from tilewright.tensor_ir.ir import Func, Loop, walk

_ARGS = "ptr %args, ptr %dims, ptr %pool"
_AFTER = {
    "hang": "  br label %again\nagain:\n  br label %again",
    "segfault": "  store volatile i32 1, ptr inttoptr (i64 8 to ptr)\n  ret void",
    "exit": "  call void @_exit(i32 3)\n  ret void",
    "killed": "  %ignored = call i32 @raise(i32 9)\n  ret void",
    "wrong": "  store volatile float 1.0e6, ptr %out\n  ret void",
    "spill": "  %next = getelementptr float, ptr %out, i64 {size}\n  store volatile float 1.0, ptr %next\n  ret void",
    "input": "  %in = load ptr, ptr %args\n  store volatile float 7.0, ptr %in\n  ret void",
}


def fault_of(func: Func) -> str | None:
    """The fault that a scheduled function asks for."""
    hints = [h for s in walk(func.body) if isinstance(s, Loop) for h in s.hints if isinstance(h, Prefetch)]
    return next((b for h in hints for b in h.buffers if b not in {p.name for p in func.params}), None)


def faulty_emit(func: Func, target: Target, symbol: str) -> str:
    fault = fault_of(func)
    if fault == "unknown":
        raise ValueError("a fault in the code generator")
    if fault not in _AFTER:
        text = emit_kernel(func, target, symbol)
        return f"; {fault}\n{text}"
    real = emit_kernel(func, target, "real")
    first_output = len(func.params) - func.outputs
    size = 1
    for d in func.params[first_output].shape:
        size *= d.value() or 1
    lines = [
        f"define void @{symbol}({_ARGS}) {{",
        f"  call void @real({_ARGS})",
        f"  %slot = getelementptr ptr, ptr %args, i64 {first_output}",
        "  %out = load ptr, ptr %slot",
        _AFTER[fault].format(size=size),
        "}",
        "declare void @_exit(i32)",
        "declare i32 @raise(i32)",
    ]
    return real + "\n" + "\n".join(lines)


def faulty_compile(text: str, target: Target, opt: int = 3) -> bytes:
    head = text.partition("\n")[0]
    if head == "; endless":
        time.sleep(3600)
    if head == "; greedy":
        kept = []
        while True:
            kept.append(bytearray(64 << 20))
    if head == "; llvm_greedy":
        sys.stderr.write("LLVM ERROR: out of memory\n")
        sys.stderr.flush()
        os.abort()
    return compile_object(text, target, opt)


_build_scheduled = bench.build_scheduled


def faulty_build(scheduled: Func, target: Target, dims: dict[str, int], opt: int) -> bench.Built:
    built = _build_scheduled(scheduled, target, dims, opt)
    if fault_of(scheduled) == "huge":
        return dataclasses.replace(built, workspaces=(*built.workspaces, ("float32", (1 << 36,))))
    return built


def install(worker: object) -> None:
    """Put the faults where the worker builds."""
    bench.emit_kernel = faulty_emit  # type: ignore[attr-defined]
    bench.compile_object = faulty_compile  # type: ignore[attr-defined]
    worker.build_scheduled = faulty_build  # type: ignore[attr-defined]


if "tilewright.autotune.measure.worker" in sys.modules and "pytest" not in sys.modules:
    install(sys.modules["tilewright.autotune.measure.worker"])
