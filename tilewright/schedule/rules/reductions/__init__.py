"""Reductions that are not register tiles: along rows, down columns, and over lanes of a vector.

Takes: a reduction, the block that finishes it, and the target.
Gives: its nest, through decisions that a tuner may change.
May import: schedule.rules, schedule.schedule, tensor_ir, machine, core.
Never: names an operator or a model.
"""
