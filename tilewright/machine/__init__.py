"""What a CPU is: the facts that every decision about speed reads.

Takes: a CPU's name and features; what the operating system says of its caches.
Gives: :class:`~tilewright.machine.target.Target`.
May import: nothing.
Never: asks LLVM (:mod:`tilewright.codegen.detect_cpu` does); measures (:mod:`tilewright.autotune.measure.peaks` does).
"""
