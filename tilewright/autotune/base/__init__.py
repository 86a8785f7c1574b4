"""Room ``autotune/base``: what is tuned, and what measuring it gives.

Takes: a function and a target.
Gives: a task with its workload; the space of its schedules, with candidates; a time or a failure as a value.
May import: schedule, tensor_ir, machine, core.
Never: a clock, a file, a process.
"""
