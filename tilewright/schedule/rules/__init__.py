"""Default schedules by rule, one file per class of function; :mod:`tilewright.schedule.default` picks.

Takes: a schedule in progress and the target.
Gives: primitives applied through it, so that the default is a trace like any other.
May import: schedule.schedule, schedule.compact_buffer, schedule.primitives.sampling.sample_compute_location, tensor_ir,
machine, core.
Never: names an operator or a model; edits a function other than by primitives.
"""
