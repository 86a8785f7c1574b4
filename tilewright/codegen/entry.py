"""The entry function of a native segment: all its kernels in one call, on one team of threads.

``void entry(ptr table, ptr dims, i64 nthreads, ptr times)``. ``table`` holds the argument pointers of every step one
after the other, ``dims`` their integers. With ``nthreads`` > 1 one parallel region is opened in which each thread
runs all steps, with a barrier between steps of which at least one is parallel. ``times``: null, or one more float64
than there are steps, filled by thread 0 with a monotonic clock in seconds before the first step and after each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.openmp import OpenMP
from tilewright.core.target import Target


@dataclass(frozen=True, slots=True)
class EntryStep:
    """One kernel call: the symbol, how many pointers and integers it takes, whether several threads work in it."""

    symbol: str
    args: int
    dims: int
    parallel: bool


def emit_entry(name: str, steps: Sequence[EntryStep], target: Target, openmp: bool) -> str:
    """The LLVM IR module of an entry function. With ``openmp`` False it ignores ``nthreads`` and runs alone."""
    symbols = sorted({s.symbol for s in steps})
    out = [f'target triple = "{target.triple}"', "declare i32 @clock_gettime(i32, ptr)"]
    out += [f"declare void @{s}(ptr, ptr, i64, i64, ptr)" for s in symbols]
    if openmp:
        out += [
            "declare void @GOMP_parallel(ptr, ptr, i32, i32)",
            "declare void @GOMP_barrier()",
            "declare i32 @omp_get_thread_num()",
            "declare i32 @omp_get_num_threads()",
        ]
    out.append(_CLOCK)
    out.append(_steps(name, steps, openmp))
    out.append(_region(name) if openmp else "")
    out.append(_entry(name, openmp))
    return "\n".join(out)


def entry_imports(openmp: OpenMP) -> dict[str, int]:
    """The addresses of the outside functions that entry code calls."""
    process = ctypes.CDLL(None)
    clock = ctypes.cast(process.clock_gettime, ctypes.c_void_p).value
    return {"clock_gettime": int(clock or 0), **openmp.addresses}


_CLOCK = """define internal void @stamp(ptr %times, i64 %index) noinline {
entry:
  %none = icmp eq ptr %times, null
  br i1 %none, label %done, label %read
read:
  %spec = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %spec)
  %s = load i64, ptr %spec, align 8
  %np = getelementptr i64, ptr %spec, i64 1
  %n = load i64, ptr %np, align 8
  %sf = sitofp i64 %s to double
  %nf = sitofp i64 %n to double
  %scaled = fmul double %nf, 1.000000e-09
  %sum = fadd double %sf, %scaled
  %slot = getelementptr double, ptr %times, i64 %index
  store double %sum, ptr %slot, align 8
  br label %done
done:
  ret void
}"""


def _steps(name: str, steps: Sequence[EntryStep], openmp: bool) -> str:
    """What every thread of the team runs."""
    lines = ["entry:", "  %several = icmp sgt i64 %nthreads, 1"]
    lines.append("  %first = icmp eq i64 %tid, 0")
    lines.append("  %mine = select i1 %first, ptr %times, ptr null")
    barrier = "@GOMP_barrier" if openmp else "null"
    lines.append("  call void @stamp(ptr %mine, i64 0)")
    arg = dim = 0
    for i, s in enumerate(steps):
        if i and openmp and (s.parallel or steps[i - 1].parallel):
            lines.append(f"  br i1 %several, label %wait{i}, label %go{i}")
            lines.append(f"wait{i}:\n  call void @GOMP_barrier()\n  br label %go{i}\ngo{i}:")
        lines.append(f"  %a{i} = getelementptr ptr, ptr %table, i64 {arg}")
        lines.append(f"  %d{i} = getelementptr i64, ptr %dims, i64 {dim}")
        lines.append(f"  call void @{s.symbol}(ptr %a{i}, ptr %d{i}, i64 %tid, i64 %nthreads, ptr {barrier})")
        lines.append(f"  call void @stamp(ptr %mine, i64 {i + 1})")
        arg += s.args
        dim += s.dims
    lines.append("  ret void")
    head = f"define internal void @{name}.steps(ptr %table, ptr %dims, i64 %tid, i64 %nthreads, ptr %times)"
    return "\n".join([head + " noinline {", *lines, "}"])


def _region(name: str) -> str:
    """The outlined body of the parallel region; its argument is the table of the entry's own arguments."""
    return f"""define internal void @{name}.region(ptr %frame) {{
entry:
  %table = load ptr, ptr %frame, align 8
  %pd = getelementptr ptr, ptr %frame, i64 1
  %dims = load ptr, ptr %pd, align 8
  %pt = getelementptr ptr, ptr %frame, i64 2
  %times = load ptr, ptr %pt, align 8
  %tid32 = call i32 @omp_get_thread_num()
  %n32 = call i32 @omp_get_num_threads()
  %tid = sext i32 %tid32 to i64
  %n = sext i32 %n32 to i64
  call void @{name}.steps(ptr %table, ptr %dims, i64 %tid, i64 %n, ptr %times)
  ret void
}}"""


def _entry(name: str, openmp: bool) -> str:
    head = f"define void @{name}(ptr %table, ptr %dims, i64 %nthreads, ptr %times) {{\nentry:"
    alone = f"  call void @{name}.steps(ptr %table, ptr %dims, i64 0, i64 1, ptr %times)\n  ret void"
    if not openmp:
        return f"{head}\n{alone}\n}}"
    return f"""{head}
  %several = icmp sgt i64 %nthreads, 1
  br i1 %several, label %team, label %alone
alone:
{alone}
team:
  %frame = alloca [3 x ptr], align 8
  store ptr %table, ptr %frame, align 8
  %pd = getelementptr ptr, ptr %frame, i64 1
  store ptr %dims, ptr %pd, align 8
  %pt = getelementptr ptr, ptr %frame, i64 2
  store ptr %times, ptr %pt, align 8
  %n = trunc i64 %nthreads to i32
  call void @GOMP_parallel(ptr @{name}.region, ptr %frame, i32 %n, i32 0)
  ret void
}}"""
