"""Room ``autotune``: everything that measures.

Takes: a function, a target, a budget.
Gives: measured limits of the machine; with the tuner, the best trace and its records.
May import: schedule, codegen, runtime, tensor_ir, machine, core.
Never: the graph IR, ONNX; a measurement while something else of ours computes.
"""
