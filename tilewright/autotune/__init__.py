"""Room ``autotune``: everything that measures. Its rooms, each over those before it:

``base`` (tasks, spaces, workloads), ``cost_model`` (features and models), ``records`` (logs), ``measure`` (timing by
workers), ``lookup`` (records to schedules), ``search`` (strategies, tuner, scheduler), ``network`` (a whole model).

Takes: a function, a target, a budget.
Gives: measured limits of the machine; with the tuner, the best trace and its records.
May import: schedule, codegen, runtime, tensor_ir, machine, core; lowering (only ``lookup`` and ``network``); compile,
options, kernels (only ``network``), graph_ir (only ``network`` and ``lookup``).
Never: ONNX; a measurement while something else of ours computes.
"""
