"""Room ``autotune/search``: which candidate is measured next, and of which task.

Takes: tasks, a measurer, a budget.
Gives: the history of each task with its best candidate; records of all that was measured.
May import: autotune.base, autotune.cost_model, autotune.records, autotune.measure, schedule, tensor_ir, machine,
core.
Never: a random number that is not drawn from the given generator.
"""
