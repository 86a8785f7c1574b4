"""Primitives that change where, and in how many steps, a stage is computed.

Takes: a function and the names of blocks and loops.
Gives: an equivalent function, or a ScheduleError.
May import: schedule.base, schedule.compact_buffer, schedule.stage_motion, tensor_ir, core.
Never: changes the kind of a loop.
"""
