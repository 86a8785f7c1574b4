"""The code by which threads share a loop: chunks are claimed one at a time, and nobody waits for a thread that is away.

The thread that runs an inference publishes a job (a chunk function with its arguments), works on it itself, and goes
on when all chunks are done. Workers that are awake take chunks as well; one that the system has taken off its processor
delays the job only by the chunk it holds. A pool that meets at barriers, as OpenMP's does, stands still until each
member is back, at every kernel: with other load on the machine that was measured a hundred times slower on small
networks.

Each thread has a contiguous share of the chunks, the same share of every loop, so that it mostly finds in its own cache
what it wrote before; when its share is done it takes from the others. A share is one 64-bit word of epoch, end and next
chunk, so that a claim is one compare-and-swap and can never take a chunk of a job that is over. Idle workers spin for a
moment, then sleep on a semaphore; so does the caller when the last chunk is long in coming, which frees its processor
for the thread that has it. And a worker offers its processor to others between chunks every few milliseconds, so that
it is not taken away in the middle of one (thread pools of other libraries spin for tens of milliseconds).

Each cache line that goes from one processor to another takes 70 nanoseconds, or 400 where they are far apart, in every
loop. So a job is in the line that idle workers watch, and a thread reports what it has done once, when nothing is left
to take, instead of chunk by chunk.

Layout of a pool's memory (bytes): 0 ``parallel_for``, 8 chunks per job, 48 threads, 56 nanoseconds that an idle worker
spins; 64 epoch, 72 chunk function, 80 its args, 88 its dims, 96 the control word of floating-point numbers of the
caller (:mod:`tilewright.codegen.native.float_control`), under which every thread runs its chunks; 128 chunks done; 192
sleepers, 200 stop, 208 caller waits; 256 semaphore of workers, 320 of the caller, 512 + 64*t the share of thread t.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.llvm.jit import Library, cached_object
from tilewright.codegen.native.float_control import float_control_text
from tilewright.codegen.native.system import system_imports, with_system
from tilewright.machine.target import Target

_POLLS = 512
_SPIN_WAIT = 1024
_SLICE = 2_500_000
"""Nanoseconds; below the time slice of common systems (Linux with 250 ticks a second: 4 ms)."""
_IMPORTS = ("sem_init", "sem_post", "sem_wait", "sched_yield", "clock_gettime")


@dataclass(frozen=True, slots=True, eq=False)
class ThreadPoolCode:
    """Addresses for :mod:`tilewright.runtime.resources.thread_pool`: ``parallel_for``, a worker's life, start, stop."""

    parallel_for: int
    worker: int
    initialize: int
    stop: int
    library: Library


_lock = threading.Lock()
_loaded: list[ThreadPoolCode] = []


def thread_pool_code(cache: ObjectCache | None = None) -> ThreadPoolCode:
    """The code for this process; it stays loaded, because workers never leave it. ``cache``: where the object code is
    kept for other processes."""
    with _lock:
        if not _loaded:
            _loaded.append(_load(cache))
        return _loaded[0]


def _load(cache: ObjectCache | None) -> ThreadPoolCode:
    host = detect_host()
    imports = system_imports(_IMPORTS, host)
    names = ("pool_parallel_for", "pool_worker", "pool_initialize", "pool_stop")
    library = Library([cached_object(thread_pool_text(host), host, 2, cache)], names, imports)
    parallel_for, worker, initialize, stop = (library.addresses[n] for n in names)
    return ThreadPoolCode(parallel_for, worker, initialize, stop, library)


def thread_pool_text(target: Target) -> str:
    """The LLVM IR module."""
    return fill_in(
        float_control_text(target) + _TEXT, target, {"$POLLS": _POLLS, "$WAIT": _SPIN_WAIT, "$SLICE": _SLICE}
    )


def fill_in(text: str, target: Target, numbers: Mapping[str, int]) -> str:
    """A module with ``$PAUSE``, the instruction for waiting in a loop, and other names replaced."""
    if target.triple.startswith(("x86", "i686")):
        pause, declare = "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    elif target.triple.startswith(("aarch64", "arm64")):
        pause, declare = "call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"
    else:
        pause, declare = "fence acquire", ""
    text = text.replace("$PAUSE", pause)
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    text = with_system(text, target)
    return f'target triple = "{target.triple}"\n{declare}\n{text}'


_TEXT = """
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)

define i64 @pool_get_control() {
  %control = call i64 @get_control()
  ret i64 %control
}

; a control word is changed only if it is another: to set it takes longer than to read it
define void @pool_set_control(i64 %control) {
  %now = call i64 @get_control()
  %same = icmp eq i64 %now, %control
  br i1 %same, label %out, label %change
change:
  call void @set_control(i64 %control)
  br label %out
out:
  ret void
}

define void @pool_initialize(ptr %pool, i64 %threads, i64 %chunks, i64 %spin) {
  %spin.at = getelementptr i8, ptr %pool, i64 56
  store i64 %spin, ptr %spin.at, align 8
  store ptr @pool_parallel_for, ptr %pool, align 8
  %chunks.at = getelementptr i8, ptr %pool, i64 8
  store i64 %chunks, ptr %chunks.at, align 8
  %threads.at = getelementptr i8, ptr %pool, i64 48
  store i64 %threads, ptr %threads.at, align 8
  %semaphore = getelementptr i8, ptr %pool, i64 256
  %status = call i32 @sem_init(ptr %semaphore, i32 0, i32 0)
  %ready = getelementptr i8, ptr %pool, i64 320
  %other = call i32 @sem_init(ptr %ready, i32 0, i32 0)
  ret void
}

define internal i64 @now() {
  %spec = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %spec)
  %s = load i64, ptr %spec, align 8
  %np = getelementptr i64, ptr %spec, i64 1
  %n = load i64, ptr %np, align 8
  %scaled = mul i64 %s, 1000000000
  %sum = add i64 %scaled, %n
  ret i64 %sum
}

; has the worker had its processor for so long that the system may soon take it away?
define internal i1 @is_late(ptr %since) noinline {
  %then = load i64, ptr %since, align 8
  %now = call i64 @now()
  %elapsed = sub i64 %now, %then
  %long = icmp ugt i64 %elapsed, $SLICE
  ret i1 %long
}

; add %count chunks to those that are done, and wake the caller if they were the last
define internal void @report(ptr %pool, i64 %count) {
entry:
  %some = icmp ne i64 %count, 0
  br i1 %some, label %add, label %out
add:
  %done = getelementptr i8, ptr %pool, i64 128
  %chunks.at = getelementptr i8, ptr %pool, i64 8
  %chunks = load i64, ptr %chunks.at, align 8
  %before = atomicrmw add ptr %done, i64 %count seq_cst, align 8
  %sum = add i64 %before, %count
  %last = icmp eq i64 %sum, %chunks
  br i1 %last, label %finish, label %out
finish:
  %waiting.at = getelementptr i8, ptr %pool, i64 208
  %waiting = atomicrmw xchg ptr %waiting.at, i64 0 seq_cst, align 8
  %someone = icmp ne i64 %waiting, 0
  br i1 %someone, label %tell, label %out
tell:
  %finished = getelementptr i8, ptr %pool, i64 320
  %told = call i32 @sem_post(ptr %finished)
  br label %out
out:
  ret void
}

; claim and run chunks, those of share %self first, until none is left; %since: when a worker got its processor
define internal void @work(ptr %pool, i64 %self, ptr %since) {
entry:
  %worker = icmp ne ptr %since, null
  %threads.at = getelementptr i8, ptr %pool, i64 48
  %threads = load i64, ptr %threads.at, align 8
  br label %share
share:
  %k = phi i64 [ 0, %entry ], [ %k.next, %empty ]
  %mine.before = phi i64 [ 0, %entry ], [ %count, %empty ]
  %turn = add i64 %self, %k
  %over = icmp uge i64 %turn, %threads
  %wrapped = sub i64 %turn, %threads
  %whose = select i1 %over, i64 %wrapped, i64 %turn
  %scaled = shl i64 %whose, 6
  %offset = add i64 %scaled, 512
  %at = getelementptr i8, ptr %pool, i64 %offset
  br label %look
look:
  %count = phi i64 [ %mine.before, %share ], [ %count, %claim ], [ %count.next, %run ], [ 0, %yield ]
  %busy = icmp ne i64 %count, 0
  %both = and i1 %worker, %busy
  br i1 %both, label %watch, label %peek
watch:
  %late = call i1 @is_late(ptr %since)
  br i1 %late, label %yield, label %peek
yield:
  ; give the processor away, between chunks, before the system takes it away within one
  call void @report(ptr %pool, i64 %count)
  %y = call i32 @sched_yield()
  %fresh = call i64 @now()
  store i64 %fresh, ptr %since, align 8
  br label %look
peek:
  %word = load atomic i64, ptr %at acquire, align 8
  %next = and i64 %word, 65535
  %shifted = lshr i64 %word, 16
  %end = and i64 %shifted, 65535
  %left = icmp ult i64 %next, %end
  br i1 %left, label %claim, label %empty
claim:
  %taken = add i64 %word, 1
  %swap = cmpxchg ptr %at, i64 %word, i64 %taken acq_rel monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %run, label %look
run:
  %f.at = getelementptr i8, ptr %pool, i64 72
  %f = load ptr, ptr %f.at, align 8
  %args.at = getelementptr i8, ptr %pool, i64 80
  %args = load ptr, ptr %args.at, align 8
  %dims.at = getelementptr i8, ptr %pool, i64 88
  %dims = load ptr, ptr %dims.at, align 8
  %chunks.at = getelementptr i8, ptr %pool, i64 8
  %chunks = load i64, ptr %chunks.at, align 8
  %control.at = getelementptr i8, ptr %pool, i64 96
  %control = load i64, ptr %control.at, align 8
  call void @pool_set_control(i64 %control)
  call void %f(ptr %args, ptr %dims, i64 %next, i64 %chunks)
  %count.next = add i64 %count, 1
  br label %look
empty:
  %k.next = add i64 %k, 1
  %again = icmp ult i64 %k.next, %threads
  br i1 %again, label %share, label %out
out:
  call void @report(ptr %pool, i64 %count)
  ret void
}

; run f(args, dims, chunk, chunks) for every chunk on all threads of the pool; returns when all are done
define void @pool_parallel_for(ptr %pool, ptr %f, ptr %args, ptr %dims) {
entry:
  %f.at = getelementptr i8, ptr %pool, i64 72
  store ptr %f, ptr %f.at, align 8
  %args.at = getelementptr i8, ptr %pool, i64 80
  store ptr %args, ptr %args.at, align 8
  %dims.at = getelementptr i8, ptr %pool, i64 88
  store ptr %dims, ptr %dims.at, align 8
  %control = call i64 @pool_get_control()
  %control.at = getelementptr i8, ptr %pool, i64 96
  store i64 %control, ptr %control.at, align 8
  %done = getelementptr i8, ptr %pool, i64 128
  store atomic i64 0, ptr %done monotonic, align 8
  %chunks.at = getelementptr i8, ptr %pool, i64 8
  %chunks = load i64, ptr %chunks.at, align 8
  %threads.at = getelementptr i8, ptr %pool, i64 48
  %threads = load i64, ptr %threads.at, align 8
  %each = udiv i64 %chunks, %threads
  %epoch.at = getelementptr i8, ptr %pool, i64 64
  %epoch = load atomic i64, ptr %epoch.at monotonic, align 8
  %next.epoch = add i64 %epoch, 1
  %high = shl i64 %next.epoch, 32
  br label %deal
deal:
  %t = phi i64 [ 0, %entry ], [ %t.next, %deal ]
  %start = mul i64 %t, %each
  %end = add i64 %start, %each
  %end.high = shl i64 %end, 16
  %word.high = or i64 %high, %end.high
  %word = or i64 %word.high, %start
  %scaled = shl i64 %t, 6
  %offset = add i64 %scaled, 512
  %share.at = getelementptr i8, ptr %pool, i64 %offset
  store atomic i64 %word, ptr %share.at release, align 8
  %t.next = add i64 %t, 1
  %dealing = icmp ult i64 %t.next, %threads
  br i1 %dealing, label %deal, label %announce
announce:
  store atomic i64 %next.epoch, ptr %epoch.at seq_cst, align 8
  %sleepers.at = getelementptr i8, ptr %pool, i64 192
  %semaphore = getelementptr i8, ptr %pool, i64 256
  %asleep = atomicrmw xchg ptr %sleepers.at, i64 0 seq_cst, align 8
  br label %wake
wake:
  %k = phi i64 [ 0, %announce ], [ %k.next, %post ]
  %more = icmp slt i64 %k, %asleep
  br i1 %more, label %post, label %join
post:
  %status = call i32 @sem_post(ptr %semaphore)
  %k.next = add i64 %k, 1
  br label %wake
join:
  call void @work(ptr %pool, i64 0, ptr null)
  br label %wait
wait:
  %n = phi i64 [ 0, %join ], [ %n.next, %spin ]
  %finished = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %finished, %chunks
  br i1 %all, label %out, label %pause
pause:
  %n.next = add i64 %n, 1
  %long = icmp ugt i64 %n, $WAIT
  br i1 %long, label %rest, label %spin
spin:
  $PAUSE
  br label %wait
rest:
  ; whoever holds the last chunk is off its processor: sleep, so that the system can give it this one
  %waiting.at = getelementptr i8, ptr %pool, i64 208
  %ready = getelementptr i8, ptr %pool, i64 320
  store atomic i64 1, ptr %waiting.at seq_cst, align 8
  %now = load atomic i64, ptr %done seq_cst, align 8
  %already = icmp eq i64 %now, %chunks
  br i1 %already, label %withdraw, label %sleep
withdraw:
  %mine = atomicrmw xchg ptr %waiting.at, i64 0 seq_cst, align 8
  %still = icmp ne i64 %mine, 0
  br i1 %still, label %out, label %sleep
sleep:
  %woken = call i32 @sem_wait(ptr %ready)
  %final = load atomic i64, ptr %done acquire, align 8
  %complete = icmp eq i64 %final, %chunks
  br i1 %complete, label %out, label %rest
out:
  ret void
}

define void @pool_worker(ptr %pool, i64 %self) {
entry:
  %since = alloca i64, align 8
  %born = call i64 @now()
  store i64 %born, ptr %since, align 8
  %epoch.at = getelementptr i8, ptr %pool, i64 64
  %sleepers.at = getelementptr i8, ptr %pool, i64 192
  %stop.at = getelementptr i8, ptr %pool, i64 200
  %semaphore = getelementptr i8, ptr %pool, i64 256
  %spin.at = getelementptr i8, ptr %pool, i64 56
  %spin = load i64, ptr %spin.at, align 8
  br label %idle
serve:
  %job = phi i64 [ %epoch, %poll ], [ %missed, %announce ], [ %woken, %awake ]
  call void @work(ptr %pool, i64 %self, ptr %since)
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %job, %serve ]
  %quiet = call i64 @now()
  br label %poll
poll:
  %n = phi i64 [ 0, %idle ], [ %n.next, %pause ], [ 0, %patient ]
  %epoch = load atomic i64, ptr %epoch.at acquire, align 8
  %same = icmp eq i64 %epoch, %seen
  br i1 %same, label %tired, label %serve
tired:
  %often = icmp ugt i64 %n, $POLLS
  br i1 %often, label %clock, label %pause
pause:
  $PAUSE
  %n.next = add i64 %n, 1
  br label %poll
clock:
  %now = call i64 @now()
  %elapsed = sub i64 %now, %quiet
  %long = icmp ugt i64 %elapsed, %spin
  br i1 %long, label %announce, label %patient
patient:
  br label %poll
announce:
  %before = atomicrmw add ptr %sleepers.at, i64 1 seq_cst, align 8
  %missed = load atomic i64, ptr %epoch.at seq_cst, align 8
  %still = icmp eq i64 %missed, %seen
  br i1 %still, label %check, label %serve
check:
  %stop = load atomic i64, ptr %stop.at seq_cst, align 8
  %over = icmp ne i64 %stop, 0
  br i1 %over, label %out, label %sleep
sleep:
  %status = call i32 @sem_wait(ptr %semaphore)
  %stop.after = load atomic i64, ptr %stop.at seq_cst, align 8
  %over.after = icmp ne i64 %stop.after, 0
  br i1 %over.after, label %out, label %awake
awake:
  %start = call i64 @now()
  store i64 %start, ptr %since, align 8
  %woken = load atomic i64, ptr %epoch.at acquire, align 8
  br label %serve
out:
  ret void
}

; let the workers leave pool_worker
define void @pool_stop(ptr %pool, i64 %workers) {
entry:
  %stop.at = getelementptr i8, ptr %pool, i64 200
  store atomic i64 1, ptr %stop.at seq_cst, align 8
  %semaphore = getelementptr i8, ptr %pool, i64 256
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %k.next, %post ]
  %more = icmp slt i64 %k, %workers
  br i1 %more, label %post, label %out
post:
  %status = call i32 @sem_post(ptr %semaphore)
  %k.next = add i64 %k, 1
  br label %loop
out:
  ret void
}
"""
