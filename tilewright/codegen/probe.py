"""How fast the threads of a pool are at this moment, alone and together: the time of a fixed piece of work.

A cache line goes from thread to thread, round and round; then all of them multiply and add in registers at once. Which
processors a system, or the host of a virtual machine, has given to the threads shows in it: neighbours, two halves of
one core, or two sockets. On a virtual machine that changes from one second to the next, and a thread alone has a core
to itself in one moment and half of one in the next, when somebody else computes on the other half: multiplying and
adding then takes 1.6 times as long (a chain of dependent operations does not, so the clock does not show it).
"""

from __future__ import annotations

import ctypes
import functools
import time

import numpy as np

from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.llvm.jit import Library, compile_object
from tilewright.codegen.native.thread_pool import ThreadPoolCode, fill_in
from tilewright.machine.target import Target
from tilewright.runtime.resources.arrays import address, aligned_empty
from tilewright.runtime.resources.thread_pool import CHUNKS_PER_THREAD

_ROUNDS = 150
_POLLS = 20_000
"""How often a thread looks before it gives up: well beyond the time that a sleeping thread needs to come."""
_STEPS = 20_000
_ACCUMULATORS = 10
_CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_PARALLEL_FOR = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)


def seconds_alone() -> float:
    """Seconds that the work takes on the calling thread."""
    memory = _token()
    probe = _CHUNK(_library().addresses["probe"])
    start = time.perf_counter()
    probe(address(memory), None, 0, CHUNKS_PER_THREAD)
    return time.perf_counter() - start


def seconds_together(code: ThreadPoolCode, pool: int, threads: int) -> float | None:
    """Seconds that the work takes on a pool; None if a thread did not come."""
    memory = _token()
    probe = _library().addresses["probe"]
    parallel_for = _PARALLEL_FOR(code.parallel_for)
    start = time.perf_counter()
    parallel_for(pool, probe, address(memory), None)
    taken = time.perf_counter() - start
    return taken if int(memory[:8].view(np.int64)[0]) == _ROUNDS * threads else None


def _token() -> np.ndarray:
    memory = aligned_empty(64)
    memory[:] = 0
    return memory


@functools.cache
def _library() -> Library:
    host = detect_host()
    return Library([compile_object(probe_text(host), host, 2)], ["probe"], {})


def probe_text(target: Target) -> str:
    """The LLVM IR module. ``probe`` is the chunk function of a parallel loop: the first chunk of each thread passes on
    the number at ``args``, counting it up, and then computes; the other chunks do nothing."""
    names = range(_ACCUMULATORS)
    lines = {
        "$PHIS": [f"  %a{k} = phi <8 x float> [ zeroinitializer, %compute ], [ %b{k}, %step ]" for k in names],
        "$MULTIPLY": [f"  %m{k} = fmul contract <8 x float> %a{k}, %factor" for k in names],
        "$ADD": [f"  %b{k} = fadd contract <8 x float> %m{k}, %factor" for k in names],
        "$SUM": [f"  %s{k + 1} = fadd <8 x float> %s{k}, %b{k}" for k in names],
    }
    text = _TEXT
    for name, found in lines.items():
        text = text.replace(name, "\n".join(found))
    text = text.replace("$LAST", f"%s{_ACCUMULATORS}")
    numbers = {"$EACH": CHUNKS_PER_THREAD, "$ROUNDS": _ROUNDS, "$POLLS": _POLLS, "$STEPS": _STEPS}
    return fill_in(text, target, numbers)


_TEXT = """
define void @probe(ptr %args, ptr %dims, i64 %chunk, i64 %chunks) {
entry:
  %place = urem i64 %chunk, $EACH
  %first = icmp eq i64 %place, 0
  %self = udiv i64 %chunk, $EACH
  %threads = udiv i64 %chunks, $EACH
  br i1 %first, label %round, label %out
round:
  %r = phi i64 [ 0, %entry ], [ %r.next, %pass ]
  %passed = mul i64 %r, %threads
  %turn = add i64 %passed, %self
  br label %look
look:
  %n = phi i64 [ 0, %round ], [ %n.next, %pause ]
  %token = load atomic i64, ptr %args acquire, align 8
  %mine = icmp eq i64 %token, %turn
  br i1 %mine, label %pass, label %pause
pause:
  $PAUSE
  %n.next = add i64 %n, 1
  %long = icmp ugt i64 %n, $POLLS
  br i1 %long, label %out, label %look
pass:
  %on = add i64 %turn, 1
  store atomic i64 %on, ptr %args release, align 8
  %r.next = add i64 %r, 1
  %more = icmp ult i64 %r.next, $ROUNDS
  br i1 %more, label %round, label %compute
compute:
  ; a number that the compiler does not know
  %small = sitofp i64 %turn to float
  %some = insertelement <8 x float> poison, float %small, i32 0
  %factor = shufflevector <8 x float> %some, <8 x float> poison, <8 x i32> zeroinitializer
  br label %step
step:
  %i = phi i64 [ 0, %compute ], [ %i.next, %step ]
$PHIS
$MULTIPLY
$ADD
  %i.next = add i64 %i, 1
  %steps = icmp ult i64 %i.next, $STEPS
  br i1 %steps, label %step, label %sum
sum:
  %s0 = fadd <8 x float> %factor, %factor
$SUM
  %kept = getelementptr i8, ptr %args, i64 32
  %lane = extractelement <8 x float> $LAST, i32 0
  store float %lane, ptr %kept, align 4
  br label %out
out:
  ret void
}
"""
