"""Room ``autotune/records``: what was measured, kept.

Takes: measurements, verdicts and choices; log files, damaged ones too.
Gives: databases in memory and in log files; a log as arrays.
May import: autotune.base, autotune.cost_model, schedule, tensor_ir, machine, core.
Never: a line that it cannot read thrown away; a file that is no log overwritten.
"""
