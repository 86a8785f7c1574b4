"""Room ``inspect/report``: a tuning log as one page of HTML.

Takes: the path of a tuning log, and measured peaks if there are any.
Gives: the text of a page that needs no other file.
May import: autotune.base, autotune.cost_model, autotune.lookup, autotune.records, schedule, runtime, lowering,
tensor_ir, machine, core.
Never: a measurement or a compilation; a name from a log without escaping it.
"""
