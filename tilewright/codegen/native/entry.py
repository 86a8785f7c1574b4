"""The entry function of a native segment: all its kernels in one call.

``i64 entry(ptr table, ptr dims, ptr pool, ptr times)``. ``table`` holds the argument pointers of every step one after
the other, ``dims`` their integers. ``pool``: null, or the threads that help with parallel kernels. ``times``: null, or
one more float64 than there are steps, filled with a monotonic clock in seconds before the first step and after each.
A copy between equal pointers is left out. One that ``flushes`` takes denormal numbers for zero, and puts the control
word of the thread back at its end. The result is 0, or one more than the number of the check
(:mod:`tilewright.codegen.native.checks`) that failed; no step after that one runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.native.float_control import float_control_text
from tilewright.codegen.native.system import system_imports, with_system
from tilewright.machine.target import Target

_STEPS = 1000
"""Calls of one function, at most."""


@dataclass(frozen=True, slots=True)
class EntryStep:
    """One call of a kernel, or of a check: the symbol, how many pointers and integers it takes. ``same``: positions of
    two pointers; the call is left out where they are equal."""

    symbol: str
    args: int
    dims: int
    is_check: bool = False
    same: tuple[int, int] | None = None


def emit_entry(name: str, steps: Sequence[EntryStep], target: Target, flushes: bool = False) -> str:
    """The LLVM IR module of an entry function."""
    symbols = sorted({(s.symbol, "i1" if s.is_check else "void") for s in steps})
    out = [f'target triple = "{target.triple}"', "declare i32 @clock_gettime(i32, ptr)"]
    out += [f"declare {result} @{s}(ptr, ptr, ptr)" for s, result in symbols]
    out += [_CLOCK, _entry("internal i64 @run" if flushes else f"i64 @{name}", steps, target.pointer_bytes)]
    if flushes:
        out += [float_control_text(target), _FLUSHING.replace("$NAME", name)]
    return with_system("\n".join(out), target)


def entry_imports(target: Target) -> dict[str, int]:
    """The addresses of the outside functions that entry code calls."""
    return system_imports(("clock_gettime",), target)


_CLOCK = """define internal void @stamp(ptr %times, i64 %index) noinline {
entry:
  %spec = alloca [2 x i64], align 8
  %none = icmp eq ptr %times, null
  br i1 %none, label %done, label %read
read:
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


_FLUSHING = """
define i64 @$NAME(ptr %table, ptr %dims, ptr %pool, ptr %times) {
  %before = call i64 @get_control()
  %flushing = call i64 @flushing(i64 %before)
  call void @set_control(i64 %flushing)
  %status = call i64 @run(ptr %table, ptr %dims, ptr %pool, ptr %times)
  call void @set_control(i64 %before)
  ret i64 %status
}"""


def _entry(head: str, steps: Sequence[EntryStep], pointer_bytes: int) -> str:
    """The entry function; long ones call parts, because LLVM's time grows faster than the length of a function."""
    calls: list[str] = []
    arg = dim = 0
    for i, s in enumerate(steps):
        lines = [f"  %a{i} = getelementptr ptr, ptr %table, i64 {arg}"]
        lines.append(f"  %d{i} = getelementptr i64, ptr %dims, i64 {dim}")
        if s.is_check:
            lines.append(f"  %bad{i} = call i1 @{s.symbol}(ptr %a{i}, ptr %d{i}, ptr %pool)")
            lines.append(f"  br i1 %bad{i}, label %out{i}, label %good{i}\nout{i}:\n  ret i64 {i + 1}\ngood{i}:")
        else:
            call = f"  call void @{s.symbol}(ptr %a{i}, ptr %d{i}, ptr %pool)"
            lines += [call] if s.same is None else _unless_same(i, s.same, call, pointer_bytes)
        lines.append(f"  call void @stamp(ptr %times, i64 {i + 1})")
        calls.append("\n".join(lines))
        arg += s.args
        dim += s.dims
    parts = [calls[k : k + _STEPS] for k in range(0, len(calls), _STEPS)]
    functions: list[str] = []
    if len(parts) > 1:
        functions = [_function(f"internal i64 @part{k}", lines, " noinline") for k, lines in enumerate(parts)]
        calls = [_call_part(k) for k in range(len(parts))]
    return "\n".join([*functions, _function(head, ["  call void @stamp(ptr %times, i64 0)", *calls])])


def _unless_same(i: int, positions: tuple[int, int], call: str, pointer_bytes: int) -> list[str]:
    """The ``call`` of step ``i`` unless two of its pointers are equal."""
    lines = []
    for side, k in zip("xy", positions, strict=True):
        lines.append(f"  %{side}at{i} = getelementptr ptr, ptr %a{i}, i64 {k}")
        lines.append(f"  %{side}{i} = load ptr, ptr %{side}at{i}, align {pointer_bytes}")
    lines.append(f"  %same{i} = icmp eq ptr %x{i}, %y{i}")
    lines.append(f"  br i1 %same{i}, label %next{i}, label %call{i}\ncall{i}:")
    return [*lines, call, f"  br label %next{i}\nnext{i}:"]


def _call_part(k: int) -> str:
    return "\n".join([
        f"  %r{k} = call i64 @part{k}(ptr %table, ptr %dims, ptr %pool, ptr %times)",
        f"  %bad{k} = icmp ne i64 %r{k}, 0",
        f"  br i1 %bad{k}, label %out{k}, label %good{k}\nout{k}:\n  ret i64 %r{k}\ngood{k}:",
    ])  # fmt: skip


def _function(head: str, lines: Sequence[str], attributes: str = "") -> str:
    head = f"define {head}(ptr %table, ptr %dims, ptr %pool, ptr %times){attributes} {{"
    return "\n".join([head, "entry:", *lines, "  ret i64 0", "}"])
