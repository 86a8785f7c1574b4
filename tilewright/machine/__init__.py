"""What a CPU is and what work costs on it: the only room with numbers of a machine.

Takes: a CPU's name and features; what the operating system says of its caches.
Gives: :class:`~tilewright.machine.target.Target` with its costs, which every decision about speed reads.
May import: nothing.
Never: asks LLVM (:mod:`tilewright.codegen.detect_cpu` does); measures (:mod:`tilewright.autotune.measure.peaks` does).
"""
