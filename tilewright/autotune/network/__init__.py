"""Room ``autotune/network``: a whole model tuned, and its records judged where they are used.

Takes: a model, options, a database.
Gives: records, choices and verdicts in the database; the tuned model.
May import: compile, options, kernels, autotune.base, autotune.cost_model, autotune.records, autotune.measure,
autotune.lookup, autotune.search, codegen, runtime, runtime.resources, schedule, lowering,
graph_ir, machine, core.
Never: a second pipeline (it compiles by ``compile``).
"""
