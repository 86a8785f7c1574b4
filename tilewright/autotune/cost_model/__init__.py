"""Room ``autotune/cost_model``: how fast a candidate is expected to be.

Takes: a scheduled function, and measured candidates to learn from.
Gives: features, and models that rank candidates by them.
May import: autotune.base, schedule, tensor_ir, machine, core.
Never: a measurement, a log.
"""
