"""Primitives that change where values lie: copies near their use, scope, strides, layout.

Takes: a function and the names of blocks and buffers.
Gives: an equivalent function, or a ScheduleError.
May import: schedule.base, schedule.stage_motion, tensor_ir, core.
Never: changes a parameter of the function.
"""
