"""Room ``api``: classes that users hold beside a compiled model.

Takes: a model, or a function of loops.
Gives: ``InferenceSession`` in ONNX Runtime's shape; ``Schedule``, which runs, times and shows what it describes, under
the names of TVM and Halide, too; its replay, and what its decisions are worth; ``Target`` by a description.
May import: compile, autotune.base, autotune.cost_model, autotune.measure, autotune.records, frontend, schedule,
codegen, runtime, tensor_ir, machine, core.
Never: a decision about a model (they are taken below); a name that ``tilewright/__init__.py`` does not give.
"""
