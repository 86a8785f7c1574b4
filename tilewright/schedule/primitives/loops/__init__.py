"""Primitives that change loops: their number, order and kind, what stands on them, and where a nest is one call.

Takes: a function and the names of loops.
Gives: an equivalent function, or a ScheduleError.
May import: schedule.base, schedule.copies, tensor_ir, core.
Never: moves a stage to another place, or changes a buffer.
"""
