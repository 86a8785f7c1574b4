"""The control word of a thread's floating-point unit: what becomes of denormal numbers.

A denormal number is one so small that it has fewer digits than others. Some CPUs take a hundred times as long for one.
Where they are flushed, a denormal operand counts as zero and a denormal result becomes zero. The control word belongs
to a thread, so code that flushes sets it and puts it back, and the threads that help take that of the caller.
"""

from __future__ import annotations

from tilewright.core.errors import TargetError
from tilewright.machine.target import Target

_X86 = ("x86", "i686", "amd64")
_ARM = ("aarch64", "arm64")
_FLUSH_X86 = 0x8040
"""In MXCSR: flush to zero, denormals are zero. Its lowest six bits are flags that computations set."""
_FLUSH_ARM = 1 << 24
"""In FPCR: flush to zero."""


def require_flushing(target: Target) -> None:
    """Raises TargetError for a CPU on which code cannot ask for it."""
    if not target.triple.startswith((*_X86, *_ARM)):
        raise TargetError(f'denormals="flush": expected an x86 or 64-bit Arm CPU, got {target.triple}')


def float_control_text(target: Target) -> str:
    """LLVM IR of ``i64 @get_control()``, ``void @set_control(i64)`` and ``i64 @flushing(i64)``, a control word with
    flushing on. On other CPUs the word is always 0."""
    if target.triple.startswith(_X86):
        return _TEXT_X86.replace("$FLUSH", str(_FLUSH_X86))
    if target.triple.startswith(_ARM):
        return _TEXT_ARM.replace("$FLUSH", str(_FLUSH_ARM))
    return _TEXT_NONE


_TEXT_X86 = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal i64 @get_control() {
  %at = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %at)
  %word = load i32, ptr %at, align 4
  %control = and i32 %word, -64
  %wide = zext i32 %control to i64
  ret i64 %wide
}

define internal void @set_control(i64 %control) {
  %at = alloca i32, align 4
  %word = trunc i64 %control to i32
  store i32 %word, ptr %at, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %at)
  ret void
}

define internal i64 @flushing(i64 %control) {
  %word = or i64 %control, $FLUSH
  ret i64 %word
}
"""
_TEXT_ARM = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal i64 @get_control() {
  %word = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %word
}

define internal void @set_control(i64 %control) {
  call void @llvm.aarch64.set.fpcr(i64 %control)
  ret void
}

define internal i64 @flushing(i64 %control) {
  %word = or i64 %control, $FLUSH
  ret i64 %word
}
"""
_TEXT_NONE = """
define internal i64 @get_control() {
  ret i64 0
}

define internal void @set_control(i64 %control) {
  ret void
}

define internal i64 @flushing(i64 %control) {
  ret i64 0
}
"""
