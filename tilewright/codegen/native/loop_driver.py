"""Runs an entry function again and again, for loops whose body is one native call.

``i64 drive(ptr entry, ptr table, ptr dims, ptr pool, ptr moves, i64 count, ptr counter, ptr go, i64 start, i64 stop,
ptr status)`` calls the entry for the steps ``start .. stop-1`` and returns the step it stopped before. Before each step
it writes the number of the step to ``counter`` and moves pointers of the table: a move is four integers, position,
base, stride and mask, and the pointer at the position becomes ``base + (step & mask) * stride``. A mask of 1 alternates
between two buffers, a mask of -1 walks along an array. ``go``: null, or two bytes that take turns as the condition of a
step. A step whose entry gives another result than 0 is the last; the result is written to ``status``.
"""

from __future__ import annotations

from tilewright.machine.target import Target


def loop_driver_text(name: str, target: Target) -> str:
    """The LLVM IR module."""
    return f'target triple = "{target.triple}"\n' + _TEXT.replace("$NAME", name)


_TEXT = """
define i64 @$NAME(
  ptr %entry, ptr %table, ptr %dims, ptr %pool, ptr %moves, i64 %count, ptr %counter, ptr %go, i64 %start, i64 %stop,
  ptr %status
) {
begin:
  %always = icmp eq ptr %go, null
  br label %test
test:
  %i = phi i64 [ %start, %begin ], [ %next, %run ]
  %more = icmp slt i64 %i, %stop
  br i1 %more, label %ask, label %out
ask:
  br i1 %always, label %prepare, label %look
look:
  %turn = and i64 %i, 1
  %go.at = getelementptr i8, ptr %go, i64 %turn
  %flag = load i8, ptr %go.at, align 1
  %yes = icmp ne i8 %flag, 0
  br i1 %yes, label %prepare, label %out
prepare:
  store i64 %i, ptr %counter, align 8
  br label %head
head:
  %k = phi i64 [ 0, %prepare ], [ %k.next, %move ]
  %left = icmp slt i64 %k, %count
  br i1 %left, label %move, label %run
move:
  %offset = shl i64 %k, 5
  %where.at = getelementptr i8, ptr %moves, i64 %offset
  %base.at = getelementptr i8, ptr %where.at, i64 8
  %stride.at = getelementptr i8, ptr %where.at, i64 16
  %mask.at = getelementptr i8, ptr %where.at, i64 24
  %where = load i64, ptr %where.at, align 8
  %base = load i64, ptr %base.at, align 8
  %stride = load i64, ptr %stride.at, align 8
  %mask = load i64, ptr %mask.at, align 8
  %masked = and i64 %i, %mask
  %distance = mul i64 %masked, %stride
  %pointer = add i64 %base, %distance
  %slot = getelementptr i64, ptr %table, i64 %where
  store i64 %pointer, ptr %slot, align 8
  %k.next = add i64 %k, 1
  br label %head
run:
  %result = call i64 %entry(ptr %table, ptr %dims, ptr %pool, ptr null)
  %next = add i64 %i, 1
  %fine = icmp eq i64 %result, 0
  br i1 %fine, label %test, label %fail
fail:
  store i64 %result, ptr %status, align 8
  br label %out
out:
  ret i64 %i
}
"""
