"""Checks of indices: is every element of an integer array in its range? Code that the entry calls before a kernel.

``i1 check_i64(ptr args, ptr dims, ptr pool)`` and ``check_i32``: true if an element is outside. ``args``: the array,
and an unsigned integer that receives the largest ``element - low`` modulo 2^64: what lies below ``low`` wraps round to
more than all that is allowed, and the element itself can be read off. ``dims``: how many elements, how far apart, where
the first is, ``low``, how many values are allowed.

That is one pass with vectors, once a run, ahead of kernels that go on taking the nearest valid element. Elements side
by side are shared out to the ``pool`` if they are many.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.llvm.jit import Library, cached_object
from tilewright.core.dtypes import DType
from tilewright.machine.target import Target

CHECKS: dict[str, str] = {"int64": "check_i64", "int32": "check_i32"}
"""Element type -> symbol of its check."""
_WIDENED = re.compile(r"= sext (\S+) (\S+) to (\S+)")
_LANES = 8

_lock = threading.Lock()
_loaded: dict[str, Library] = {}


def check_imports(dtypes: Iterable[DType], cache: ObjectCache | None) -> dict[str, int]:
    """The addresses of the checks for these element types, by symbol. Their code stays loaded in this process;
    ``cache``: where the object code is kept for others."""
    host = detect_host()
    out: dict[str, int] = {}
    with _lock:
        for dtype in dtypes:
            symbol = CHECKS[dtype.name]
            if symbol not in _loaded:
                code = cached_object(check_text(dtype, host), host, 1, cache, passes=False)
                _loaded[symbol] = Library([code], [symbol])
            out[symbol] = _loaded[symbol].addresses[symbol]
    return out


def check_text(dtype: DType, target: Target) -> str:
    """The LLVM IR module of the check for one element type."""
    bits = dtype.bits
    text = _TEXT if bits < 64 else _WIDENED.sub(r"= bitcast \1 \2 to \3", _TEXT)  # nothing to widen
    names = {
        "$NAME": CHECKS[dtype.name], "$V": f"<{_LANES} x i{bits}>", "$W": f"<{_LANES} x i64>", "$L": f"{_LANES}",
        "$T": f"i{bits}", "$BYTES": f"{dtype.itemsize}", "$SHARED": f"{target.costs.parallel_checks}",
        "$P": f"{target.pointer_bytes}",
    }  # fmt: skip
    for name, value in names.items():
        text = text.replace(name, value)
    return f'target triple = "{target.triple}"\n{text}'


# the sign is turned round in the loop (SIGN subtracted with `low`), so that a signed maximum, which more processors
# have, finds the unsigned one
_TEXT = """
declare $W @llvm.smax.v$Li64($W, $W)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.vector.reduce.smax.v$Li64($W)

define i1 @$NAME(ptr %args, ptr %dims, ptr %pool) {
  %to.at = getelementptr ptr, ptr %args, i64 1
  %to = load ptr, ptr %to.at, align $P
  %count = load i64, ptr %dims, align 8
  %stride.at = getelementptr i64, ptr %dims, i64 1
  %stride = load i64, ptr %stride.at, align 8
  %width.at = getelementptr i64, ptr %dims, i64 4
  %width = load i64, ptr %width.at, align 8
  store i64 0, ptr %to, align 8
  %alone = icmp eq ptr %pool, null
  %few = icmp slt i64 %count, $SHARED
  %apart = icmp ne i64 %stride, 1
  %small = or i1 %alone, %few
  %serial = or i1 %small, %apart
  br i1 %serial, label %one, label %many
one:
  call void @part(ptr %args, ptr %dims, i64 0, i64 1)
  br label %done
many:
  %for = load ptr, ptr %pool, align 8
  call void %for(ptr %pool, ptr @part, ptr %args, ptr %dims)
  br label %done
done:
  %worst = load i64, ptr %to, align 8
  %outside = icmp uge i64 %worst, %width
  %some = icmp sgt i64 %count, 0
  %bad = and i1 %outside, %some
  ret i1 %bad
}

define internal void @part(ptr %args, ptr %dims, i64 %chunk, i64 %chunks) {
  %x = load ptr, ptr %args, align $P
  %to.at = getelementptr ptr, ptr %args, i64 1
  %to = load ptr, ptr %to.at, align $P
  %count = load i64, ptr %dims, align 8
  %stride.at = getelementptr i64, ptr %dims, i64 1
  %stride = load i64, ptr %stride.at, align 8
  %offset.at = getelementptr i64, ptr %dims, i64 2
  %offset = load i64, ptr %offset.at, align 8
  %low.at = getelementptr i64, ptr %dims, i64 3
  %low = load i64, ptr %low.at, align 8
  %turned = xor i64 %low, -9223372036854775808
  %next = add i64 %chunk, 1
  %begin.scaled = mul i64 %count, %chunk
  %begin = udiv i64 %begin.scaled, %chunks
  %end.scaled = mul i64 %count, %next
  %end = udiv i64 %end.scaled, %chunks
  %n = sub i64 %end, %begin
  %steps = mul i64 %begin, %stride
  %first = add i64 %offset, %steps
  %from = getelementptr $T, ptr %x, i64 %first
  %dense = icmp eq i64 %stride, 1
  br i1 %dense, label %vectors, label %scalars
vectors:
  %whole = and i64 %n, -16
  %low.one = insertelement $W poison, i64 %turned, i64 0
  %lows = shufflevector $W %low.one, $W poison, <$L x i32> zeroinitializer
  %least.one = insertelement $W poison, i64 -9223372036854775808, i64 0
  %least = shufflevector $W %least.one, $W poison, <$L x i32> zeroinitializer
  br label %test
test:
  %i = phi i64 [ 0, %vectors ], [ %i.next, %step ]
  %m0 = phi $W [ %least, %vectors ], [ %m0.next, %step ]
  %m1 = phi $W [ %least, %vectors ], [ %m1.next, %step ]
  %more = icmp slt i64 %i, %whole
  br i1 %more, label %step, label %join
step:
  %p0 = getelementptr $T, ptr %from, i64 %i
  %p1 = getelementptr $T, ptr %p0, i64 $L
  %a0 = load $V, ptr %p0, align $BYTES
  %a1 = load $V, ptr %p1, align $BYTES
  %w0 = sext $V %a0 to $W
  %w1 = sext $V %a1 to $W
  %d0 = sub $W %w0, %lows
  %d1 = sub $W %w1, %lows
  %m0.next = call $W @llvm.smax.v$Li64($W %m0, $W %d0)
  %m1.next = call $W @llvm.smax.v$Li64($W %m1, $W %d1)
  %i.next = add i64 %i, 16
  br label %test
join:
  %m = call $W @llvm.smax.v$Li64($W %m0, $W %m1)
  %reduced = call i64 @llvm.vector.reduce.smax.v$Li64($W %m)
  br label %scalars
scalars:
  %k.first = phi i64 [ 0, %0 ], [ %whole, %join ]
  %worst.first = phi i64 [ -9223372036854775808, %0 ], [ %reduced, %join ]
  br label %look
look:
  %k = phi i64 [ %k.first, %scalars ], [ %k.next, %take ]
  %worst = phi i64 [ %worst.first, %scalars ], [ %worst.next, %take ]
  %left = icmp slt i64 %k, %n
  br i1 %left, label %take, label %tell
take:
  %at = mul i64 %k, %stride
  %p = getelementptr $T, ptr %from, i64 %at
  %a = load $T, ptr %p, align $BYTES
  %w = sext $T %a to i64
  %d = sub i64 %w, %turned
  %worst.next = call i64 @llvm.smax.i64(i64 %worst, i64 %d)
  %k.next = add i64 %k, 1
  br label %look
tell:
  %distance = xor i64 %worst, -9223372036854775808
  %old = atomicrmw umax ptr %to, i64 %distance monotonic, align 8
  ret void
}
"""
