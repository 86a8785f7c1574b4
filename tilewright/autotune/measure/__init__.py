"""Room ``autotune/measure``: candidates to times.

Takes: candidates of a task, and how to time them.
Gives: samples from worker processes, checked against the naive schedule; ratios of two things in turns; limits.
May import: autotune.base, schedule, codegen, runtime, runtime.resources, tensor_ir, machine, core.
Never: two measurements at once; a wrong result taken for a fast one.
"""
